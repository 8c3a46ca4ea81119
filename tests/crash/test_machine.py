"""The state machine over real processes: a search within a time, what it found before, and that it finds faults.

The time is `--crash-budget`, else CRASH_BUDGET (both as `60s`), else a slice of 20 seconds. A schedule that fails is one
line for `replay.py`, and a script below the test's temporary directory; it then belongs into `schedules/`.
"""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import machine_model as model
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st
from machine import search, write_script
from machine_bench import Bench, Wrong, server
from machine_text import BadSchedule, Command, parse, written
from machine_ways import can_fill_disk
from rig import HERE, env

from savepoint.crash import ForkServer
from savepoint.crash._budget import seconds
from savepoint.testing import CrashPoint

SLICE = "20s"


@frozen
class Found:
    """A schedule that showed something once."""

    name: str
    schedule: str
    sabotage: str = ""
    """the planted fault that it shows"""
    says: str = ""
    """by these words"""

    @classmethod
    def read(cls, path: Path) -> "Found":
        """Comments, `sabotage:` and `says:` where there is a planted fault, and one line that is the schedule."""
        lines = [line.strip() for line in path.read_text().splitlines() if line.strip()]
        told = dict(line.split(": ", 1) for line in lines if line.startswith(("sabotage: ", "says: ")))
        [schedule] = [line for line in lines if not line.startswith(("#", "sabotage: ", "says: "))]
        return cls(path.stem, schedule, **told)

    def __str__(self) -> str:
        return self.name


FOUND = [Found.read(path) for path in sorted((HERE / "schedules").glob("*.txt"))]
PLANTED = [found for found in FOUND if found.sabotage]


@pytest.fixture(scope="module")
def lives() -> Iterator[ForkServer]:
    with server() as started:
        yield started


@pytest.mark.timeout(7200)  # the budget ends it; shrinking what fails takes some minutes more
def test_whatever_happens_to_runs_they_are_what_the_model_says(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    told = request.config.getoption("--crash-budget", default=None) or os.environ.get("CRASH_BUDGET") or SLICE
    # Under the gate the seeds are fixed: what fails there fails here.
    first = 0 if os.environ.get("CI") else random.randrange(1 << 32)
    schedules, rules = search(seconds(str(told), option="--crash-budget"), failed_to=tmp_path, first=first)
    assert schedules
    assert rules > schedules


@pytest.mark.parametrize("found", FOUND, ids=str)
def test_what_was_found_once_is_as_the_model_says(found: Found, lives: ForkServer) -> None:
    with Bench(lives, disk=can_fill_disk()) as bench:
        bench.all(parse(found.schedule))


@pytest.mark.parametrize("found", PLANTED, ids=str)
def test_a_planted_fault_is_found(found: Found, lives: ForkServer) -> None:
    with Bench(lives, sabotage=found.sabotage, disk=can_fill_disk()) as bench, pytest.raises(Wrong, match=found.says):
        bench.all(parse(found.schedule))


def test_at_least_four_planted_faults_are_found() -> None:
    assert len({found.sabotage for found in PLANTED}) >= 4


def test_the_search_itself_finds_a_planted_fault_and_says_how_to_see_it_again(tmp_path: Path) -> None:
    with pytest.raises(Wrong) as raised:
        search(100, sabotage="no intent", failed_to=tmp_path, shrink=False)
    lines = str(raised.value).splitlines()
    assert lines[-1].startswith("seen again by: python tests/crash/replay.py '")
    assert lines[-1].endswith("--sabotage 'no intent'")
    script = tmp_path / "failing_schedule.py"
    done = subprocess.run([sys.executable, script], env=env(), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert lines[-1] in done.stderr


# -- as text ----------------------------------------------------------------------------------------------------------

_kinds = st.builds(lambda kind, refused: kind + "!" * refused, st.sampled_from([*model.LEAVES]), st.booleans())
_kills = st.builds("{}:{}".format, st.sampled_from([*CrashPoint]), st.integers(1, 99))
_numbers = st.integers(0, 999).map(str)
_commands = st.one_of(
    st.builds(Command, st.sampled_from(["end", "resume", "twice"]), st.integers(0, 9)),
    st.builds(Command, st.just("step"), st.integers(0, 9), st.lists(_kinds, min_size=1).map(" ".join)),
    st.builds(Command, st.just("kill"), st.integers(0, 9), _kills),
    st.builds(Command, st.just("decide"), st.integers(0, 9), st.sampled_from(["truth", "fail", "again", "against"])),
    st.builds(Command, st.just("fork"), st.integers(0, 9), _numbers | st.builds("{} {}".format, _numbers, _kills)),
    st.builds(Command, st.sampled_from(["hydrate", "full"]), st.integers(0, 9), _numbers),
    st.builds(Command, st.just("flip"), st.integers(0, 9), st.builds("{} {}".format, _numbers, _numbers)),
    st.builds(Command, st.just("clock"), st.just(0), st.integers(-9999, 9999).map(str)),
)


@given(st.lists(_commands))
def test_a_schedule_is_one_line_and_reads_back(commands: list[Command]) -> None:
    line = written(commands)
    assert "\n" not in line
    assert "'" not in line
    assert parse(line) == commands


@pytest.mark.parametrize(
    "text", ["jump", "step", "step twice", "kill body.after", "kill here:1", "flip 3", "resume 1 2"]
)
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(BadSchedule, match=text):
        parse(f"step once; {text}")


def test_replaying_says_how_it_went(tmp_path: Path) -> None:
    def replay(*words: str) -> int:
        command = [sys.executable, str(HERE / "replay.py"), *words]
        return subprocess.run(command, env=env(), capture_output=True, check=False, cwd=tmp_path).returncode

    line = "step once; kill body.after:1; resume"
    assert replay(line) == 0
    assert replay(line, "--sabotage", "no intent") == 1
    assert replay("step nothing") == 2


def test_a_schedule_can_be_written_as_a_script_that_stands_alone(tmp_path: Path) -> None:
    script = write_script(parse("step bump; resume"), tmp_path)
    assert subprocess.run([sys.executable, script], env=env(), check=False).returncode == 0


# -- the model alone --------------------------------------------------------------------------------------------------


def test_the_model_takes_for_durable_what_a_later_commit_holds() -> None:
    run = model.new_run("r0", ["team", "end"])
    begun = [["create.after", ""], ["step", "r0.0"], ["landed", "r0.0.m.b"], ["read", "r0.0.m.r", "r1"]]
    model.lived(run, [*begun, ["landed", "r0.0.m.r"]], 0, {})
    assert not run["read"]
    model.lived(run, [["intent.after", "r0.0.m.o"]], 0, {})
    assert run["read"] == {"r0.0.m.r": "r1"}
    assert model.foreseen(run, 0, {}) == ("waiting", {"r0.0.m.o"})


def test_the_model_knows_how_long_a_key_is_remembered() -> None:
    run = model.new_run("r0", ["keyed"])
    model.lived(run, [["create.after", ""], ["step", "r0.0"], ["intent.after", "r0.0.k"]], 5, {})
    assert model.foreseen(run, 5, {}) == ("interrupted", set())
    assert model.foreseen(run, 4, {}) == ("waiting", {"r0.0.k"})
    assert model.foreseen(run, 5 + model.WINDOW_S, {}) == ("waiting", {"r0.0.k"})


def test_in_the_model_a_fork_has_the_steps_of_its_parent_and_writes_its_own() -> None:
    parent = model.new_run("r0", ["bump", "line", "line"])
    child = model.forked(parent, "r1", 2)
    child["script"].append("line")
    assert model.state_at(child, 3)["files"] == {"notes.txt": "r0.1\nr1.2\n"}
    assert model.state_at(parent, 3)["files"] == {"notes.txt": "r0.1\nr0.2\n"}
