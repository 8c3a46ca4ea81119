"""The state machine: Hypothesis chooses what happens to real runs, `machine_bench` compares them with the model.

Its schedules are lines of text (`machine_text`), so that one that fails is shown again by `replay.py`.
"""

import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from machine_bench import Bench, Wrong, server
from machine_model import LEAVES, WINDOW_S, waits_for
from machine_text import Command, command_line, written
from machine_ways import can_fill_disk

from savepoint.crash import ForkServer
from savepoint.testing import CrashPoint

RUNS_AT_MOST = 3
STEPS = 14
"""Rules in one schedule"""
EXAMPLES = 4
"""Schedules of one round; the time is looked at between rounds"""
_ELSEWHERE = {CrashPoint.REPLY_BEFORE, CrashPoint.REPLY_AFTER, CrashPoint.LAND_BEFORE, CrashPoint.LAND_AFTER}
"""Of the agent loop."""

which = st.integers(0, RUNS_AT_MOST - 1)
kinds = st.lists(
    st.builds(lambda kind, refused: kind + "!" * refused, st.sampled_from([*LEAVES]), st.sampled_from([0, 0, 0, 1])),
    min_size=1,
    max_size=3,
).map(" ".join)
_OFTEN = (CrashPoint.INTENT_AFTER, CrashPoint.BODY_AFTER, CrashPoint.OUTCOME_AFTER, CrashPoint.GAP_BEFORE)
"""Where the states lie that differ most."""
kills = st.builds(
    "{}:{}".format,
    st.sampled_from([*_OFTEN, *_OFTEN, *sorted(set(CrashPoint) - _ELSEWHERE)]),
    st.sampled_from([1, 1, 1, 2, 2, 3, 4]),
)
jumps = st.sampled_from([-10, 10, int(WINDOW_S) + 1])


class Machine(RuleBasedStateMachine):
    """One store, a run and its forks. `lives`, `failed_to`, `sabotage` are set by `search`."""

    lives: ClassVar[ForkServer]
    failed_to: ClassVar[Path | None] = None
    """where the script of a failing schedule is written"""
    sabotage: ClassVar[str] = ""
    disk: ClassVar[bool] = True
    spent: ClassVar[list[int]] = [0, 0]
    """schedules and rules so far"""
    wrong: ClassVar[list[Wrong]] = []
    """the newest difference"""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(self.lives, sabotage=self.sabotage, disk=self.disk)
        self.fresh = self.jumps = 0
        self.spent[0] += 1

    def _do(self, word: str, run: int = 0, rest: str = "") -> None:
        self.spent[1] += 1
        command = Command(word, run % len(self.bench.runs), rest)
        try:
            self.bench.do(command)
        except Wrong as wrong:
            self.wrong[:] = [wrong]
            if self.failed_to is not None:
                wrong.add_note(f"as a script: {write_script(self.bench.done, self.failed_to, self.sabotage)}")
            raise

    @rule(run=which, kinds=kinds)
    def step(self, run: int, kinds: str) -> None:
        """Also writes: most kinds of steps change the world of their run, which no other one may see."""
        self._do("step", run, kinds)

    @rule(run=which, kinds=kinds, at=kills, again=st.booleans())
    def step_and_kill(self, run: int, kinds: str, at: str, again: bool) -> None:
        self._do("step", run, kinds)
        self._do("kill", run, at)
        if again:
            self._do("resume", run)

    @precondition(lambda self: any(run["done"] < len(run["script"]) for run in self.bench.runs))
    @rule(run=which, at=kills)
    def kill(self, run: int, at: str) -> None:
        self._do("kill", run, at)

    @rule(run=which)
    def resume(self, run: int) -> None:
        self._do("resume", run)

    @rule(
        run=which,
        kinds=st.sampled_from(["once", "tool", "keyed", "both", "team", "bump once line"]),
        nth=st.integers(1, 3),
    )
    def die_after_a_body(self, run: int, kinds: str, nth: int) -> None:
        """Where nobody inside knows what happened."""
        self._do("step", run, kinds)
        self._do("kill", run, f"body.after:{nth}")

    @rule(run=which)
    def resume_twice(self, run: int) -> None:
        self._do("twice", run)

    @precondition(lambda self: any(waits_for(run) for run in self.bench.runs))
    @rule(how=st.sampled_from(["truth", "truth", "fail"]))
    def decide(self, how: str) -> None:
        self._do("decide", next(at for at, run in enumerate(self.bench.runs) if waits_for(run)), how)

    @precondition(lambda self: any(run["told"] for run in self.bench.runs))
    @rule(how=st.sampled_from(["again", "against"]))
    def decide_again(self, how: str) -> None:
        self._do("decide", next(at for at, run in enumerate(self.bench.runs) if run["told"]), how)

    @precondition(lambda self: len(self.bench.runs) < RUNS_AT_MOST and self.bench.runs[0]["points"])
    @rule(run=which, at=st.integers(0, 9), kill=st.none() | kills)
    def fork(self, run: int, at: int, kill: str | None) -> None:
        self._do("fork", run, f"{at} {kill}" if kill else str(at))

    @precondition(lambda self: self.fresh < 1 and self.bench.runs[0]["done"])
    @rule(run=which, at=st.integers(0, 9))
    def hydrate(self, run: int, at: int) -> None:
        """Once in a schedule: a fresh interpreter costs a second."""
        self.fresh += 1
        self._do("hydrate", run, str(at))

    @precondition(lambda self: self.jumps < 2)
    @rule(seconds=jumps)
    def clock_jump(self, seconds: int) -> None:
        self.jumps += 1
        self._do("clock", rest=str(seconds))

    @precondition(lambda self: self.disk and self.bench.runs[0]["points"])
    @rule(run=which, spare_kb=st.sampled_from([0, 4, 12, 20, 28, 40, 60, 100]))
    def fill_disk(self, run: int, spare_kb: int) -> None:
        self._do("full", run, str(spare_kb))

    @precondition(lambda self: self.bench.runs[0]["points"])
    @rule(run=which, row=st.integers(0, 99), at=st.integers(0, 499))
    def flip_byte(self, run: int, row: int, at: int) -> None:
        self._do("flip", run, f"{row} {at}")

    @precondition(lambda self: self.bench.runs[0]["done"] > 2)
    @rule(run=which)
    def end(self, run: int) -> None:
        self._do("end", run)
        self._do("resume", run)

    def teardown(self) -> None:
        self.bench.__exit__()


@contextmanager
def machine(failed_to: Path | None = None, sabotage: str = "") -> Any:
    """The class to run, with a fork server of its own."""
    with server() as lives:
        yield type(
            "ThisMachine",
            (Machine,),
            {
                "lives": lives,
                "failed_to": failed_to,
                "sabotage": sabotage,
                "disk": can_fill_disk(),
                "spent": [0, 0],
                "wrong": [],
            },
        )


def search(
    budget_s: float, *, failed_to: Path | None = None, sabotage: str = "", first: int = 0, shrink: bool = True
) -> tuple[int, int]:
    """Rounds with the seeds `first`, `first` + 1, ... until the time is up; schedules and rules that it did.

    Raises `Wrong` with the line of the smallest failing schedule that was found; of the first one without `shrink`.
    """
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    ends = time.monotonic() + budget_s
    with machine(failed_to, sabotage) as found:
        number = first
        while time.monotonic() < ends:
            try:
                run_state_machine_as_test(seed(number)(found), settings=settings(_SETTINGS, phases=phases))
            except Flaky:
                # Real processes are not quite the same twice (how much room a disk has, which thread was first), and so
                # are the rules that follow. What differed from the model differed all the same.
                if found.wrong:
                    raise found.wrong[-1] from None
            number += 1
        return found.spent[0], found.spent[1]


_SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    database=None,
    derandomize=False,  # the seed says all
    print_blob=False,
    report_multiple_bugs=False,
    suppress_health_check=[*HealthCheck],
)


_SCRIPT = '''"""Shows one schedule of the state machine again; it fails while the fault is there.

{line}
"""

import sys

sys.path[:0] = [{crash!r}, {src!r}]

from replay import replayed

replayed({schedule!r}, {sabotage!r})
'''


def write_script(commands: Any, to: Path, sabotage: str = "") -> Path:
    """A standalone script of a schedule, below `to`; the newest one of a search is the smallest."""
    here = Path(__file__).parent
    to.mkdir(parents=True, exist_ok=True)
    path = to / "failing_schedule.py"
    path.write_text(
        _SCRIPT.format(
            line=command_line(commands, sabotage),
            crash=str(here),
            src=str(here.parents[1] / "src"),
            schedule=written(commands),
            sabotage=sabotage,
        )
    )
    return path
