"""What can be wrong with a history of a run, and what is merely a wait."""

from enum import StrEnum

from attrs import frozen


class Verdict(StrEnum):
    """How a history ended. Only `PASS` and `PARKED` are right."""

    PASS = "pass"  # noqa: S105
    PARKED = "parked"
    """it waits for a decision where nobody can know what happened"""
    DUPLICATE = "duplicate"
    """the outside saw something more often than in an unkilled run"""
    LOST = "lost"
    """the outside never saw it, or what it saw was forgotten"""
    DIVERGED = "diverged"
    """another result, transcript, world or savepoint than that of an unkilled run, or a needless question"""
    CORRUPT = "corrupt"
    """something half-written, or a failure that an unkilled run does not have"""
    UNDETECTED = "undetected corruption"
    """damaged bytes were used as if they were whole"""
    LEAK = "leak"
    """a parent, a sibling or the host changed"""
    BUDGET = "budget"
    """a limit was passed, or a budget was made or lost"""
    HASH_DRIFT = "hash drift"
    """equal content under another identity"""
    STUCK = "stuck"
    """no progress within the bound"""
    DOUBLE_OWNER = "double owner"
    """two attempts acted for one run at once"""

    # What disqualifies a target, whatever else it does.
    NOT_DETERMINISTIC = "not deterministic"
    """two unkilled runs differ: nothing can be said about killed ones"""
    LEAVES_CHILDREN = "leaves children"
    """its process ended and another one that it started lives on"""
    NEVER_FINISHES = "never finishes"
    """an unkilled run did not end within its time"""
    BAD_LEDGER = "bad ledger"
    """the ledger shrank, lost lines, or cannot be read"""
    PRINTS = "prints to standard output"
    """unless that was allowed: it is easily taken for an answer"""
    FAILS = "fails unkilled"
    """an unkilled run ended with an error"""

    @property
    def right(self) -> bool:
        return self in (Verdict.PASS, Verdict.PARKED)


@frozen
class Violation:
    """One thing that is wrong with one history."""

    verdict: Verdict
    what: str

    def __str__(self) -> str:
        return f"{self.verdict}: {self.what}"


def worst(violations: "list[Violation]", *, parked: bool = False) -> Verdict:
    """The one word for a history: its first violation's, else `PARKED` or `PASS`."""
    if violations:
        return violations[0].verdict
    return Verdict.PARKED if parked else Verdict.PASS
