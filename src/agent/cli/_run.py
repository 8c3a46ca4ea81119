"""`run`, `resume` and `fork`: an agent at work in this process, watched, interruptible, and reported."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from attrs import evolve

import agent
from agent import Result
from agent._entries import TYPES
from agent._progress import ignore
from savepoint import Conflict, Missing, NotWritable, RunResult, RunStatus, Usage
from savepoint._ambient import fresh_bytes
from savepoint._errors import SavepointError
from savepoint._events import read_head
from savepoint._fork_program import refuse_removed
from savepoint._inspect import find_run_id
from savepoint._merge_run import Settled, merge_run
from savepoint._questions import open_questions
from savepoint._resumable import OURS, Registry
from savepoint._run import ENDED, IfExists, Recovery, RunRecord
from savepoint._run_result import find_run, get_run, stored_result
from savepoint._sqlite import SqliteStore
from savepoint._store import Space

from ._changes import changes_of
from ._common import Desk
from ._exit import OF_CODE, Exit
from ._input import read_input
from ._lines import Watch
from ._local import Local, directory, host_world, write_local
from ._orphans import note_orphans
from ._output import error_parts
from ._report import Ending
from ._signals import interruptible
from ._start import MODEL, Start, absolute, keep, known, model_of, needs_workspace, performers
from ._target import load_agent


def stopping() -> None:
    """Through `sys.stderr`, which a live display replaces by one that prints above it."""
    print("stopping at a durable place (again: at once)", file=sys.stderr, flush=True)


async def run(
    desk: Desk,
    target: str,
    text: str | None,
    start: Start,
    *,
    run_id: str | None,
    if_exists: IfExists,
    recovery: Recovery,
    abandon: bool,
) -> Exit:
    """Starts a run, or answers or continues the one that has this id. What is wrong is told before a store is made."""
    said = read_input(text)
    local = Local(
        target=target,
        project=Path.cwd(),
        workspace=directory(start.workspace),
        model=absolute(start.model or os.environ.get(MODEL)),
    )
    worker = load_agent(target, local.project)
    local.world(desk.place)
    model_of(worker, local.model)
    if run_id is None or not desk.place.exists():
        needs_workspace(worker, local, merge=start.merge)
    run_id = run_id or f"run-{fresh_bytes(6).hex()}"
    async with desk.opened(create=if_exists is not IfExists.RESUME_ONLY) as store:
        await note_orphans(desk, store, besides=run_id)
        record = await find_run(store, run_id)
        if record is not None and if_exists is not IfExists.RESTART:
            _not_cancelled(record, if_exists)
            local = await known(store, record, evolve(start, target=target))
            await keep(store, record, worker, local)
        elif if_exists is not IfExists.RESUME_ONLY:
            needs_workspace(worker, local, merge=start.merge)
            await write_local(store, run_id, local)
        host, model = local.world(desk.place), model_of(worker, local.model)

        def work(watch: Watch) -> Awaitable[Result]:
            return agent.run(
                worker, said, run_id=run_id, store=store, world=host, model=model, on_event=watch, if_exists=if_exists,
                recovery=recovery, max_turns=start.max_turns, lease_s=start.lease_s, abandon=abandon,
            )  # fmt: skip

        return await _conduct(desk, store, run_id, local, work, merge=start.merge)


async def resume(desk: Desk, run: str, start: Start) -> Exit:
    """Continues a run; a completed one is answered from the store, without its program."""
    async with desk.opened() as store:
        run_id = await find_run_id(store, run)
        await note_orphans(desk, store, besides=run_id)
        return await continued(desk, store, await get_run(store, run_id), start)


async def continued(
    desk: Desk,
    store: SqliteStore,
    record: RunRecord,
    start: Start,
    *,
    poison_after: int | None = None,
    told: Callable[[], None] = stopping,
) -> Exit:
    """One attempt at a run that exists, or its stored answer. `told` is called when a signal comes."""
    _not_cancelled(record, IfExists.RESUME)
    local = await known(store, record, start)
    run_id = record.run_id
    if record.status is RunStatus.COMPLETED:
        return await _conduct(desk, store, run_id, local, lambda _: _stored(store, record), merge=start.merge)
    worker, host, model = await performers(desk, store, record, local)

    def work(watch: Watch) -> Awaitable[Result]:
        return agent.resume(
            run_id, agent=worker, store=store, world=host, model=model, on_event=watch,
            max_turns=start.max_turns, lease_s=start.lease_s, poison_after=poison_after,
        )  # fmt: skip

    return await _conduct(desk, store, run_id, local, work, merge=start.merge, told=told)


async def fork(desk: Desk, run: str, start: Start, *, at: int | None, fork_id: str | None, enter: bool) -> Exit:
    """A new run from a savepoint of another one."""
    async with desk.opened() as store:
        parent = await get_run(store, await find_run_id(store, run))
        refuse_removed(parent)
        await note_orphans(desk, store, besides=parent.run_id)
        local = await known(store, parent, start)
        worker, host, model = await performers(desk, store, parent, local)
        run_id = fork_id or f"{parent.run_id}-fork-{fresh_bytes(3).hex()}"
        if await find_run(store, run_id) is not None:
            raise Conflict(f"run {run_id} exists already", next="choose another id for the fork")
        await write_local(store, run_id, local)

        def work(watch: Watch) -> Awaitable[Result]:
            return agent.fork(
                parent.run_id, agent=worker, store=store, at=at, fork_id=run_id, world=host, model=model,
                on_event=watch if enter or desk.common.json else ignore, lease_s=start.lease_s, enter=enter,
            )  # fmt: skip

        code = await _conduct(desk, store, run_id, local, work, merge=start.merge, entered=enter)
        return Exit.DONE if not enter and code is Exit.FAILED else code


async def _conduct(
    desk: Desk,
    store: SqliteStore,
    run_id: str,
    local: Local,
    work: Callable[[Watch], Awaitable[Result]],
    *,
    merge: bool,
    entered: bool = True,
    told: Callable[[], None] = stopping,
) -> Exit:
    """Runs `work`, watched and interruptible, and tells how the run stands after it."""
    with interruptible(told) as interruption:
        try:
            with desk.report.watching() as watch:
                result = await work(watch)
        except asyncio.CancelledError:
            if not interruption.came:
                raise
            result = await standing(store, run_id)
        except NotWritable:
            if await find_run(store, run_id) is not None:
                desk.output.note(
                    f"run {run_id} stopped; once the store can be written: {desk.report.command('resume', run_id)}"
                )
            raise
    ending = evolve(await _ending(desk, store, result, local), entered=entered)
    if merge and result.status is RunStatus.COMPLETED:
        return await _merged(desk, store, ending)
    return desk.report.ended(ending, interrupted=interruption.came)


def _not_cancelled(record: RunRecord, if_exists: IfExists) -> None:
    """Raises `Conflict`. `fail` has its own words."""
    if record.status is RunStatus.CANCELLED and if_exists is not IfExists.FAIL:
        move = "start it anew: savepoint run ... --if-exists restart"
        raise Conflict(f"run {record.run_id} was {'removed' if record.removed else 'cancelled'}", next=move)


async def _merged(desk: Desk, store: SqliteStore, ending: Ending) -> Exit:
    """A merge that cannot be is told before the result, whose line is the last."""
    run_id = ending.result.run_id
    try:
        if ending.workspace is None:
            raise Usage(f"run {run_id} has no workspace to merge into", next="start it with --workspace DIR")
        await merge_run(store, run_id, host_world(ending.workspace, desk.place))
    except SavepointError as error:
        desk.output.fail(*error_parts(error))
        desk.report.ended(ending, interrupted=False)
        return OF_CODE.get(error.code, Exit.FAILED)
    return desk.report.ended(evolve(ending, merged=True), interrupted=False)


async def _ending(desk: Desk, store: SqliteStore, result: Result, local: Local) -> Ending:
    record = await find_run(store, result.run_id)
    host = local.world(desk.place) if local.workspace is not None and local.workspace.is_dir() else None
    if record is None or host is None:
        return Ending(result=result)
    changes = await changes_of(store, record, host)
    return Ending(result=result, changes=changes, merged=record.settled == Settled.MERGED, workspace=local.workspace)


async def _stored(store: SqliteStore, record: RunRecord) -> Result:
    return _as_result(await stored_result(store, record, Registry(types=TYPES)))


async def standing(store: SqliteStore, run_id: str) -> Result:
    """How a run stands by the store, after this process let go of it."""
    record = await find_run(store, run_id)
    if record is None:
        raise Missing(f"run {run_id} was interrupted before it began", next="start it again")
    if record.status is RunStatus.COMPLETED:
        return evolve(await _stored(store, record), replayed=False)
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
