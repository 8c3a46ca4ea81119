"""`resume --all`: every orphaned run that this command line started goes on, as `resume RUN` would have it."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from attrs import define, evolve, field, frozen

from agent import Result, Resumed
from agent._recovery import BACKOFF_S, POISON_AFTER, TRIES, Work, check_recovery, must_be_left, recover
from savepoint import RunStatus, SavepointError, Usage
from savepoint._orphans import survey_orphans
from savepoint._run import RunRecord
from savepoint._run_result import get_run
from savepoint._sqlite import SqliteStore

from ._common import Desk
from ._exit import OF_CODE, Exit
from ._local import Local, read_local
from ._orphans import lost
from ._output import error_parts, printable
from ._run import First, continued, stopping
from ._standing import standing
from ._start import Start
from ._target import BUILT_IN


@frozen(kw_only=True)
class All:
    """The options that only `--all` has."""

    tries: int = TRIES
    poison_after: int = POISON_AFTER

    def __attrs_post_init__(self) -> None:
        """Raises `Usage` for numbers that mean nothing."""
        check_recovery(self.tries, BACKOFF_S, self.poison_after)


class Interrupted(BaseException):
    """A signal came: no other run is begun."""


@define(kw_only=True, eq=False)
class Shift:
    """One command at work on one run after the other."""

    desk: Desk
    store: SqliteStore
    start: Start
    options: All
    codes: dict[str, Exit] = field(factory=dict[str, Exit])
    """run id -> what `resume RUN` would end with"""
    tried: dict[str, int] = field(factory=dict[str, int])
    """run id -> attempts"""
    project: Path | None = None
    """of the modules that are imported"""

    def work(self, run_id: str, local: Local) -> Work:
        async def attempt(tried: int) -> Result:
            self.codes.pop(run_id, None)
            self.tried[run_id] = tried
            await must_be_left(self.store, run_id, tried)
            self._same_project(run_id, local)
            interrupted: list[bool] = []

            def told() -> None:
                interrupted.append(True)
                stopping()

            record = await get_run(self.store, run_id)
            self.codes[run_id] = await continued(
                self.desk, self.store, record, self.start, poison_after=self.options.poison_after, told=told
            )
            if interrupted:
                raise Interrupted
            return await standing(self.store, run_id)

        return attempt

    def _same_project(self, run_id: str, local: Local) -> None:
        """Modules stay imported: a module of another project could be answered by one of the same name here."""
        if local.target == BUILT_IN:
            return
        if self.project not in {None, local.project}:
            raise Usage(
                f"run {run_id} is of the project {local.project}, and modules of {self.project} are loaded",
                next=self.desk.report.command("resume", run_id),
            )
        self.project = local.project


async def resume_all(desk: Desk, start: Start, options: All) -> Exit:
    """Continues the orphaned runs, one after the other; what another program started is named and left alone."""
    async with desk.opened() as store:
        found, damaged = await survey_orphans(store)
        if found:
            desk.output.note(lost([record.run_id for record in found]))
        shift = Shift(desk=desk, store=store, start=start, options=options)
        works: dict[str, Work] = {}
        skipped = [Resumed(run_id=run_id, error=error) for run_id, error in damaged.items()]
        for record in found:
            local = await read_local(store, record.run_id)
            if local is not None and "agent" in record.meta:
                works[record.run_id] = shift.work(record.run_id, local)
            else:
                skipped.append(Resumed(run_id=record.run_id, error=_unknown(desk, record)))
        try:
            ended = await recover(works, tries=options.tries, backoff_s=BACKOFF_S)
        except Interrupted:
            ended = [
                Resumed(run_id=run_id, result=await standing(store, run_id), tries=shift.tried[run_id])
                for run_id in shift.codes
            ]
            skipped, shift.codes[""] = [], Exit.INTERRUPTED
        _tell(desk, [*ended, *skipped])
        errors = [each.error for each in (*ended, *skipped) if each.error is not None]
        codes = [OF_CODE.get(error.code, Exit.FAILED) for error in errors if not isinstance(error, _NotOurs)]
        return worst([*shift.codes.values(), *codes])


def continuing(desk: Desk) -> First:
    """What `run --auto-resume` does first: the orphans of its target go on, each on its own workspace and model.

    All that they tell goes to stderr: stdout is the new run's.
    """
    aside = evolve(desk, output=evolve(desk.output, json=False, out=desk.output.err))

    async def first(store: SqliteStore, local: Local, run_id: str) -> tuple[str, ...]:
        found, _ = await survey_orphans(store)
        shift = Shift(desk=aside, store=store, start=Start(), options=All())
        works: dict[str, Work] = {}
        for record in found:
            theirs = await read_local(store, record.run_id)
            if theirs is not None and record.run_id != run_id and theirs.same_target(local):
                works[record.run_id] = shift.work(record.run_id, theirs)
        try:
            ended = await recover(works, tries=TRIES, backoff_s=BACKOFF_S)
        except Interrupted:
            aside.output.note(f"run {run_id} was not begun")
            raise asyncio.CancelledError from None
        return tuple(
            f"run {each.run_id} lost its process and is {each.error if each.result is None else each.result.status}"
            for each in ended
            if each.result is None or each.result.status is not RunStatus.COMPLETED
        )

    return first


class _NotOurs(Usage):
    """The run was not started by this command line: that it goes on was not asked of it."""


def _unknown(desk: Desk, record: RunRecord) -> SavepointError:
    if "agent" not in record.meta:
        return _NotOurs(f"run {record.run_id} is of a program, not of an agent", next=desk.report.next_of(record))
    return _NotOurs(
        f"run {record.run_id} was not started by this command line, so its agent is not known",
        next=f"{desk.report.command('resume', record.run_id)} --target module:attribute",
    )


def worst(codes: Iterable[Exit]) -> Exit:
    """The one code of several runs: interrupted, else failed, else waiting, else the others, else done."""
    order = (Exit.INTERRUPTED, Exit.FAILED, Exit.WAITING, Exit.HELD, *sorted(Exit, reverse=True))
    return min(codes, key=order.index, default=Exit.DONE)


def _tell(desk: Desk, ended: list[Resumed]) -> None:
    """The summary: with `--json` one more object, the last one."""
    if desk.output.json:
        desk.output.emit({"event": "summary", "runs": [_document(each) for each in ended]})
    if not ended:
        desk.output.note("no run has lost its process")
        return
    counted = Counter(_word(each) for each in ended)
    desk.output.note(f"of {len(ended)}: {', '.join(f'{count} {word}' for word, count in counted.items())}")
    for each in ended:
        if each.error is not None:
            _, message, move = error_parts(each.error)
            desk.output.note(f"  {_word(each)}: {printable(message)}{f' (next: {move})' if move else ''}")


def _word(resumed: Resumed) -> str:
    if resumed.result is not None:
        return resumed.result.status.value
    if resumed.tries == 0:
        return "skipped"
    return "held elsewhere" if resumed.error is not None and resumed.error.code == "held" else "not continued"


def _document(resumed: Resumed) -> Mapping[str, object]:
    document: dict[str, object] = {
        "run_id": resumed.run_id,
        "status": None if resumed.result is None else resumed.result.status.value,
        "tries": resumed.tries,
    }
    if resumed.error is not None:
        code, message, move = error_parts(resumed.error)
        document["error"] = {"code": code, "message": message, "next": move}
    return document
