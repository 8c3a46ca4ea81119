"""How a run stands, told at the end of a command: its output, what it waits for, what it changed, what to do next."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import field, frozen
from rich.box import HORIZONTALS
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agent import Result
from effects._question import Question
from savepoint import RunStatus
from savepoint._run import RunRecord
from savepoint._system import Change, ChangeKind

from ._exit import OF_STATUS, Exit
from ._lines import Watch, json_lines, plain_lines
from ._output import Output, plain, printable
from ._question import answers, as_json, command, facts, lines, title

_LISTED = 20
"""Changed paths that a person is shown."""
_SIGNS = {ChangeKind.ADDED: ("+", "green"), ChangeKind.CHANGED: ("~", "yellow"), ChangeKind.REMOVED: ("-", "red")}

Changes = Mapping[str, Sequence[Change]]


@frozen(kw_only=True)
class Ending:
    """What is told."""

    result: Result
    changes: Changes = field(factory=dict[str, Sequence[Change]])
    """of the run's world, by system"""
    merged: bool = False
    entered: bool = True
    """False: a fork that was only made"""
    workspace: Path | None = None
    session: str | None = None
    """the one that the run belongs to"""


@frozen(kw_only=True)
class Report:
    """Tells of runs in the form that the command asked for."""

    output: Output
    store: Path | None = None
    """as given on the command line, for the command lines that it suggests"""

    @contextmanager
    def watching(self) -> Generator[Watch]:
        """The listener of a run."""
        if self.output.json:
            listener = json_lines(self.output)
        elif self.output.err.isatty():
            from ._live import live  # noqa: PLC0415  a third of the start, and only terminals need it

            listener = live(self._console())
        else:
            listener = plain_lines(self.output)
        with listener as watch:
            yield watch

    def ended(self, ending: Ending, *, interrupted: bool) -> Exit:
        """Tells, and returns the exit code. `interrupted`: by a signal."""
        result = ending.result
        if self.output.json:
            self.output.emit(_document(ending))
        elif result.output is not None:
            self.output.result(result.output)
        for warning in result.warnings:
            self.output.note(f"warning: {warning}")
        self._say(ending)
        standing = {RunStatus.INTERRUPTED, RunStatus.WAITING, RunStatus.RUNNING}
        return Exit.INTERRUPTED if interrupted and result.status in standing else OF_STATUS[result.status]

    def command(self, *words: str) -> str:
        return command(*words, store=self.store)

    def next_of(self, record: RunRecord) -> str:
        """How a stopped run goes on. One of a program without an agent has no command: its program calls it."""
        if "agent" in record.meta:
            return self.command("resume", record.parent or record.run_id)
        return f"start its program ({printable(record.program)}) again, with the same run id"

    def questions(self, questions: Iterable[Question], run_id: str) -> None:
        """On stderr: the answer to what a run waits for is another command's."""
        for question in questions:
            if self.output.err.isatty():
                self._console().print(self._panel(question, run_id))
            else:
                for line in lines(question, run_id, self.store):
                    self.output.note(line)

    def _say(self, ending: Ending) -> None:
        result, note = ending.result, self.output.note
        resume = self.command("resume", result.run_id)
        match result.status:
            case RunStatus.COMPLETED:
                replayed = " (answered from the store: nothing was run)"
                note(f"run {result.run_id} completed at step {result.step}{replayed if result.replayed else ''}")
            case RunStatus.WAITING:
                if not self.output.json:
                    self.questions(result.questions, result.run_id)
                note(f"run {result.run_id} waits at step {result.step}; when all is answered: {resume}")
            case RunStatus.INTERRUPTED if not ending.entered:
                note(f"run {result.run_id} is made and not started; start it with: {resume}")
            case RunStatus.FAILED | RunStatus.INTERRUPTED:
                why = "" if result.error is None else f": {result.error.kind}: {result.error.message}"
                note(f"run {result.run_id} {_WORDS[result.status]} at step {result.step}{why}")
                note(f"go on with: {resume}")
            case RunStatus.CANCELLED:
                note(f"run {result.run_id} was cancelled at step {result.step}")
            case RunStatus.RUNNING:
                note(f"run {result.run_id} is still marked running; look with: {self.command('show', result.run_id)}")
        if result.may_repeat:
            note(f"the fork may do again what its origin did after that step: {', '.join(result.may_repeat)}")
        self._say_changes(ending)

    def _say_changes(self, ending: Ending) -> None:
        if not ending.changes or ending.result.replayed:
            return
        place = "" if ending.workspace is None else f" {ending.workspace}"
        self.output.note(f"{'merged into' if ending.merged else 'changed, not yet in'}{place}:")
        for line in change_lines(ending.changes):
            self.output.note(line)
        if not ending.merged and ending.result.status is RunStatus.COMPLETED:
            run_id = ending.result.run_id
            self.output.note(f"keep: {self.command('merge', run_id)}    drop: {self.command('discard', run_id)}")

    def _console(self) -> Console:
        return Console(file=self.output.err, highlight=False, soft_wrap=False)

    def _panel(self, question: Question, run_id: str) -> Panel:
        known = Table.grid(padding=(0, 2))
        for name, text in facts(question):
            known.add_row(Text(name, style="dim"), Text(text))
        parts: list[Table | Text] = [known, Text("\nanswer with one of:", style="dim")]
        for meaning, line in answers(question, run_id, self.store):
            # Whole command lines without a frame at their sides: they are copied.
            parts += [Text(f"  {meaning}"), Text(f"    {line}", style="bold cyan")]
        heading = Text(title(question), style="bold yellow")
        return Panel(
            Group(*parts), title=heading, title_align="left", box=HORIZONTALS, border_style="yellow", padding=(0, 0)
        )


_WORDS = {RunStatus.FAILED: "failed", RunStatus.INTERRUPTED: "was interrupted"}


def change_lines(changes: Changes) -> Iterator[str]:
    """`+ path`, `~ path`, `- path`; the first ones only."""
    listed = [change for group in changes.values() for change in group]
    for change in listed[:_LISTED]:
        yield f"  {_SIGNS[change.kind][0]} {printable(change.path)}"
    if len(listed) > _LISTED:
        yield f"  and {len(listed) - _LISTED} more"


def changes_json(changes: Changes) -> list[dict[str, object]]:
    return [
        {"system": system, "kind": change.kind.value, "path": change.path}
        for system, group in changes.items()
        for change in group
    ]


def _document(ending: Ending) -> dict[str, object]:
    result = ending.result
    document: dict[str, object] = {
        "event": "ended",
        "run_id": result.run_id,
        "status": result.status.value,
        "output": plain(result.output),
        "step": result.step,
        "questions": [as_json(question) for question in result.questions],
        "session": ending.session,
        "replayed": result.replayed,
        "input_ignored": result.input_ignored,
        "warnings": list(result.warnings),
    }
    if result.error is not None:
        move = f"savepoint resume {result.run_id}"
        message = f"{result.error.kind}: {result.error.message}"
        document["error"] = {"code": result.status.value, "message": message, "next": move}
    if result.may_repeat:
        document["may_repeat"] = list(result.may_repeat)
    if ending.workspace is not None:
        document["changes"], document["merged"] = changes_json(ending.changes), ending.merged
    return document
