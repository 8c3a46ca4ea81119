"""How planted faults are looked for: each way lives a few real processes and says what is wrong with what they left."""

import contextlib
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Protocol

import outside
from attrs import define, evolve, field, frozen
from graded_lives import PARKED
from rig import HERE, Json
from targets import AgentTarget, OursTarget, ProgramTarget

from savepoint.crash import Explorer, ForkServer, History, Kill, Life, Reply, Schedule, Verdict, Violation
from savepoint.crash._server import LifeFailed

NOTES = "notes.txt"
HOST_NS = 1_000_000_000_123_456_789
"""When the files of a user's own world were last modified."""


@frozen
class Sight:
    """One thing that is wrong, and the schedule that shows it."""

    schedule: str
    what: Violation

    def __str__(self) -> str:
        return f"{self.schedule}: {self.what}"


@define
class Bench:
    """Where faults are looked for: two servers whose processes order their hashes differently, and a directory."""

    servers: Sequence[ForkServer]
    place: Path
    stack: contextlib.ExitStack = field(factory=contextlib.ExitStack)
    """what ends with the bench"""
    kept: dict[str, Any] = field(factory=dict[str, Any], init=False)
    """what more than one way needs"""
    _made: int = field(default=0, init=False)

    def room(self) -> Path:
        """A new directory."""
        self._made += 1
        made = self.place / str(self._made)
        made.mkdir(parents=True)
        return made


class Way(Protocol):
    """One way to look for faults."""

    def __call__(self, bench: Bench, sabotage: str | None) -> list[Sight]:
        """What is wrong with processes that have this planted fault, or none."""
        ...


@contextlib.contextmanager
def bench() -> Generator[Bench]:
    """Servers and directory are gone afterwards."""
    shared = Path("/dev/shm")
    place = Path(mkdtemp(prefix="grading-", dir=shared if shared.is_dir() else None))
    with contextlib.ExitStack() as stack:
        stack.callback(rmtree, place, ignore_errors=True)
        started = [
            stack.enter_context(ForkServer("graded_lives:live", path=[HERE], env={"PYTHONHASHSEED": seed}))
            for seed in ("1", "2")
        ]
        yield Bench(started, place, stack)


# -- kills ------------------------------------------------------------------------------------------------------------


@define(kw_only=True)
class Faulty(OursTarget):
    """A target all of whose processes have the fault, unkilled ones too: what is wrong must show without a right one
    beside it.
    """

    others: Sequence[ForkServer] = ()
    sabotage: str | None = None
    kind: str = "program"

    def at(self, index: int, setting: Mapping[str, Any]) -> Json:
        return {**super().at(index, setting), "kind": self.kind, "sabotage": self.sabotage}


@define(kw_only=True)
class FaultyProgram(Faulty, ProgramTarget):
    """A program that has the fault."""


@define(kw_only=True)
class FaultyAgent(Faulty, AgentTarget):
    """An agent that has it."""

    kind: str = "agent"


@define(kw_only=True)
class Elsewhere(FaultyProgram):
    """The processes after the first one order their hashes differently."""

    def _life(self, place: Path, request: Json, kill: Kill | None, *, fresh: bool) -> tuple[Reply, Json]:
        first, self.server = self.server, self.server if request["first"] else self.others[-1]
        try:
            return super()._life(place, request, kill, fresh=fresh)
        finally:
            self.server = first


@define(kw_only=True)
class Hosted(FaultyProgram):
    """The user's own world has a file already, and is looked at again at the end."""

    def live(self, place: Path, past: Sequence[Life], kill: Kill | None, setting: Mapping[str, Any]) -> Life:
        if not past:
            (place / "files").mkdir()
            (place / "files" / NOTES).write_text("mine\n")
            os.utime(place / "files" / NOTES, ns=(HOST_NS, HOST_NS))
        return super().live(place, past, kill, setting)

    def history(self, place: Path, lives: Sequence[Life]) -> History:
        found = {
            each.name: (each.read_text(), oct(each.stat().st_mode), each.stat().st_mtime_ns)
            for each in (place / "files").iterdir()
        }
        untouched = found == {NOTES: ("mine\n", oct(0o100644), HOST_NS)}
        return evolve(super().history(place, lives), host="untouched" if untouched else repr(found))


@define(kw_only=True)
class Parking(FaultyProgram):
    """Says when it has parked: nothing may begin after that."""

    def at(self, index: int, setting: Mapping[str, Any]) -> Json:
        return {**super().at(index, setting), "says_parked": True}

    def judge(self, history: History, references: Sequence[History]) -> list[Violation]:
        late = [
            Violation(Verdict.DIVERGED, f"{tag} was entered after its process had parked")
            for life in history.lives
            for tag in list(life.entered)[_parked(life.entered) :]
        ]
        return [*late, *super().judge(history, references)]


def _parked(entered: Sequence[str]) -> int:
    return list(entered).index(PARKED) + 1 if PARKED in entered else len(entered)


@frozen
class Killed:
    """Stories of one scenario (of an agent: of one task), killed as the schedule says."""

    scenario: str
    schedule: str = "-"
    target: type[Faulty] = FaultyProgram
    jump_s: float = 0.0
    """by how much the wall clock has moved in each further process"""

    def __str__(self) -> str:
        jump = f", clock {self.jump_s:+g} s a process" if self.jump_s else ""
        return f"{self.target.__name__} {self.scenario} {self.schedule}{jump}"

    def __call__(self, bench: Bench, sabotage: str | None) -> list[Sight]:
        worker = self.target(server=bench.servers[0], others=bench.servers, scenario=self.scenario, sabotage=sabotage)
        explorer = Explorer(workers=[worker], place=bench.room(), lives_at_most=6)
        found: list[Sight] = []
        with failing(found, self.schedule):
            [story] = explorer.explore([Schedule.parse(self.schedule)], **self._setting)
            found += [Sight(str(story.schedule), each) for each in story.violations]
        return found

    @property
    def _setting(self) -> Json:
        return {"jump_s": self.jump_s} if self.jump_s else {}


@contextlib.contextmanager
def failing(found: list[Sight], schedule: str) -> Generator[None]:
    """A process that fails with an error of ours is a sight too: an unkilled run has none."""
    try:
        yield
    except LifeFailed as failed:
        found.append(Sight(schedule, Violation(Verdict.CORRUPT, str(failed).splitlines()[-1])))


# -- stories ----------------------------------------------------------------------------------------------------------


@define
class Story:
    """The processes of one run, told one by one; what is wrong is said with the schedule of all kills so far."""

    server: ForkServer
    sabotage: str | None
    place: Path
    scenario: str
    kind: str = "program"
    found: list[Sight] = field(factory=list[Sight], init=False)
    _lives: int = field(default=0, init=False)
    _kills: list[str] = field(factory=list[str], init=False)

    def life(self, kill: str | None = None, **request: Any) -> Json:
        """One process; its report, `{}` where it was killed. Raises `LifeFailed`."""
        told = {
            "kind": self.kind,
            "scenario": self.scenario,
            "place": str(self.place),
            "sabotage": self.sabotage,
            "first": self._lives == 0,
            **request,
        }
        where = kill or ("audit " + ":".join(map(str, request["audit"])) if "audit" in request else None)
        self._kills += [f"{self._lives}@{where}"] if where else []
        self._lives += 1
        return dict(self.server.attempt(told, None if kill is None else Kill.parse(kill)).report)

    def wrong(self, verdict: Verdict, what: str) -> None:
        self.found.append(Sight(",".join(self._kills) or "-", Violation(verdict, what)))

    def must(self, right: bool, verdict: Verdict, what: str) -> None:
        if not right:
            self.wrong(verdict, what)

    @property
    def ledger(self) -> list[outside.Act]:
        return outside.ledger(self.place / "outside")

    @property
    def entered(self) -> list[str]:
        return outside.entered(self.place / "outside")


@frozen
class Told:
    """One story about a scenario."""

    scenario: str
    tell: Callable[[Story], None]
    kind: str = "program"

    def __str__(self) -> str:
        return f"{self.tell.__name__} {self.scenario}"

    def __call__(self, bench: Bench, sabotage: str | None) -> list[Sight]:
        story = Story(bench.servers[0], sabotage, bench.room(), self.scenario, self.kind)
        with failing(story.found, "-"):
            self.tell(story)
        return story.found
