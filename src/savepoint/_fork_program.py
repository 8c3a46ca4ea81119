"""A new run from a savepoint of another one."""

from attrs import evolve

from ._ambient import fresh_bytes, wall_clock_s
from ._begin import create
from ._claim import LEASE_S
from ._entered import OnClaim, must_be_entered_by, tell, tell_nobody
from ._errors import Conflict, Missing
from ._events import LINEAGE_SIZE, Mark
from ._form import read_form
from ._past import find_mark, may_repeat, read_lineage, read_marks
from ._play import leave, play
from ._resumable import Registry
from ._review import Review, accept
from ._run import RunRecord, RunStatus
from ._run_result import RunResult, find_run, get_run, result_after
from ._store import Store
from ._world import World


async def fork_program(
    run_id: str,
    *,
    store: Store,
    registry: Registry,
    at: int | None = None,
    fork_id: str | None = None,
    world: World | None = None,
    lease_s: float = LEASE_S,
    on_claim: OnClaim = tell_nobody,
    review: Review = accept,
    enter: bool = True,
) -> RunResult:
    """A new run that starts at savepoint `at` (a step; the newest by default) of another one and runs to its end, or,
    without `enter`, is left interrupted at its beginning.

    It has a lineage of its own: no receipts, so it does again what came after the savepoint; `may_repeat` lists it.
    """
    parent = await get_run(store, run_id)
    must_be_entered_by(parent, None)
    step, mark = await _mark_at(store, parent, at)
    savepoint = await read_form(store, mark.point, registry)
    reviewed = await review(parent, savepoint)
    repeat = await may_repeat(store, parent.lineage, step, mark)
    fresh = evolve(
        parent,
        run_id=f"{run_id}-fork-{fresh_bytes(3).hex()}" if fork_id is None else fork_id,
        lineage=fresh_bytes(LINEAGE_SIZE),
        status=RunStatus.RUNNING,
        attempts=0,
        created_at=wall_clock_s(),
        changed_at=wall_clock_s(),
        result=None,
        state=None,
        error=None,
        final=None,
        settled=None,
        resumed_from=None,
        failures=0,
        ended_at=0.0,
        caused_by=f"{run_id}@{step}",
        meta={**(parent.meta if reviewed.meta is None else reviewed.meta), "may_repeat": list(repeat)},
    )
    if await find_run(store, fresh.run_id) is not None:
        raise Conflict(f"run {fresh.run_id} exists already", next="choose another id for the fork")
    attempt = await create(store, fresh, [], savepoint, host=world or World(), registry=registry, lease_s=lease_s)
    attempt.warnings += reviewed.warnings
    tell(attempt, on_claim)
    played = await (play(attempt) if enter else leave(attempt))
    result = await result_after(store, fresh.run_id, played, registry)
    return evolve(result, may_repeat=repeat)


def refuse_removed(record: RunRecord) -> None:
    """Raises `Missing` where nothing is left to fork."""
    if record.removed:
        raise Missing(f"run {record.run_id} was removed: it has no savepoints", next="fork another run")


async def _mark_at(store: Store, run: RunRecord, at: int | None) -> tuple[int, Mark]:
    refuse_removed(run)
    step = (await read_lineage(store, run.lineage))[0].point_step if at is None else at
    mark = await find_mark(store, run.lineage, step) if step >= 0 else None
    if mark is None:
        known = ", ".join(map(str, sorted(await read_marks(store, run.lineage)))) or "none"
        raise Missing(f"run {run.run_id} has no savepoint at step {step}", next=f"it has: {known}")
    return step, mark
