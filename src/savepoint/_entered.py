"""What holds for every way into a run: who may enter it, and who is told."""

from collections.abc import Callable

from ._attempt import Attempt
from ._errors import Conflict, Usage
from ._nested import Within
from ._run import RunRecord

OnClaim = Callable[[RunRecord], None]
"""Told the run's record once it is claimed, before anything is performed."""


def tell_nobody(_: RunRecord) -> None:
    """The listener of a run that nobody watches."""


def tell(attempt: Attempt, on_claim: OnClaim) -> None:
    """A listener that raises ends the attempt before it began: the lock is free for the next one."""
    try:
        on_claim(attempt.record)
    except BaseException:
        attempt.claim.release()
        raise


def must_be_entered_by(record: RunRecord, within: Within | None) -> None:
    """A nested run is entered by its parent alone, whose world it merges into. Raises `Usage`, `Conflict`."""
    outer = None if within is None else within.run_id
    if record.parent == outer:
        return
    if record.parent is not None:
        raise Usage(
            f"run {record.run_id} is nested in run {record.parent}, which alone goes on with it",
            next=f"savepoint resume {record.parent}",
        )
    raise Conflict(f"run {record.run_id} exists already and is not nested in run {outer}", next="rename that run")
