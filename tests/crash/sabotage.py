"""One-line faults that the rig can plant into a child process: the suite must notice each of them (`grading.py`)."""

from collections.abc import Callable

from sabotage_agents import AGENTS
from sabotage_disk import DISK
from sabotage_identity import IDENTITY
from sabotage_inside import INSIDE
from sabotage_owners import OWNERS
from sabotage_receipts import RECEIPTS
from sabotage_recovery import RECOVERY
from sabotage_worlds import WORLDS

SABOTAGES: dict[str, Callable[[], None]] = {
    **RECEIPTS,
    **RECOVERY,
    **OWNERS,
    **IDENTITY,
    **WORLDS,
    **DISK,
    **AGENTS,
    **INSIDE,
}
"""Name -> what plants it: called once, in the process that is to be faulty."""
