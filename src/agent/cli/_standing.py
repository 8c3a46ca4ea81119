"""How a run stands by the store, without its program."""

from attrs import evolve

from agent import Result, StoredSession
from agent._entries import TYPES
from agent._link import link_to, stake_of
from savepoint import Missing, RunResult, RunStatus
from savepoint._events import read_head
from savepoint._program import find_run, stored_result
from savepoint._questions import open_questions
from savepoint._resumable import OURS, Registry
from savepoint._run import ENDED, RunRecord
from savepoint._sqlite import SqliteStore
from savepoint._store import Space

from ._local import Local
from ._show import understood


async def answered(store: SqliteStore, record: RunRecord, local: Local) -> Result:
    """The answer of a completed run, which lands in its session now where its process died before that."""
    result, stake = await stored(store, record), stake_of(record)
    if stake is None or not stake.own:
        return result
    if record.run_id not in await StoredSession(store).pending_runs(stake.session_id):
        return result
    warning = await understood(lambda types: link_to(store, None, types).land(record, stake), local)
    return evolve(result, warnings=(*result.warnings, warning)) if warning else result


async def stored(store: SqliteStore, record: RunRecord) -> Result:
    return _as_result(await stored_result(store, record, Registry(types=TYPES)))


async def standing(store: SqliteStore, run_id: str) -> Result:
    """How a run stands by the store, after this process let go of it."""
    record = await find_run(store, run_id)
    if record is None:
        raise Missing(f"run {run_id} was interrupted before it began", next="start it again")
    if record.status is RunStatus.COMPLETED:
        return evolve(await stored(store, record), replayed=False)
    head = await store.read(Space.HEAD, record.lineage)
    return Result(
        run_id=run_id,
        status=record.status,
        step=0 if head is None else read_head(head).step,
        error=record.error,
        questions=() if record.status in ENDED else tuple(await open_questions(store, record.lineage, OURS | TYPES)),
    )


def _as_result(found: RunResult) -> Result:
    return Result(
        run_id=found.run_id,
        status=found.status,
        output=found.value if isinstance(found.value, str) else None,
        step=found.step,
        replayed=found.replayed,
        warnings=found.warnings,
    )
