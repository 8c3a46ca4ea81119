"""Drawn stories of real kills: a program or an agent of the crash suite, and where up to three of its processes die.

What Hypothesis prints of a failing one is a call that tells it again: the scenario, the schedule, the mode of SQLite.
"""

# pyright: reportMissingImports=false
# The crash suite's modules: `conftest.py` puts them on the path.

import os
import shutil
import tempfile
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import targets
from agent_tasks import LONGER, ONE_CALL, THREE_CALLS
from attrs import define, field, frozen
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from scenarios import SCENARIOS

from savepoint.crash import Explorer, ForkServer, Kill, Schedule, Story, Verdict
from savepoint.testing import CrashPoint

HERE = Path(__file__).parent
EXHAUSTIVE = bool(os.environ.get("CRASH_EXHAUSTIVE"))
TASKS = [*ONE_CALL, *THREE_CALLS, *LONGER]


def few(count: int) -> settings:
    """So many examples; ten times as many where CRASH_EXHAUSTIVE is set. Each is some processes."""
    unhurried = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=10 * count if EXHAUSTIVE else count, deadline=None, suppress_health_check=unhurried)


@frozen(kw_only=True, repr=False)
class Plan:
    """One story: whose processes, and where they die."""

    agent: bool
    name: str
    schedule: str
    wal: bool | None = None
    """as `open_store` takes it: `None`: write-ahead log, `False`: rollback journal"""
    jump_s: float = 0.0
    """by how much the wall clock moves from one process to the next"""

    def __repr__(self) -> str:
        jump = f", jump_s={self.jump_s:g}" if self.jump_s else ""
        return f"Plan(agent={self.agent}, name={self.name!r}, schedule={self.schedule!r}, wal={self.wal}{jump})"


@define
class Kills:
    """Fork servers, each started when it is first needed, and the unkilled runs that killed ones are judged by."""

    place: Path
    _stack: ExitStack
    _servers: dict[str, ForkServer] = field(factory=dict[str, ForkServer], init=False)
    _explorers: dict[tuple[bool, str], Explorer] = field(factory=dict[tuple[bool, str], Explorer], init=False)
    _numbers: Any = field(factory=count, init=False)

    def server(self, life: str) -> ForkServer:
        """The one whose children live `MODULE:FUNCTION`."""
        if life not in self._servers:
            self._servers[life] = self._stack.enter_context(ForkServer(life, path=[HERE, targets.HERE]))
        return self._servers[life]

    def room(self) -> Path:
        """A new directory, in memory where there is such."""
        made = self.place / f"room-{next(self._numbers)}"
        made.mkdir()
        return made

    def explorer(self, *, agent: bool, name: str) -> Explorer:
        if (agent, name) not in self._explorers:
            make, life = (targets.agents, "agent_rig:live") if agent else (targets.programs, "rig:live")
            self._explorers[agent, name] = make(name, [self.server(life)], self.room())
        return self._explorers[agent, name]

    def arrivals(self, *, agent: bool, name: str) -> Sequence[Kill]:
        """Where the first process of the unkilled run could have died."""
        return self.explorer(agent=agent, name=name).references()[0].lives[0].arrivals

    def told(self, plan: Plan) -> Story:
        """The story, judged."""
        setting = {"wal": plan.wal, **({"jump_s": plan.jump_s} if plan.jump_s else {})}
        explorer = self.explorer(agent=plan.agent, name=plan.name)
        [story] = explorer.explore([Schedule.parse(plan.schedule)], **setting)
        assert any(life.killed for life in story.lives) or plan.schedule == "-", f"{plan}: nothing was killed"
        return story


_open: list[Kills] = []


def present() -> Kills:
    """Those of this session, for what is drawn."""
    return _open[0]


@contextmanager
def opened() -> Generator[Kills]:
    """For one session: servers, files and processes are gone afterwards."""
    shared = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix="laws-", dir=shared if shared.is_dir() else None))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        _open.append(Kills(place, stack))
        stack.callback(_open.clear)
        yield _open[0]


# -- what is drawn ----------------------------------------------------------------------------------------------------

RECOVERY = [each.value for each in CrashPoint if each not in (CrashPoint.CREATE_BEFORE, CrashPoint.CREATE_AFTER)]
LATER = st.builds(Kill, st.sampled_from(RECOVERY), st.integers(1, 2))
"""Where a process that recovers may die; it may also never get there."""
WAL = st.sampled_from([None, False])


@st.composite
def plans(draw: st.DrawFn, *, agent: bool, names: Sequence[str]) -> Plan:
    """One to three kills: the first process dies at a point that it gets to."""
    name = draw(st.sampled_from(names))
    arrivals = present().arrivals(agent=agent, name=name)
    first = draw(st.sampled_from(arrivals) if arrivals else LATER)  # none: the program kills that process itself
    later = draw(st.lists(LATER, max_size=2))
    jumps = (0.0,) if agent else SCENARIOS[name].jumps
    return Plan(
        agent=agent,
        name=name,
        schedule=str(Schedule(dict(enumerate([first, *later])))),
        wal=draw(WAL),
        jump_s=draw(st.sampled_from(jumps)),
    )


AGENTS = plans(agent=True, names=TASKS)
ANY = plans(agent=False, names=list(SCENARIOS)) | AGENTS


def wrong(story: Story, *verdicts: Verdict) -> str:
    """Its violations with one of these verdicts, a line each; empty where there is none."""
    return "\n".join(line for line, each in zip(targets.complaints([story]), story.violations, strict=True)
                     if each.verdict in verdicts)  # fmt: skip
