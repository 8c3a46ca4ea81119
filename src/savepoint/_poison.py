"""A savepoint from which every attempt dies or fails: counted at each claim, asked about before it is entered again.

Pure. A kill loop costs money and holds a place that others could use, so recovery by itself ends with a question.
"""

from collections.abc import Sequence

from effects import Idempotency
from effects._receipt import Receipt, Status

from ._errors import Usage
from ._frame import component
from ._run import RunRecord, RunStatus

_FAILURES = frozenset({RunStatus.RUNNING, RunStatus.FAILED})
"""How an attempt ended that counts. Running: its process died. An unreachable model is not the savepoint's fault."""


def failures_at(record: RunRecord, step: int) -> int:
    """Attempts in a row that died or failed from savepoint `step`, where `record` stood before it is claimed there."""
    if (record.resumed_from or 0) != step:  # None: the first attempt, from savepoint 0
        return 0
    return record.failures + (record.status in _FAILURES)


def must_ask(failures: int, poison_after: int | None, asked: Sequence[int]) -> bool:
    """Whether the savepoint is to be asked about. `asked`: the failures at each earlier question, which was answered
    by `redo`: each allows `poison_after` more, whatever the limit was when it was asked.
    """
    if poison_after is None:
        return False
    return failures - max((each for each in asked if each <= failures), default=0) >= poison_after


def check_limit(poison_after: int | None) -> None:
    """Raises `Usage` for a number of failures that means nothing."""
    if poison_after is not None and poison_after < 1:
        raise Usage(f"poison_after={poison_after}: not a number of failures", next="give 1 or more, or None")


def poison_marker(step: int, failures: int) -> Receipt:
    """What the question is identified by: no call, but the savepoint and how often it has failed."""
    return Receipt(
        key=component(b"poison"),
        step=step,
        effect="",
        version=0,
        idempotency=Idempotency.READ,
        status=Status.WITHDRAWN,
        tried=failures,
    )


def poison_reason(failures: int, step: int, former: RunRecord) -> str:
    """Why the run waits. `former` is its record before this claim: the last error that is known."""
    several = f"{failures} attempts in a row" if failures > 1 else "1 attempt"
    known = f"{several} died or failed from savepoint {step}"
    if former.error is not None:
        return f"{known}; the last error: {former.error.kind}: {former.error.message}"
    return f"{known}; the process of the last one died" if former.status is RunStatus.RUNNING else known
