"""Named places where a process may die, free while nothing is armed.

Tests and the crash rig arm a hook (`savepoint.testing`) that kills the process at one of them; the code only says
where it is. A crash is never an exception.
"""

from collections.abc import Callable
from enum import StrEnum


class CrashPoint(StrEnum):
    """Every named point. `*_BEFORE` and `*_AFTER` stand around one store commit."""

    CREATE_BEFORE = "create.before"
    CREATE_AFTER = "create.after"
    CLAIM_BEFORE = "claim.before"
    CLAIM_AFTER = "claim.after"
    SETTLE_BEFORE = "settle.before"
    """what a probe or a decision said, before it is recorded"""
    SETTLE_AFTER = "settle.after"
    FORK_BEFORE = "fork.before"
    FORK_AFTER = "fork.after"
    ENTER = "enter"
    """the resume function is about to be entered"""
    REPLY_BEFORE = "reply.before"
    REPLY_AFTER = "reply.after"
    INTENT_BEFORE = "intent.before"
    INTENT_AFTER = "intent.after"
    BODY_BEFORE = "body.before"
    BODY_AFTER = "body.after"
    LANDED = "landed"
    OUTCOME_BEFORE = "outcome.before"
    OUTCOME_AFTER = "outcome.after"
    SNAPSHOT_BEFORE = "snapshot.before"
    SNAPSHOT_AFTER = "snapshot.after"
    GAP_BEFORE = "gap.before"
    GAP_AFTER = "gap.after"
    PARK_BEFORE = "park.before"
    PARK_AFTER = "park.after"
    END_BEFORE = "end.before"
    END_AFTER = "end.after"
    LAND_BEFORE = "land.before"
    """a completed run's part, before it is in its session"""
    LAND_AFTER = "land.after"


_armed: Callable[[CrashPoint], None] | None = None


def reach(point: CrashPoint) -> None:
    """Says that the process is at `point`."""
    if _armed is not None:
        _armed(point)


def arm(hook: Callable[[CrashPoint], None] | None) -> Callable[[CrashPoint], None] | None:
    """Installs the hook that every point calls (`None`: back to idle); returns the one before. For tests."""
    global _armed
    former, _armed = _armed, hook
    return former
