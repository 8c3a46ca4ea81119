"""The end of an attempt: what runs is waited for and recorded, then one commit says how the run stands."""

from typing import Any

from attrs import frozen

from effects._failure import Failure

from ._attempt import Attempt
from ._run import RunStatus


@frozen(kw_only=True)
class Played:
    """How an attempt ended."""

    status: RunStatus
    value: Any = None
    error: Failure | None = None
    step: int = 0
    warnings: tuple[str, ...] = ()


async def end_attempt(attempt: Attempt, status: RunStatus, **how: Any) -> Played:
    attempt.claim.ending = True
    if status in (RunStatus.INTERRUPTED, RunStatus.CANCELLED):
        attempt.journal.gate.cancel()
    # Also when it is interrupted: who claims the run next takes a free lock for proof that no body of ours runs.
    await attempt.journal.finish()
    await attempt.claim.rest()
    await attempt.end(status, **how)
    return Played(status=status, error=how.get("error"), step=attempt.journal.step, warnings=tuple(attempt.warnings))
