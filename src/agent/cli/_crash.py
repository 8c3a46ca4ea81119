"""`savepoint crash`: kills a program everywhere, shows how far it is, tells what it found."""

import asyncio
import json
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from attrs import frozen
from rich.console import Console
from rich.text import Text

from savepoint import NotWritable, Usage
from savepoint.crash import Schedule, Target
from savepoint.crash._budget import seconds
from savepoint.crash._campaign import Campaign
from savepoint.crash._command import CommandTarget
from savepoint.crash._judge import Rules
from savepoint.crash._junit import junit
from savepoint.crash._report import Kills, Report
from savepoint.crash._scratch import Scratch
from savepoint.crash._text import Tone, lines, text
from savepoint.crash._words import split_words

from ._common import Common
from ._crash_live import shown
from ._exit import Exit
from ._output import Output, printable
from ._signals import interruptible

KillsWord = Literal["single", "double", "storm"]
_STYLES = {Tone.GOOD: "bold green", Tone.BAD: "bold red", Tone.QUIET: "dim"}


@frozen(kw_only=True)
class Wish:
    """The words of one command."""

    target: str | None
    text: str | None
    start: str | None
    resume: str | None
    ledger: str | None
    kills: KillsWord
    budget: str
    only: str | None
    first: bool
    junit: Path | None
    report: Path | None
    parked_code: int
    allow_stdout: bool
    compare: Sequence[str]
    copies: Sequence[str]
    timeout: str
    jobs: int | None

    @property
    def rules(self) -> Rules:
        return Rules(parked_code=self.parked_code, allow_stdout=self.allow_stdout)


async def crash(wish: Wish, common: Common, output: Output) -> int:
    """Raises `Usage` before anything is killed."""
    if common.store is not None:
        raise Usage("crash has no store: each run has its own directory", next="leave out --store")
    budget_s = seconds(wish.budget, option="--budget")
    only = None if wish.only is None else Schedule.parse(wish.only)
    if only is not None and not only.kills:
        raise Usage(f"--only {wish.only}: nothing dies", next="give a schedule that the report prints")
    jobs = (os.cpu_count() or 1) if wish.jobs is None else wish.jobs
    if jobs < 1:
        raise Usage(f"--jobs {jobs}: nobody would work", next="give 1 or more")
    for path in (wish.junit, wish.report):
        if path is not None and not path.absolute().parent.is_dir():
            raise Usage(f"{path}: there is no directory {path.absolute().parent}", next="make it first")
    target, command = _target(wish)
    with Scratch() as scratch, _closing(target):
        campaign = Campaign(
            workers=[target] * jobs,
            place=scratch.place,
            command=command,
            kills=Kills(wish.kills),
            only=only,
            budget_s=budget_s,
            first=wish.first,
        )
        report = await _lived(campaign, output)
    _tell(report, wish, output)
    if report.interrupted:
        return Exit.INTERRUPTED
    return Exit.DONE if report.passed else Exit.FAILED


def _target(wish: Wish) -> tuple[Target, str]:
    """The target, and the command line that tries it."""
    if wish.ledger is None:
        move = "name the file that the program's own outside writes, one line an effect: --ledger FILE"
        raise Usage("without a ledger nobody knows what happened", next=move)
    timeout_s = seconds(wish.timeout, option="--timeout")
    if wish.target is None:
        if wish.start is None:
            raise Usage("nothing to kill", next="give --start CMD, or TARGET as in savepoint run")
        found = CommandTarget(
            start=split_words(wish.start, option="--start"),
            resume=split_words(wish.resume, option="--resume") if wish.resume is not None else (),
            ledger=wish.ledger,
            copies=wish.copies,
            compares=wish.compare,
            rules=wish.rules,
            timeout_s=timeout_s,
        )
        return found, found.command
    if wish.start is not None or wish.resume is not None:
        raise Usage("TARGET and --start are two programs", next="give one of them")
    return _agent_target(wish, wish.target, wish.ledger, timeout_s)


def _agent_target(wish: Wish, target: str, ledger: str, timeout_s: float) -> tuple[Target, str]:
    """An agent of ours. It keeps processes: see `_closing`."""
    from ._crash_target import agent_target  # noqa: PLC0415  the agent's side is loaded where an agent is the target

    found = agent_target(
        target,
        wish.text,
        ledger=ledger,
        rules=wish.rules,
        copies=wish.copies,
        compares=wish.compare,
        timeout_s=timeout_s,
    )
    return found, found.command


@runtime_checkable
class _Closing(Protocol):
    def close(self) -> None: ...


@contextmanager
def _closing(target: Target) -> Generator[None]:
    """In the end the processes that the target keeps are ended, where it keeps some."""
    try:
        yield
    finally:
        if isinstance(target, _Closing):
            target.close()


async def _lived(campaign: Campaign, output: Output) -> Report:
    """The campaign in a thread. The first signal ends it early: its processes die, and it tells what it has."""
    work = asyncio.ensure_future(asyncio.to_thread(campaign.run))
    with interruptible(campaign.stop), shown(campaign.progress, output):
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # A process that a worker was about to start is ended too: it marks its own before it lives.
            while not work.done():
                await asyncio.wait([work], timeout=0.05)
                campaign.stop()
            work.exception()  # a process that was ended while it was looked at: not of interest now
            return campaign.report()


# -- telling ----------------------------------------------------------------------------------------------------------


def _tell(report: Report, wish: Wish, output: Output) -> None:
    document = report.document()
    if output.json:
        output.emit(document)
    elif output.out.isatty():
        _coloured(report, output)
    else:
        output.result(text(report))
    if wish.junit is not None:
        _write(wish.junit, lambda: junit(report))
    if wish.report is not None:
        as_json = wish.report.suffix == ".json"
        _write(wish.report, lambda: json.dumps(document, indent=2) + "\n" if as_json else text(report) + "\n")


def _coloured(report: Report, output: Output) -> None:
    console = Console(file=output.out, highlight=False)
    for line in lines(report):
        # Whole lines, whatever the width: those to copy must not be broken.
        console.print(Text(printable(line.text), style=_STYLES.get(line.tone, "")), soft_wrap=True)


def _write(path: Path, made: Callable[[], str]) -> None:
    try:
        path.write_text(made(), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise NotWritable(f"{path}: {error.strerror}", next="give another path; the report itself is above") from error
