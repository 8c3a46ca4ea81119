"""Running a program durably: `run_program` starts or answers it, `resume_program` continues it, `fork_program` branches.

The agent loop is such a program; nothing here knows of models.
"""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve, frozen

from effects._failure import Failure
from effects._question import Question

from ._ambient import fresh_bytes, wall_clock_s
from ._attempt import Attempt
from ._begin import claim_run, create
from ._claim import LEASE_S, alive, owner_of
from ._errors import Conflict, Held, Missing, Usage
from ._events import LINEAGE_SIZE, Mark, read_head
from ._form import read_form
from ._fresh import adopted, begun
from ._nested import Within, nested_in
from ._past import Standing, find_mark, may_repeat, read_lineage, read_marks, read_standing
from ._play import Played, leave, play
from ._poison import check_limit
from ._questions import open_questions, read_decisions
from ._resumable import Bound, Registry
from ._review import Review, accept
from ._run import IfExists, Recovery, RunRecord, RunStatus, read_run, run_key
from ._store import Space, Store, Transaction
from ._stored import get_value
from ._unanswered import refuse_doubts, refuse_living
from ._world import World

OnClaim = Callable[[RunRecord], None]
"""Told the run's record once it is claimed, before anything is performed."""
Rows = Callable[[Transaction], None]
"""More rows of the commit that creates a run."""


def _ignore(_: object) -> None:
    return None


@frozen(kw_only=True)
class RunResult:
    """How a run stands after an attempt, or as the store knows it."""

    run_id: str
    status: RunStatus
    value: Any = None
    """the program's result, where it completed"""
    error: Failure | None = None
    step: int = 0
    """savepoints published so far"""
    questions: tuple[Question, ...] = ()
    """what a waiting run waits for"""
    replayed: bool = False
    """answered from the store: nothing was run, and new input was ignored"""
    warnings: tuple[str, ...] = ()
    may_repeat: tuple[str, ...] = ()
    """a fork: the effects of ONCE and KEYED calls after its savepoint, which it may do again"""


async def run_program(
    program: Bound | bytes,
    *,
    store: Store,
    run_id: str | None = None,
    world: World | None = None,
    registry: Registry | None = None,
    if_exists: IfExists | str = IfExists.RESUME,
    recovery: Recovery | str = Recovery.REUSE,
    lease_s: float = LEASE_S,
    meta: Mapping[str, object] | None = None,
    state: Mapping[str, object] | None = None,
    caused_by: str | None = None,
    abandon: bool = False,
    on_claim: OnClaim = _ignore,
    review: Review = accept,
    within: Within | None = None,
    also: Rows = _ignore,
    poison_after: int | None = None,
) -> RunResult:
    """Runs `function.at(...)`, or the rest of a program from the savepoint of this id, durably under `run_id`, an
    idempotency key (a fresh one by default).

    A run that exists is handled by `if_exists`: `resume` continues it (or returns its stored result), `restart` starts
    it anew, `fail` and `resume_only` refuse what is there or is not. `world` is the host: the program works in a fork;
    `state` is declared state to begin with, by cell name. `meta` (portable) is kept in the run's record. `within` is
    the run that begins this one inside a body of its own, `also` adds rows to the commit that creates the run.
    `poison_after`: as for `resume_program`, where the run is continued.
    Raises `Usage`, `NotPortable`, `Held`, `Conflict`, `Missing`, `NotWritable`, `Corrupt`.
    """
    run_id = f"run-{fresh_bytes(6).hex()}" if run_id is None else run_id
    policy = IfExists(if_exists)
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
        _must_be_entered_by(record, within)
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
    _tell(attempt, on_claim)
    return await _result(store, run_id, await play(attempt), registry)


async def resume_program(
    run_id: str,
    *,
    store: Store,
    world: World | None = None,
    registry: Registry,
    lease_s: float = LEASE_S,
    on_claim: OnClaim = _ignore,
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


async def fork_program(
    run_id: str,
    *,
    store: Store,
    registry: Registry,
    at: int | None = None,
    fork_id: str | None = None,
    world: World | None = None,
    lease_s: float = LEASE_S,
    on_claim: OnClaim = _ignore,
    review: Review = accept,
    enter: bool = True,
) -> RunResult:
    """A new run that starts at savepoint `at` (a step; the newest by default) of another one and runs to its end, or,
    without `enter`, is left interrupted at its beginning.

    It has a lineage of its own: no receipts, so it does again what came after the savepoint; `may_repeat` lists it.
    """
    parent = await get_run(store, run_id)
    _must_be_entered_by(parent, None)
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
        caused_by=f"{run_id}@{step}",
        meta={**(parent.meta if reviewed.meta is None else reviewed.meta), "may_repeat": list(repeat)},
    )
    if await find_run(store, fresh.run_id) is not None:
        raise Conflict(f"run {fresh.run_id} exists already", next="choose another id for the fork")
    attempt = await create(store, fresh, [], savepoint, host=world or World(), registry=registry, lease_s=lease_s)
    attempt.warnings += reviewed.warnings
    _tell(attempt, on_claim)
    played = await (play(attempt) if enter else leave(attempt))
    result = await _result(store, fresh.run_id, played, registry)
    return evolve(result, may_repeat=repeat)


def _tell(attempt: Attempt, on_claim: OnClaim) -> None:
    """A listener that raises ends the attempt before it began: the lock is free for the next one."""
    try:
        on_claim(attempt.record)
    except BaseException:
        attempt.claim.release()
        raise


async def _mark_at(store: Store, run: RunRecord, at: int | None) -> tuple[int, Mark]:
    if run.removed:
        raise Missing(f"run {run.run_id} was removed: it has no savepoints", next="fork another run")
    step = (await read_lineage(store, run.lineage))[0].point_step if at is None else at
    mark = await find_mark(store, run.lineage, step) if step >= 0 else None
    if mark is None:
        known = ", ".join(map(str, sorted(await read_marks(store, run.lineage)))) or "none"
        raise Missing(f"run {run.run_id} has no savepoint at step {step}", next=f"it has: {known}")
    return step, mark


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


def _must_be_entered_by(record: RunRecord, within: Within | None) -> None:
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
    _must_be_entered_by(record, way.within)
    if record.status is RunStatus.COMPLETED:
        return await stored_result(store, record, registry)
    if record.removed:
        raise Conflict(f"run {record.run_id} was removed", next="choose another run id, or if_exists=restart")
    if record.status is RunStatus.CANCELLED:
        raise Conflict(f"run {record.run_id} was cancelled", next="start it anew with if_exists=restart")
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
    )
    attempt.warnings += reviewed.warnings
    _tell(attempt, way.on_claim)
    return await _result(store, record.run_id, await play(attempt), registry)


async def _still_open(store: Store, record: RunRecord, standing: Standing, registry: Registry) -> bool:
    waiting = await open_questions(store, record.lineage, registry.types)
    return any(question.lineage != record.lineage or question.step >= standing.step for question in waiting)


async def _standing_result(store: Store, record: RunRecord, standing: Standing, registry: Registry) -> RunResult:
    played = Played(status=RunStatus.WAITING, step=standing.head.step, warnings=standing.warnings)
    return await _result(store, record.run_id, played, registry)


async def _result(store: Store, run_id: str, played: Played, registry: Registry) -> RunResult:
    questions: tuple[Question, ...] = ()
    if played.status is RunStatus.WAITING:
        record = await get_run(store, run_id)
        questions = tuple(await open_questions(store, record.lineage, registry.types))
    return RunResult(
        run_id=run_id,
        status=played.status,
        value=played.value,
        error=played.error,
        step=played.step,
        questions=questions,
        warnings=played.warnings,
    )


async def stored_result(store: Store, record: RunRecord, registry: Registry) -> RunResult:
    """The result of a completed run, without running anything."""
    row = await store.read(Space.HEAD, record.lineage)
    value = None if record.result is None else await get_value(store, record.result, registry.types)
    step = 0 if row is None else read_head(row).step
    warnings = (f"run {record.run_id} was removed: only its result is left",) if record.removed else ()
    return RunResult(
        run_id=record.run_id, status=record.status, value=value, error=record.error, step=step, replayed=True,
        warnings=warnings,
    )  # fmt: skip


async def find_run(store: Store, run_id: str) -> RunRecord | None:
    """The record of a run, or None. Raises `Usage` for what cannot be an id."""
    row = await store.read(Space.RUN, run_key(run_id))
    return None if row is None else read_run(row)


async def get_run(store: Store, run_id: str) -> RunRecord:
    """Raises `Missing`."""
    record = await find_run(store, run_id)
    if record is None:
        raise Missing(f"there is no run {run_id}", next="savepoint runs lists the known ones")
    return record
