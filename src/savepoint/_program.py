"""Running a program durably: `run_program` starts or answers it, `resume_program` continues it.

The agent loop is such a program; nothing here knows of models.
"""

from collections.abc import Callable, Mapping

from attrs import frozen

from ._ambient import fresh_bytes, wall_clock_s
from ._begin import claim_run, create
from ._claim import LEASE_S, alive, owner_of
from ._entered import OnClaim, must_be_entered_by, tell, tell_nobody
from ._errors import Conflict, Held, Missing
from ._events import LINEAGE_SIZE
from ._fresh import adopted, begun
from ._nested import Within, nested_in
from ._past import Standing, read_standing
from ._play import Played, play
from ._poison import check_limit
from ._questions import open_questions, read_decisions
from ._resumable import Bound, Registry
from ._review import Review, accept
from ._run import IfExists, Recovery, RunRecord, RunStatus, run_key
from ._run_result import RunResult, find_run, get_run, result_after, stored_result
from ._store import Store, Transaction
from ._unanswered import refuse_doubts, refuse_living
from ._world import World

Rows = Callable[[Transaction], None]
"""More rows of the commit that creates a run."""


def _ignore(_: object) -> None:
    return None


async def run_program(
    program: Bound | bytes,
    *,
    store: Store,
    run_id: str | None = None,
    world: World | None = None,
    registry: Registry | None = None,
    if_run_exists: IfExists | str = IfExists.RESUME,
    recovery: Recovery | str = Recovery.REUSE,
    lease_s: float = LEASE_S,
    meta: Mapping[str, object] | None = None,
    state: Mapping[str, object] | None = None,
    caused_by: str | None = None,
    abandon: bool = False,
    on_claim: OnClaim = tell_nobody,
    review: Review = accept,
    within: Within | None = None,
    also: Rows = _ignore,
    poison_after: int | None = None,
) -> RunResult:
    """Runs `function.at(...)`, or the rest of a program from the savepoint of this id, durably under `run_id`, an
    idempotency key (a fresh one by default).

    A run that exists is handled by `if_run_exists`: `resume` continues it (or returns its stored result), `restart` starts
    it anew, `fail` and `resume_only` refuse what is there or is not. `world` is the host: the program works in a fork;
    `state` is declared state to begin with, by cell name. `meta` (portable) is kept in the run's record. `within` is
    the run that begins this one inside a body of its own, `also` adds rows to the commit that creates the run.
    `poison_after`: as for `resume_program`, where the run is continued.
    Raises `Usage`, `NotPortable`, `Held`, `Conflict`, `Missing`, `NotWritable`, `Corrupt`.
    """
    run_id = f"run-{fresh_bytes(6).hex()}" if run_id is None else run_id
    policy = IfExists(if_run_exists)
    check_limit(poison_after)
    registry = registry or Registry()
    registry = registry if isinstance(program, bytes) else registry.including(program.resumable)
    host = world or World()
    record = await find_run(store, run_id)
    if record is None and policy is IfExists.RESUME_ONLY:
        raise Missing(f"there is no run {run_id}", next="savepoint runs lists the known ones")
    if record is not None and policy is IfExists.FAIL:
        raise Conflict(f"run {run_id} exists already ({record.status})", next="choose another run id")
    if record is not None and policy is not IfExists.RESTART:
        way = _Way(host, registry, lease_s, on_claim, review, within, poison_after)
        return await _continue(store, record, way)
    if record is not None:
        must_be_entered_by(record, within)
        await _may_restart(store, record, registry, abandon=abandon)
    fresh = RunRecord(
        run_id=run_id,
        lineage=fresh_bytes(LINEAGE_SIZE),
        status=RunStatus.RUNNING,
        program="",
        created_at=wall_clock_s(),
        changed_at=wall_clock_s(),
        recovery=Recovery(recovery),
        caused_by=caused_by,
        parent=None if within is None else within.run_id,
        meta=dict(meta or {}),
    )
    if isinstance(program, bytes):
        start = await adopted(store, fresh, program, registry=registry, review=review)
    else:
        start = await begun(store, fresh, program, host=host, registry=registry, state=state or {}, within=within)
    attempt = await create(
        store,
        start.record,
        start.values,
        start.savepoint,
        host=host,
        registry=registry,
        lease_s=lease_s,
        former=record,
        within=within,
        also=also,
    )
    attempt.warnings += start.warnings
    tell(attempt, on_claim)
    return await result_after(store, run_id, await play(attempt), registry)


async def resume_program(
    run_id: str,
    *,
    store: Store,
    world: World | None = None,
    registry: Registry,
    lease_s: float = LEASE_S,
    on_claim: OnClaim = tell_nobody,
    review: Review = accept,
    poison_after: int | None = None,
) -> RunResult:
    """Continues a stopped run from its newest good savepoint; a completed one is answered from the store.

    A waiting run without all its decisions stays waiting and runs nothing. `poison_after`: where that many attempts in
    a row died or failed from the savepoint, it is not entered, and the run waits with the question `poison`; `None`
    never asks. Raises `Usage`, `Missing`, `Held`, `Conflict` (the run was cancelled), `Corrupt`, `Foreign`, `Newer`,
    `NotWritable`.
    """
    check_limit(poison_after)
    way = _Way(world or World(), registry, lease_s, on_claim, review, None, poison_after)
    return await _continue(store, await get_run(store, run_id), way)


async def _may_restart(store: Store, record: RunRecord, registry: Registry, *, abandon: bool) -> None:
    await refuse_living(store, record)
    if abandon or record.removed or record.status is RunStatus.COMPLETED:
        return
    move = f"savepoint resume {record.run_id} and answer its questions, or restart with abandon"
    await _nothing_in_doubt(store, record, registry, move)


async def _nothing_in_doubt(store: Store, record: RunRecord, registry: Registry, move: str) -> None:
    """Raises `Conflict` over a call in doubt, of the run or of one nested in the step that it would go on with."""
    standing = await read_standing(store, record.lineage, registry)
    answered = await read_decisions(store, record.lineage, registry.types)
    receipts = standing.past.receipts.values()
    refuse_doubts(record, receipts, answered, standing.damage, act="a restart", next=move)
    for nested in await nested_in(store, record.lineage, since=standing.step):
        inner = await find_run(store, nested.run_id)
        if inner is not None and inner.lineage == nested.lineage and inner.status is not RunStatus.COMPLETED:
            await _nothing_in_doubt(store, inner, registry, move)


@frozen
class _Way:
    """How a run goes on here."""

    host: World
    registry: Registry
    lease_s: float
    on_claim: OnClaim
    review: Review
    within: Within | None
    poison_after: int | None


async def _continue(store: Store, record: RunRecord, way: _Way) -> RunResult:
    registry = way.registry
    must_be_entered_by(record, way.within)
    if record.status is RunStatus.COMPLETED:
        return await stored_result(store, record, registry)
    if record.removed:
        raise Conflict(f"run {record.run_id} was removed", next="choose another run id, or if_run_exists=restart")
    if record.status is RunStatus.CANCELLED and way.within is not None:
        return await stored_result(store, record, registry)  # an end like any other for the run around it
    if record.status is RunStatus.CANCELLED:
        raise Conflict(f"run {record.run_id} was cancelled", next="start it anew with if_run_exists=restart")
    lease = await owner_of(store, run_key(record.run_id))
    if lease is not None and alive(store, record.lineage, lease):
        raise Held(
            f"run {record.run_id} is held by process {lease.process} (attempt {lease.epoch})",
            next=f"wait for it, or stop that process; then: savepoint resume {record.run_id}",
        )
    standing = await read_standing(store, record.lineage, registry)
    if record.status is RunStatus.WAITING and await _still_open(store, record, standing, registry):
        return await _standing_result(store, record, standing, registry)
    reviewed = await way.review(record, standing.savepoint)
    attempt = await claim_run(
        store,
        record,
        standing,
        host=way.host,
        registry=way.registry,
        lease_s=way.lease_s,
        meta=reviewed.meta,
        poison_after=way.poison_after,
        outer=None if way.within is None else way.within.journal.claim,
    )
    attempt.warnings += reviewed.warnings
    tell(attempt, way.on_claim)
    return await result_after(store, record.run_id, await play(attempt), registry)


async def _still_open(store: Store, record: RunRecord, standing: Standing, registry: Registry) -> bool:
    waiting = await open_questions(store, record.lineage, registry.types)
    return any(question.lineage != record.lineage or question.step >= standing.step for question in waiting)


async def _standing_result(store: Store, record: RunRecord, standing: Standing, registry: Registry) -> RunResult:
    played = Played(status=RunStatus.WAITING, step=standing.head.step, warnings=standing.warnings)
    return await result_after(store, record.run_id, played, registry)
