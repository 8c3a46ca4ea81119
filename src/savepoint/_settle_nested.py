"""What is in doubt in the runs nested in a run is settled before that one is entered: nothing of a step runs until all
its questions are answered, and those of the runs inside it are among them.
"""

import asyncio
from typing import TYPE_CHECKING

from effects._receipt import UNSETTLED

from ._begin import claim_run
from ._ending import end_attempt
from ._nested import Nested, nested_in
from ._past import Standing, read_standing
from ._questions import open_questions
from ._run import ENDED, Recovery, RunStatus, read_run, run_key
from ._settle import Failing, settle_doubts
from ._store import Space, Store

if TYPE_CHECKING:
    from ._attempt import Attempt
    from ._run import RunRecord


async def settle_nested(attempt: "Attempt") -> bool:
    """Settles what can be settled in every nested run that this attempt may go on with; whether questions are open.

    Raises `Held` where another process is still inside one.
    """
    waits = False
    for nested in await nested_in(attempt.store, attempt.lineage, since=attempt.journal.step):
        record = await _record(attempt.store, nested)
        if record is not None and record.status not in ENDED:
            waits |= await _settled(attempt, record)
    return waits


async def _record(store: Store, nested: Nested) -> "RunRecord | None":
    row = await store.read(Space.RUN, run_key(nested.run_id))
    record = None if row is None else read_run(row)
    return record if record is not None and record.lineage == nested.lineage else None


async def _settled(outer: "Attempt", record: "RunRecord") -> bool:
    store, registry = outer.store, outer.registry
    standing = await read_standing(store, record.lineage, registry)
    if not (_must_settle(standing, record.recovery) or await nested_in(store, record.lineage, since=standing.step)):
        return bool(await open_questions(store, record.lineage, registry.types))
    inner = await claim_run(
        store,
        record,
        standing,
        host=outer.host,
        registry=registry,
        lease_s=outer.claim.lease_s,
        outer=outer.claim,
    )
    try:
        async with inner.claim.renewing(asyncio.current_task()):
            waits = await settle_nested(inner) | bool(await settle_doubts(inner))
            await end_attempt(inner, RunStatus.WAITING if waits else RunStatus.INTERRUPTED)
            return waits
    except Failing as failing:
        await end_attempt(inner, RunStatus.FAILED, error=failing.failure)
        return False
    except (Exception, asyncio.CancelledError, KeyboardInterrupt, SystemExit):
        # Given back, as the outer run is: whoever resumes that one must not wait for a lease that nobody needs.
        await end_attempt(inner, RunStatus.INTERRUPTED)
        raise
    finally:
        inner.claim.release()


def _must_settle(standing: Standing, recovery: Recovery) -> bool:
    """Whether something may have to be asked; of a strict run also about what was performed."""
    return bool(standing.damage) or any(
        receipt.idempotency.doubtful and (receipt.status in UNSETTLED or recovery is Recovery.STRICT)
        for receipt in standing.past.receipts.values()
    )
