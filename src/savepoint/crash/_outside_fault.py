"""What an outside does wrong, and when: a pure table from requests to faults."""

import json
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import asdict, field, frozen

from savepoint._errors import Corrupt, Usage

OPERATIONS = ("act", "probe", "read", "count")
PLAN = "plan"
"""the file of a ledger directory that holds its plan"""


class OutsideFault(StrEnum):
    """How one request goes wrong. A request that is named by no plan is performed and answered once."""

    DROPPED = "dropped"
    """performed, then the connection is closed without an answer; a probe hangs up"""
    LOST = "lost"
    """the connection is closed and nothing is performed"""
    REFUSED = "refused"
    """an observed error; nothing is performed"""
    SLOW = "slow"
    """performed, and answered after the plan's `delay_s`"""
    HELD = "held"
    """performed, and answered once the caller is gone: one that waits waits for ever"""
    TWICE = "twice"
    """performed once and answered twice"""
    DIES_BEFORE = "dies before"
    """the outside kills itself (SIGKILL) before anything is performed"""
    DIES_APPENDING = "dies appending"
    """the outside kills itself when half of the ledger's line is written: the act did not happen"""
    DIES_AFTER = "dies after"
    """performed, then the outside kills itself"""
    DENIES = "denies"
    """a probe is told "not performed", whatever is true"""
    AFFIRMS = "affirms"
    """a probe is told "performed", whatever is true"""
    UNSURE = "unsure"
    """a probe is told "unknown" """


LIES = frozenset({OutsideFault.DENIES, OutsideFault.AFFIRMS, OutsideFault.UNSURE})
"""Faults of probes only."""
ANY = tuple(each for each in OutsideFault if each not in LIES and each is not OutsideFault.HELD)
"""What a seeded plan draws from: nothing that needs a probe, and nothing that only a killed caller gets over."""


def _listed(table: Mapping[str, str]) -> dict[str, OutsideFault]:
    return {request: OutsideFault(fault) for request, fault in table.items()}


@frozen(kw_only=True)
class OutsidePlan:
    """Which requests go wrong, and how: those that are listed, and those that a seed draws. Raises `Usage`."""

    listed: Mapping[str, OutsideFault] = field(factory=dict[str, OutsideFault], converter=_listed)
    """`OPERATION TAG NTH`, as in `act 0.pay 1` (its first act; `*`: each of them), or `#N`, the N-th request of the
    ledger directory -> fault"""
    seed: int = 0
    rate: float = 0.0
    """the share of the other requests that the seed lets go wrong, 0 to 1"""
    delay_s: float = 0.02
    """of `SLOW`"""

    def __attrs_post_init__(self) -> None:
        for request, fault in self.listed.items():
            operation, _, rest = request.partition(" ")
            nth = rest.rpartition(" ")[2] if rest else operation.removeprefix("#")
            known = operation in OPERATIONS if rest else operation.startswith("#") and nth != "*"
            if not known or not (nth == "*" or (nth.isdecimal() and int(nth) > 0)):
                raise Usage(f"{request!r} names no request of an outside", next="as in: act 0.pay 1, probe 0.pay *, #3")
            if fault in LIES and rest and operation != "probe":
                raise Usage(f"{request!r} cannot be {fault}: only a probe is lied to", next="list the probe instead")

    def fault(self, *, number: int, operation: str, tag: str, nth: int) -> OutsideFault | None:
        """What befalls a directory's request `number`, the `nth` of this operation and tag; both count from 1."""
        for name in (f"{operation} {tag} {nth}", f"{operation} {tag} *", f"#{number}"):
            if name in self.listed:
                return self.listed[name]
        drawn = sha256(f"{self.seed} {operation} {tag} {nth}".encode()).digest()
        if int.from_bytes(drawn[:4], "big") >= self.rate * (1 << 32):
            return None
        return ANY[drawn[4] % len(ANY)]

    def write(self, place: Path) -> None:
        """From here on the outside of the ledger directory `place`, made where it is missing, follows this plan."""
        place.mkdir(parents=True, exist_ok=True)
        (place / PLAN).write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, place: Path) -> "OutsidePlan":
        """The plan of a ledger directory; without one nothing goes wrong. Raises `Corrupt`."""
        path = place / PLAN
        if not path.exists():
            return cls()
        try:
            found: dict[str, Any] = json.loads(path.read_text())
            return cls(**found)
        except (ValueError, TypeError) as error:
            raise Corrupt(f"the plan {path}: {error}", next="write it with OutsidePlan.write") from error
