"""The demo as its users meet it: the object for scripts, what it leaves behind, what a signal leaves behind."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve

from agent.demo._ending import Ending
from agent.demo._package import FILES, UNITTEST, turns, unpack
from agent.demo._proof import Proof
from agent.demo._story import PLANS, Story
from savepoint import Log, RunStatus

SOURCE = Path(__file__).parents[2] / "src"
DEMO = (sys.executable, "-m", "agent.demo")
FATE_S = 20.0
"""How long a process may take to notice that the demo is gone."""


def environment(place: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE), "TMPDIR": str(place)}


@pytest.mark.timeout(90)
def test_two_kills_end_like_none_and_the_outside_counts_one_post_each(tmp_path: Path):
    done = subprocess.run(
        [*DEMO, "--json", "--keep"],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["run_id"], told["kills"], told["status"]) == ("killed-after", 2, "completed")
    assert (told["outside_calls"], told["equal_to_unkilled"]) == (1, True)
    assert [(each["run_id"], each["kind"], each["effect"]) for each in told["questions"]] == [
        ("killed-before", "in_doubt", "post_report"),
        ("killed-after", "in_doubt", "post_report"),
    ]
    assert [(each["verdict"], each["value"]) for each in told["decisions"]] == [
        ("redo", None),
        ("performed", {"receipt": "report 1"}),
    ]
    for question in told["questions"]:  # the person's view, on the other stream
        assert f"savepoint decide {question['run_id']} {question['id']}" in done.stderr
    (kept,) = tmp_path.glob("savepoint-demo-*")
    assert not (kept / "errors.log").read_text()
    ledger = [json.loads(line)["channel"] for line in (kept / "ledger.jsonl").read_text().splitlines()]
    assert ledger == ["unkilled", "killed-before", "killed-after"]
    for run_id in ledger:
        assert "part.isdigit()" in (kept / "results" / run_id / "semver.py").read_text()
    assert (kept / "package" / "semver.py").read_text() == FILES["semver.py"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_leaves_no_process_behind(tmp_path: Path, number: signal.Signals):
    with subprocess.Popen(DEMO, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        next(line for line in running.stdout if "-m pytest" in line or UNITTEST in line)
        while len(pids := set(descendants(running.pid))) <= 2:  # the outside, the run; then its command
            assert running.poll() is None
        mine = [os.pidfd_open(pid) for pid in pids]
        running.send_signal(number)
        running.stdout.read()
    assert running.returncode == (130 if number is signal.SIGINT else -number)
    assert not alive(mine)
    if number is signal.SIGINT:
        assert not list(tmp_path.iterdir())


def descendants(pid: int) -> Iterator[int]:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # gone meanwhile
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from descendants(int(child))


def alive(handles: list[int]) -> list[int]:
    """Those that have not ended when the time is up."""
    waiting = set(handles)
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    while waiting and (ended := poll.poll(FATE_S * 1000)):
        for handle, _ in ended:
            poll.unregister(handle)
            os.close(handle)
            waiting.remove(handle)
    return list(waiting)


GOOD = Ending(
    status=RunStatus.COMPLETED,
    outside_calls=1,
    output="done",
    transcript=Log(["..."]),
    files={"a": (0o644, b"a")},
)


@pytest.mark.parametrize(
    ("what", "worse"),
    [
        ("status", evolve(GOOD, status=RunStatus.WAITING)),
        ("answer", evolve(GOOD, output="other")),
        ("transcript", evolve(GOOD, transcript=Log(["...", "..."]))),
        ("files", evolve(GOOD, files={"a": (0o755, b"a")})),
        ("outside", evolve(GOOD, outside_calls=2)),
        ("outside", evolve(GOOD, outside_calls=0)),
    ],
)
def test_a_difference_is_found_and_named(what: str, worse: Ending):
    assert [name for name, equal in worse.equals(GOOD).items() if not equal] == [what]


def test_nothing_is_proved_where_one_run_differs():
    stories = {plan.run_id: Story(plan=plan) for plan in PLANS}
    endings = dict.fromkeys(stories, GOOD) | {"killed-after": evolve(GOOD, outside_calls=2)}
    proof = Proof(stories=stories, endings=endings, host_untouched=True)
    assert not proof.holds
    assert (proof.summary()["outside_calls"], proof.summary()["equal_to_unkilled"]) == (2, False)


def test_the_package_is_mended_by_the_script_also_where_there_is_no_pytest(tmp_path: Path):
    unpack(tmp_path)
    (edit,) = (
        json.loads(turn.calls[0].arguments) for turn in turns(UNITTEST) if turn.calls and turn.calls[0].tool == "edit"
    )
    before, mended = run_tests(tmp_path), tmp_path / edit["path"]
    assert (before.returncode, before.stdout.count("FAILED")) == (1, 1)
    assert mended.read_text().count(edit["old"]) == 1
    mended.write_text(mended.read_text().replace(edit["old"], edit["new"]))
    after = run_tests(tmp_path)
    assert (after.returncode, after.stdout) == (0, "6 tests run\n")


def run_tests(package: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", *UNITTEST.split()[1:]]
    return subprocess.run(command, cwd=package, capture_output=True, text=True, check=False)
