"""The recovery table: what a call may do, given its class and what its receipt says. Pure.

`design/0002-recovery.md` holds the table and where each cell comes from; `tests/unit/test_recovery_table.py` states it
again cell by cell.
"""

from enum import StrEnum

from attrs import frozen

from ._idempotency import Idempotency, stricter
from ._receipt import Receipt, Status


class Verdict(StrEnum):
    DO = "do"
    """enter the body"""
    REUSE = "reuse"
    """return the recorded result"""
    RAISE = "raise"
    """raise the recorded error"""
    PROBE = "probe"
    """ask the outside whether it happened, then decide again"""
    WAIT = "wait"
    """nobody can know: a question"""
    DIVERGED = "diverged"
    """the receipt belongs to another version of the effect and is not settled: a question"""


@frozen(kw_only=True)
class Rules:
    """What an effect declares that recovery depends on."""

    idempotency: Idempotency
    version: int = 1
    probe: bool = False
    window_s: float = 0.0
    """KEYED: how long the remote remembers a key, minus a margin"""
    max_age_s: float | None = None
    """READ: how old a recorded answer may be"""


@frozen(kw_only=True)
class Facts:
    """What recovery knows beside the receipt."""

    covered: bool = True
    """every CONTAINED outcome at or below the call is in the fork that this attempt started from"""
    age_s: float = 0.0
    """now minus `receipt.at`; negative when the wall clock was set back"""
    depended: bool = False
    """something outside happened after this receipt and may depend on it"""
    before_claim: bool = False
    """the receipt was written by an earlier attempt"""
    strict: bool = False
    """recovery="strict": a performed ONCE call after the savepoint is asked about, not reused"""
    redo: bool = False
    """a decision for this very try says `redo`"""
    reviewed: bool = False
    """strict: a decision says that the performed call counts"""


def decide(rules: Rules, receipt: Receipt | None, facts: Facts) -> Verdict:
    """The table of recovery. `receipt` is the newest one of this call after the savepoint."""
    if receipt is None or receipt.status is Status.WITHDRAWN:
        return Verdict.DO
    idempotency = stricter(rules.idempotency, receipt.idempotency)
    if receipt.status in (Status.PERFORMED, Status.FAILED):
        return _settled(idempotency, receipt, rules, facts)
    if not idempotency.doubtful:
        return Verdict.DO
    if rules.version != receipt.version:
        return Verdict.DIVERGED
    return _doubtful(idempotency, receipt, rules, facts)


def _settled(idempotency: Idempotency, receipt: Receipt, rules: Rules, facts: Facts) -> Verdict:
    if idempotency in (Idempotency.CONTAINED, Idempotency.COMPOSITE) and not facts.covered:
        return Verdict.DO
    if idempotency is Idempotency.READ and _too_old(rules, facts) and not facts.depended:
        return Verdict.DO
    performed = receipt.status is Status.PERFORMED
    if facts.strict and performed and idempotency is Idempotency.ONCE and facts.before_claim:
        if facts.redo:
            return Verdict.DO
        if not facts.reviewed:
            return Verdict.WAIT
    return Verdict.REUSE if performed else Verdict.RAISE


def _too_old(rules: Rules, facts: Facts) -> bool:
    # A clock that was set back makes the age unknown, which is not young.
    return rules.max_age_s is not None and not 0 <= facts.age_s <= rules.max_age_s


def _doubtful(idempotency: Idempotency, receipt: Receipt, rules: Rules, facts: Facts) -> Verdict:
    if facts.redo:
        return Verdict.DO
    if idempotency is Idempotency.KEYED and receipt.status is Status.INTENDED and 0 <= facts.age_s < rules.window_s:
        return Verdict.DO
    return Verdict.PROBE if rules.probe else Verdict.WAIT
