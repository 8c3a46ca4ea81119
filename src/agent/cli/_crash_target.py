"""An agent as a target of the crash rig: each run in a directory of its own, questions answered with the truth."""

import os
import shlex
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from attrs import define, field, frozen

from savepoint import Usage
from savepoint.crash import ForkServer, History, Kill, Life, LifeFailed, Promise, Reply, Verdict, Violation, violations
from savepoint.crash import _observe as observe
from savepoint.crash._given import Given, beginning
from savepoint.crash._judge import FAILURES, Ran, Saw, judge, reject
from savepoint.crash._ledger import LedgerFault, read_ledger
from savepoint.crash._room import fingerprint

from ._crash_life import PROJECT, TARGET
from ._crash_truth import Known
from ._input import read_input

LIFE = "agent.cli._crash_life:live"


@frozen(kw_only=True)
class SawAgent:
    """One run of an agent: what its outside wrote, and what its store says."""

    outside: Saw
    inside: History
    error: str = ""
    """of the last process that failed"""


@define(kw_only=True)
class AgentTarget(Given):
    """The agent `target`, given `text`. Its tools work in the run's directory, where `ledger` lies too; its workspace
    begins with the `copies` as well.
    """

    target: str
    text: str
    given: Sequence[str] = ()
    """TARGET and INPUT as they were given"""
    _known: Mapping[str, Known] = field(factory=dict[str, Known], init=False)
    _servers: SimpleQueue[ForkServer] = field(factory=SimpleQueue[ForkServer], init=False)
    _started: list[ForkServer] = field(factory=list[ForkServer], init=False)

    @property
    def name(self) -> str:
        return self.target

    @property
    def command(self) -> str:
        """The command line that tries this target."""
        return shlex.join(["savepoint", "crash", *self.given, *self.words])

    @property
    def variants(self) -> Sequence[Mapping[str, Any]]:
        """Twice the same: two unkilled runs that differ say that the agent is not deterministic."""
        return ({}, {})

    def close(self) -> None:
        """Ends its processes."""
        while self._started:
            self._started.pop().__exit__()

    # -- one run ------------------------------------------------------------------------------------------------------

    def live(self, place: Path, past: Sequence[Life], kill: Kill | None, setting: Mapping[str, Any]) -> Life:
        if not past:
            self._prepare(place)
        request = {
            "place": os.fspath(place),
            "index": len(past),
            "ledger": self.ledger,
            "text": self.text,
            "timeout_s": self.timeout_s,
            "known": {call: {"lines": list(each.lines), "result": each.result} for call, each in self._known.items()},
        }
        with self._server() as server:
            reply = self._attempt(server, request, kill)
        if not self._known and "known" in reply.report:
            self._known = {call: Known(**each) for call, each in reply.report["known"].items()}
        ran = self._ran(place, len(past), reply)
        return Life(
            killed=reply.killed,
            done=_is_done([*(each.seen["ran"] for each in past), ran], reply),
            arrivals=reply.arrivals,
            lasting=reply.lasting,
            seen={
                **reply.report,
                "ran": ran,
                "host": past[0].seen["host"] if past else fingerprint(place / "workspace"),
                "parked": reply.report.get("status") == "waiting" and not reply.report["answered"],
                "where": "" if kill is None else f"at {kill}",
            },
        )

    def _attempt(self, server: ForkServer, request: Mapping[str, Any], kill: Kill | None) -> Reply:
        try:
            return server.attempt(request, kill)
        except LifeFailed as failed:
            cause = str(failed).strip().splitlines()[-1]
            raise Usage(f"{self.target} cannot be lived: {cause}", next="try it with: savepoint run") from failed

    @contextmanager
    def _server(self) -> Generator[ForkServer]:
        try:
            server = self._servers.get_nowait()
        except Empty:
            told = {TARGET: self.target, PROJECT: os.fspath(self.here)}
            server = ForkServer(LIFE, path=[self.here], env=told)
            self._started.append(server)
        try:
            yield server
        finally:
            self._servers.put(server)

    def _prepare(self, place: Path) -> None:
        for name in ("work", "out", "workspace"):
            (place / name).mkdir(mode=0o700)
        for name in ("work", "workspace"):
            self.copy_into(place / name)

    def _ran(self, place: Path, index: int, reply: Reply) -> Ran:
        ledger, fault = b"", ""
        try:
            ledger = read_ledger(place / "work" / self.ledger)
        except LedgerFault as error:
            fault = str(error)
        status, error = reply.report.get("status", ""), reply.report.get("error") or ""
        return Ran(
            code={"completed": 0, "waiting": self.rules.parked_code}.get(status, 1),
            killed=reply.killed,
            timed_out=reply.timed_out,
            ledger=ledger,
            ledger_fault=fault,
            printed=beginning(place / "out" / f"{index}.stdout"),
            children=tuple(reply.children),
            last_words=": ".join([*filter(None, [status if status != "completed" else "", error])]),
        )

    def history(self, place: Path, lives: Sequence[Life]) -> SawAgent:
        same = fingerprint(place / "workspace") == lives[0].seen["host"]
        return SawAgent(
            outside=Saw(
                processes=tuple(each.seen["ran"] for each in lives),
                compared=self.compared(place / "work"),
            ),
            inside=History(
                lives=[observe.lived(each.seen, killed=each.killed) for each in lives],
                ledger=(),
                ended=observe.ended(lives[-1].seen.get("ended")),
                host="" if same else "the workspace that it was given is not as it was",
            ),
            error=lives[-1].seen["ran"].last_words,
        )

    # -- judging ------------------------------------------------------------------------------------------------------

    def reject(self, references: Sequence[SawAgent]) -> list[Violation]:
        """Why nothing can be shown of this agent."""
        first, *others = references
        if found := reject([each.outside for each in references], self.rules):
            return found
        if first.inside.ended is None:
            return [Violation(Verdict.FAILS, f"an unkilled run does not end: {first.error}")]
        for other in others:
            if other.inside.ended != first.inside.ended and (differs := _difference(first.inside, other.inside)):
                return [Violation(Verdict.NOT_DETERMINISTIC, f"two unkilled runs differ in {differs}")]
        return []

    def judge(self, history: SawAgent, references: Sequence[SawAgent]) -> list[Violation]:
        found = judge(history.outside, references[0].outside, self.rules)
        if any(each.verdict is Verdict.STUCK for each in found):
            return found
        return [*found, *violations(history.inside, [each.inside for each in references], Promise())]


def agent_target(target: str, text: str | None, **how: Any) -> AgentTarget:
    """The target that `savepoint crash TARGET INPUT` names. Raises `Usage`, `Missing`."""
    given = [target] if text is None else [target, text]
    return AgentTarget(target=target, text=read_input(text), given=given, **how)


def _is_done(ran: Sequence[Ran], reply: Reply) -> bool:
    """Whether nobody would start another process: it ended, or waits for what nobody can answer, or fails again."""
    status, recent = reply.report.get("status"), ran[-FAILURES:]
    if ran[-1].killed or status == "completed":
        return not ran[-1].killed
    if ran[-1].timed_out:
        return True
    if status == "waiting":
        return reply.report["was"] == "waiting" and not reply.report["answered"]
    return len(recent) == FAILURES and not any(each.killed or each.code == 0 for each in recent)


def _difference(one: History, other: History) -> str:
    """What differs between two unkilled runs that ended, in words. Receipts have other keys in each."""
    mine, theirs = one.ended, other.ended
    if mine is None or theirs is None:
        return "how they end"
    names = ("value", "world", "points", "ids")
    words = {"value": "their result or transcript", "points": "what their savepoints hold", "ids": "savepoint ids"}
    return next((words.get(name, name) for name in names if getattr(mine, name) != getattr(theirs, name)), "")
