"""`savepoint crash` as a shell sees it: exit codes, what goes where, and that nothing is left of it, however it ends."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.cli import main
from savepoint.crash._scratch import MARK, Scratch, bases, sweep

EXAMPLES = Path(__file__).parent / "examples"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}


def words(program: str, *more: str) -> list[str]:
    command = shlex.join([sys.executable, "-S", program])
    return [sys.executable, "-m", "agent.cli", "crash", "--start", command, "--ledger", "ledger", *more]


def run(program: str, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words(program, *more), cwd=EXAMPLES, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
    )


def started(program: str, *more: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        words(program, *more), cwd=EXAMPLES, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def until(true: Callable[[], object]) -> None:
    limit = time.monotonic() + 20
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.02)


def places(number: int) -> list[Path]:
    return [place for base in bases() for place in base.glob(f"savepoint-crash-{number}-*")]


def children(place: Path) -> list[int]:
    """The processes that run in a rig's directory."""
    found: list[int] = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if (each / "cwd").readlink().is_relative_to(place):
                found.append(int(each.name))
        except OSError:
            continue
    return found


def test_violations_are_exit_1_and_the_line_that_is_printed_shows_one_again(tmp_path: Path):
    done = run("shop_unsafe.py", "--first", "--junit", str(tmp_path / "j.xml"), "--report", str(tmp_path / "r.json"))
    assert done.returncode == 1, done.stderr
    assert "VIOLATED" in done.stdout
    line = next(line for line in done.stdout.splitlines() if line.startswith("    $ savepoint crash"))
    again = shlex.split(line.removeprefix("    $ "))[1:]
    document = json.loads((tmp_path / "r.json").read_text())
    assert ET.parse(tmp_path / "j.xml").findall(".//failure")
    second = subprocess.run(
        [sys.executable, "-m", "agent.cli", *again, "--json"],
        cwd=EXAMPLES, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert second.returncode == 1
    (found,) = json.loads(second.stdout)["violations"]
    assert found["what"] in [each["what"] for each in document["violations"]]


def test_nothing_violated_is_exit_0_and_json_is_alone_on_stdout():
    done = run("waits.py", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["verdict"], document["complete"], document["killed"] > 0) == ("passed", True, True)


def test_a_rejected_target_is_exit_1_by_its_name():
    done = run("not_deterministic.py")
    assert done.returncode == 1
    assert "REJECTED: not deterministic" in done.stdout


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["--start", "python"],
        ["--start", "no-such-program-anywhere", "--ledger", "ledger"],
        ["--start", "'", "--ledger", "ledger"],
        ["--start", sys.executable, "--ledger", "/ledger"],
        ["--start", sys.executable, "--ledger", "ledger", "--budget", "soon"],
        ["--start", sys.executable, "--ledger", "ledger", "--kills", "triple"],
        ["--start", sys.executable, "--ledger", "ledger", "--only", "nowhere"],
        ["--start", sys.executable, "--ledger", "ledger", "--only", "-"],
        ["--start", sys.executable, "--ledger", "ledger", "--jobs", "0"],
        ["--start", sys.executable, "--ledger", "ledger", "--junit", "/no/such/directory/j.xml"],
        ["--start", sys.executable, "--ledger", "ledger", "--store", "x"],
        ["agents:mine", "--start", sys.executable, "--ledger", "ledger"],
    ],
)
def test_wrong_words_are_exit_2_and_kill_nothing(given: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["crash", *given]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "(next: " in told.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_what_was_found_so_far_and_leaves_nothing(number: signal.Signals):
    process = started("shop_unsafe.py", "--kills", "double")
    until(lambda: places(process.pid))
    time.sleep(1.0)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    assert "interrupted: this is what was found until then" in out
    assert places(process.pid) == []


def test_what_a_killed_rig_leaves_is_swept_by_the_next_one():
    process = started("never_finishes.py")
    until(lambda: any(children(place) for place in places(process.pid)))
    (place,) = places(process.pid)
    process.kill()
    process.communicate()
    until(lambda: not children(place))
    assert place.exists()
    with Scratch():
        assert not place.exists()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="leftover processes are found by /proc alone")
def test_leftover_processes_are_ended_by_their_mark_alone():
    with Scratch() as mine, Scratch() as other:
        ours = subprocess.Popen(["sleep", "60"], env={MARK: f"{mine.place}/0/live"})
        theirs = subprocess.Popen(["sleep", "60"], env={MARK: f"{other.place}/0/live"})
        try:
            until(mine.end_processes)
            assert ours.wait() == -signal.SIGKILL
            assert theirs.poll() is None
        finally:
            theirs.kill()
            theirs.wait()


def test_the_directory_of_a_living_rig_is_not_swept(tmp_path: Path):
    with Scratch() as scratch:
        assert scratch.place not in sweep(scratch.place.parent)
        assert scratch.place.is_dir()


def test_only_what_a_rig_left_is_swept(tmp_path: Path):
    for name in ("savepoint-crash-x-1", "savepoint-crash-", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "savepoint-crash-999999999-file").touch()
    (tmp_path / "savepoint-crash-999999999-dir").mkdir()
    (tmp_path / "savepoint-crash-999999998-link").symlink_to(tmp_path / "other")
    assert [each.name for each in sweep(tmp_path)] == ["savepoint-crash-999999999-dir"]
