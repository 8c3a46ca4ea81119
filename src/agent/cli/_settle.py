"""`decide`, `cancel`, `merge`, `discard`, `rm`: what a person settles about a run."""

from pathlib import Path

from agent._link import land_first
from effects._question import VALUED, Choice, Decision, Question, QuestionKind
from savepoint import Corrupt, Foreign, Missing, RunStatus, Types, Usage, World, remove_run
from savepoint._cancel import cancel_run
from savepoint._inspect import find_run_id
from savepoint._merge_run import discard_run, merge_run
from savepoint._questions import every_question, open_questions, record_decision
from savepoint._run import RunRecord
from savepoint._run_result import get_run
from savepoint._sqlite import SqliteStore

from ._common import Desk
from ._exit import Exit
from ._input import read_value
from ._local import directory, host_world, read_local
from ._question import as_json
from ._report import change_lines, changes_json
from ._show import understood
from ._start import must_be_outermost


async def decide(desk: Desk, run: str, question: str, verdict: str, *, value: str | None, note: str) -> Exit:
    """Answers a question; the first answer stands. Says what is open, and what to do next."""
    answer = read_value(value)
    async with desk.opened() as store:
        run_id = await find_run_id(store, run)
        record, local = await get_run(store, run_id), await read_local(store, run_id)
        known = await understood(lambda types: every_question(store, record.lineage, types), local)
        asked = _one(known, question, run_id)
        _check(asked, verdict, given=value is not None, value=answer)
        wanted = Decision(question=asked.id, choice=Choice(verdict), value=answer, note=note)
        decision = await understood(lambda types: record_decision(store, record.lineage, asked, wanted, types), local)
        left = await understood(lambda types: _open(store, record, types), local)
    resume = desk.report.next_of(record)
    if desk.output.json:
        desk.output.emit(
            {
                "run_id": run_id,
                "question": asked.id,
                "verdict": decision.choice.value,
                "open": [as_json(each) for each in left],
                "next": resume if not left else desk.report.command("show", run_id),
            }
        )
    desk.output.note(f"question {asked.id} of run {run_id} is answered: {decision.choice.value}")
    if not desk.output.json:
        desk.report.questions(left, run_id)
    desk.output.note(f"{len(left)} more to answer" if left else f"next: {resume}")
    return Exit.DONE


async def cancel(desk: Desk, run: str) -> Exit:
    """Ends a run that is stopped; asks the owner of one that is running."""
    async with desk.opened() as store:
        run_id = await find_run_id(store, run)
        must_be_outermost(desk, await get_run(store, run_id), "cancel")
        status = await cancel_run(store, run_id)
    if desk.output.json:
        desk.output.emit({"run_id": run_id, "status": status.value, "requested": status is RunStatus.RUNNING})
    if status is RunStatus.RUNNING:
        desk.output.note(f"run {run_id} is running: its process was asked to stop and does so within about a second")
    else:
        desk.output.note(f"run {run_id} is cancelled")
    return Exit.DONE


async def merge(desk: Desk, run: str, *, workspace: Path | None) -> Exit:
    """Brings a run's changes into the host directory."""
    async with desk.opened() as store:
        run_id = await find_run_id(store, run)
        local, record = await read_local(store, run_id), await get_run(store, run_id)
        must_be_outermost(desk, record, "merge")
        if record.base is None and not record.removed:
            raise Usage(f"run {run_id} has no workspace: nothing to merge", next="start one with --workspace DIR")
        place = directory(workspace) or (None if local is None else local.workspace)
        if place is None and not record.removed:
            raise Usage(f"the workspace of run {run_id} is not known here", next="name it: --workspace DIR")
        changes = await merge_run(store, run_id, World() if place is None else host_world(place, desk.place))
    if desk.output.json:
        settled = {"run_id": run_id, "settled": "merged", "workspace": str(place)}
        desk.output.emit({**settled, "changes": changes_json(changes)})
    else:
        for line in change_lines(changes):
            desk.output.result(line)
    desk.output.note(f"run {run_id} is merged into {place}")
    return Exit.DONE


async def discard(desk: Desk, run: str) -> Exit:
    """Drops a run's changes."""
    async with desk.opened() as store:
        run_id = await find_run_id(store, run)
        must_be_outermost(desk, await get_run(store, run_id), "discard")
        await discard_run(store, run_id)
    if desk.output.json:
        desk.output.emit({"run_id": run_id, "settled": "discarded"})
    desk.output.note(f"what run {run_id} changed is discarded; the host is as it was")
    return Exit.DONE


async def remove(desk: Desk, run: str, *, abandon: bool) -> Exit:
    """Removes a run; its id stays taken."""
    async with desk.opened() as store:
        run_id = await find_run_id(store, run)
        record, local = await get_run(store, run_id), await read_local(store, run_id)
        if record.status is RunStatus.COMPLETED:  # what it did in its session must not go with it
            try:
                await understood(lambda types: land_first(store, record, types), local)
            except (Corrupt, Foreign, Missing) as error:
                # While it is there, no other run of its session begins.
                if not abandon:
                    move = f"repair the store; or give up what it did in its session: savepoint rm {run_id} --abandon"
                    raise (Foreign if isinstance(error, Foreign) else Corrupt)(error.message, next=move) from error
        await remove_run(store, run_id, abandon=abandon)
        removed = await get_run(store, run_id)
    if desk.output.json:
        desk.output.emit({"run_id": run_id, "status": removed.status.value, "removed": True})
    left = "only its result is left" if removed.status is RunStatus.COMPLETED else "its id starts only with a restart"
    desk.output.note(f"run {run_id} is removed: {left}")
    return Exit.DONE


def _one(known: list[Question], prefix: str, run_id: str) -> Question:
    """The question whose id is `prefix`, or starts with it."""
    found = [each for each in known if each.id == prefix] or [each for each in known if each.id.startswith(prefix)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(each.id for each in found or known) or "none"
    if found:
        raise Usage(f"{prefix} is the beginning of several questions: {listed}", next="write more of the id")
    raise Missing(f"run {run_id} has no question {prefix}", next=f"its questions: {listed}")


def _check(question: Question, verdict: str, *, given: bool, value: object) -> None:
    """Whether the verdict and its value fit together, as far as the command line can tell."""
    if verdict not in {choice.value for choice in question.verdicts}:
        offered = ", ".join(question.verdicts)
        raise Usage(f"question {question.id} cannot be answered with {verdict!r}", next=f"one of: {offered}")
    if given and Choice(verdict) not in VALUED:
        raise Usage(f"{verdict} takes no --value", next="leave it out, or use --note for words")
    match Choice(verdict):
        case Choice.PERFORMED if not given and question.kind is QuestionKind.IN_DOUBT:
            raise Usage(
                "performed needs the result that the call had", next="--value JSON; --value null where it had none"
            )
        case Choice.EDIT if not isinstance(value, dict):
            raise Usage("edit needs the new arguments", next="""--value '{"name": ...}' with all arguments""")
        case Choice.ANSWER if not given:
            raise Usage("answer needs the answer", next="--value JSON")
        case Choice.GRANT if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise Usage("grant needs how many more", next="--value N, a number from 1")
        case _:
            pass


async def _open(store: SqliteStore, record: RunRecord, types: Types) -> list[Question]:
    return await open_questions(store, record.lineage, types)
