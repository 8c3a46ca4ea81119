"""`run`, `resume` and `fork`: an agent at work in this process, watched, interruptible, and reported."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from attrs import evolve

import agent
from agent import Result
from agent._progress import ignore
from savepoint import Conflict, NotWritable, RunStatus, Usage
from savepoint._ambient import fresh_bytes
from savepoint._errors import SavepointError
from savepoint._fork_program import refuse_removed
from savepoint._inspect import find_run_id
from savepoint._merge_run import Settled, merge_run
from savepoint._run import IfExists, RunRecord
from savepoint._run_result import find_run, get_run
from savepoint._sqlite import SqliteStore

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
from ._standing import answered, standing
from ._start import (
    MODEL,
    Begin,
    Start,
    absolute,
    keep,
    known,
    model_of,
    must_be_outermost,
    must_have_savepoint,
    must_know_tools,
    needs_workspace,
    performers,
)
from ._target import load_agent
from ._ties import session_of


def stopping() -> None:
    """Through `sys.stderr`, which a live display replaces by one that prints above it."""
    print("stopping at a durable place (again: at once)", file=sys.stderr, flush=True)


First = Callable[[SqliteStore, Local, str], Awaitable[tuple[str, ...]]]
"""What is done before a run, told how it starts and its id; returns warnings."""


async def run(desk: Desk, target: str, text: str | None, start: Start, begin: Begin, first: First | None) -> Exit:
    """Starts a run, or answers or continues the one that has this id. What is wrong is told before a store is made."""
    said = read_input(text)
    if_exists = begin.if_exists
    local = Local(
        target=target,
        project=Path.cwd(),
        workspace=directory(start.workspace),
        model=absolute(start.model or os.environ.get(MODEL)),
    )
    worker = load_agent(target, local.project)
    local.world(desk.place)
    model_of(worker, local.model)
    must_know_tools(worker, start)
    if begin.run_id is None or not desk.place.exists():
        needs_workspace(worker, local, merge=start.merge)
    run_id = begin.run_id or f"run-{fresh_bytes(6).hex()}"
    async with desk.opened(create=begin.makes_a_store) as store:
        warnings = () if first is None else await first(store, local, run_id)
        await note_orphans(desk, store, besides=run_id)
        record = await find_run(store, run_id)
        if record is not None:
            must_be_outermost(desk, record, "resume")
        if record is not None and if_exists is not IfExists.RESTART:
            _not_cancelled(record, if_exists)
            local = await known(store, record, evolve(start, target=target))
            await keep(store, record, worker, local)
        elif if_exists is not IfExists.RESUME_ONLY:
            needs_workspace(worker, local, merge=start.merge)
            if begin.resume_from is not None:
                await must_have_savepoint(store, begin.resume_from)
            await write_local(store, run_id, local)
        host, model = local.world(desk.place), model_of(worker, local.model)

        async def work(watch: Watch) -> Result:
            result = await agent.run(
                worker, said, run_id=run_id, store=store, world=host, model=model, on_event=watch, if_run_exists=if_exists,
                session_id=begin.session_id, resume_from=begin.resume_from, delete_on_success=begin.delete_on_success,
                max_turns=start.max_turns, allowed_tools=start.allowed_tools, read_only=start.read_only,
                recovery=begin.recovery, lease_s=start.lease_s, abandon=begin.abandon,
            )  # fmt: skip
            return evolve(result, warnings=(*warnings, *result.warnings))

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
    must_be_outermost(desk, record, "resume")
    _not_cancelled(record, IfExists.RESUME)
    local = await known(store, record, start)
    run_id = record.run_id
    if record.status is RunStatus.COMPLETED:
        return await _conduct(desk, store, run_id, local, lambda _: answered(store, record, local), merge=start.merge)
    worker, host, model = await performers(desk, store, record, local)

    def work(watch: Watch) -> Awaitable[Result]:
        return agent.resume(
            run_id, agent=worker, store=store, world=host, model=model, on_event=watch, strict=start.strict,
            max_turns=start.max_turns, allowed_tools=start.allowed_tools, read_only=start.read_only,
            lease_s=start.lease_s, poison_after=poison_after,
        )  # fmt: skip

    return await _conduct(desk, store, run_id, local, work, merge=start.merge, told=told)


async def fork(desk: Desk, run: str, start: Start, *, at: int | None, fork_id: str | None, enter: bool) -> Exit:
    """A new run from a savepoint of another one."""
    async with desk.opened() as store:
        parent = await get_run(store, await find_run_id(store, run))
        refuse_removed(parent)
        must_be_outermost(desk, parent, "fork")
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
    ending = Ending(result=result, session=None if record is None else session_of(record))
    host = local.world(desk.place) if local.workspace is not None and local.workspace.is_dir() else None
    if record is None or host is None:
        return ending
    changes = await changes_of(store, record, host)
    return evolve(ending, changes=changes, merged=record.settled == Settled.MERGED, workspace=local.workspace)
