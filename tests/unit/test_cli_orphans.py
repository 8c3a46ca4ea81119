"""Runs that lost their process, on the command line: named at the start, continued by `resume --all`."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from agent.cli import main
from agent.cli._exit import Exit
from agent.cli._orphans import NAMED, lost
from savepoint import Registry, World, open_store, resumable, run_program

PROJECT = '''
import os, signal
from pathlib import Path
from agent import Agent, Idempotency, ModelError, tool
from agent.testing import ScriptedModel, call, say

HERE = Path(__file__).parent

@tool(idempotency=Idempotency.READ)
async def look(what: str) -> str:
    """Looks; its process dies where a file says so."""
    with (HERE / "ledger").open("a") as file:
        file.write(f"{what}\\n")
    if (HERE / f"kill-{what}").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return "seen"

@tool(idempotency=Idempotency.ONCE)
async def pay(what: str) -> str:
    """Pays, and dies at the first time."""
    with (HERE / "ledger").open("a") as file:
        file.write(f"pay {what}\\n")
    if (HERE / f"kill-{what}").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"

def first(name):
    return lambda request: call(name, what=request.messages[0].content)

def end(request):
    what = request.messages[0].content
    if (HERE / f"away-{what}").exists():
        raise ModelError("nobody there", next="ask later")
    if (HERE / f"interrupt-{what}").exists():
        os.kill(os.getpid(), signal.SIGINT)
    return say(f"saw {what}")

looker = Agent(name="looker", tools=(look,), model=ScriptedModel([first("look"), end]))
payer = Agent(name="payer", tools=(pay,), model=ScriptedModel([first("pay"), end]))
'''
SOURCE = Path(__file__).parents[2] / "src"
Cli = Callable[..., tuple[int, list[Any], str]]


def orphan(project: Path, target: str, run_id: str, *words: str) -> None:
    """A run whose process was killed in its tool."""
    (project / f"kill-{run_id}").touch()
    command = [sys.executable, "-m", "agent.cli", "run", target, run_id, "--run-id", run_id, *words]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (project / f"kill-{run_id}").unlink()


def ledger(project: Path) -> list[str]:
    return (project / "ledger").read_text().splitlines()


def summary(objects: list[Any]) -> dict[str, Any]:
    assert objects[-1]["event"] == "summary"
    return {each.pop("run_id"): each for each in objects[-1]["runs"]}


def notes(err: str) -> list[str]:
    return [line for line in err.splitlines() if "lost" in line]


# -- the note ---------------------------------------------------------------------------------------------------------


def test_the_first_names_are_listed_and_the_others_counted():
    assert lost(["a"]) == "1 run lost its process: a"
    assert lost(["a", "b"]) == "2 runs lost their process: a, b"
    many = [f"r{number}" for number in range(NAMED + 3)]
    assert lost(many) == "8 runs lost their process: r0, r1, r2, r3, r4 and 3 more"
    assert "\x1b" not in lost(["\x1b[2J"])


def test_run_resume_and_fork_name_the_other_runs_that_lost_their_process(project: Path, shop: str, cli: Cli):
    _, _, err = cli("run", f"{shop}:looker", "fine", "--run-id", "fine")
    assert notes(err) == []
    for run_id in ("a", "b"):
        orphan(project, f"{shop}:looker", run_id)
    both = "2 runs lost their process: a, b; savepoint resume --all continues them"
    for words in (("run", f"{shop}:looker", "x"), ("resume", "fine"), ("fork", "fine")):
        assert notes(cli(*words)[2]) == [both]
    assert notes(cli("fork", "a", "--no-run")[2]) == [
        "1 run lost its process: b; savepoint resume --all continues them"
    ]
    code, _, err = cli("resume", "a")
    assert (code, notes(err)) == (Exit.DONE, ["1 run lost its process: b; savepoint resume --all continues them"])
    assert notes(cli("runs")[2]) == []


def test_a_run_shows_how_often_its_process_died_where_it_goes_on(
    project: Path, shop: str, cli: Cli, capfd: pytest.CaptureFixture[str]
):
    for failures in (1, 2):
        orphan(project, f"{shop}:looker", "a")
        assert cli("show", "a")[1][0]["failures"] == failures
    with chdir(project):
        main(["show", "a"])
    assert "failures   2 in a row from this savepoint\n" in capfd.readouterr().out
    assert cli("resume", "a")[0] == Exit.DONE
    assert cli("show", "a")[1][0]["failures"] == 0


# -- all of them ------------------------------------------------------------------------------------------------------


def test_all_that_lost_their_process_are_continued_each_as_alone(project: Path, shop: str, cli: Cli):
    (project / "files").mkdir()
    for run_id in ("a", "b"):
        orphan(project, f"{shop}:looker", run_id, "--workspace", "files")
    code, objects, err = cli("resume", "--all")
    assert code == Exit.DONE
    assert summary(objects) == {run_id: {"status": "completed", "tries": 1} for run_id in ("a", "b")}
    assert [(each["event"], each["run_id"]) for each in objects if "run_id" in each] == [
        ("started", "a"), ("ended", "a"), ("started", "b"), ("ended", "b"),
    ]  # fmt: skip
    assert [each["output"] for each in objects if each["event"] == "ended"] == ["saw a", "saw b"]
    assert "2 runs lost their process: a, b" in err
    assert "of 2: 2 completed" in err
    code, objects, err = cli("resume", "--all")
    assert (code, summary(objects)) == (Exit.DONE, {})
    assert "no run has lost its process" in err


def test_one_that_waits_and_one_that_cannot_be_reached_stop_no_other(
    project: Path, shop: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("agent.cli._recovery.BACKOFF_S", 0.0)
    orphan(project, f"{shop}:payer", "doubtful")
    orphan(project, f"{shop}:looker", "far")
    orphan(project, f"{shop}:looker", "near")
    (project / "away-far").touch()
    code, objects, err = cli("resume", "--all", "--tries", "2")
    assert (code, summary(objects)) == (
        Exit.FAILED,
        {
            "doubtful": {"status": "waiting", "tries": 1},
            "far": {"status": "interrupted", "tries": 2},
            "near": {"status": "completed", "tries": 1},
        },
    )
    assert "of 3: 1 waiting, 1 interrupted, 1 completed" in err
    assert ledger(project).count("pay doubtful") == 1
    orphan(project, f"{shop}:payer", "vague")
    code, objects, _ = cli("resume", "--all")
    assert (code, summary(objects)) == (Exit.WAITING, {"vague": {"status": "waiting", "tries": 1}})


def test_a_run_that_kills_its_process_every_time_is_asked_about(project: Path, shop: str, cli: Cli):
    orphan(project, f"{shop}:looker", "bad")
    code, objects, err = cli("resume", "--all", "--poison-after", "1")
    assert (code, summary(objects)) == (Exit.WAITING, {"bad": {"status": "waiting", "tries": 1}})
    (question,) = next(each for each in objects if each["event"] == "ended")["questions"]
    assert (question["kind"], question["verdicts"]) == ("poison", ["redo", "fail"])
    assert ledger(project) == ["bad"]
    assert cli("resume", "bad")[0] == Exit.WAITING
    assert cli("decide", "bad", question["id"], "redo")[0] == Exit.DONE
    assert cli("resume", "bad")[0] == Exit.DONE
    orphan(project, f"{shop}:looker", "worse")
    assert cli("resume", "worse")[0] == Exit.DONE, "a person's own resume is never refused"
    assert "1 waiting" in err


@resumable("cli/deadly")
async def deadly(world: World) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die(place: Path) -> None:
    async def live() -> None:
        async with open_store(place) as store:
            await run_program(deadly.at(), store=store, run_id="program", registry=Registry([deadly]))

    child = os.fork()
    if child == 0:
        asyncio.run(live())
        os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def test_what_another_program_started_is_named_and_left_alone(project: Path, shop: str, cli: Cli):
    orphan(project, f"{shop}:looker", "a")
    _die(project / ".savepoint")
    code, objects, err = cli("resume", "--all")
    found = summary(objects)
    assert (code, found["a"]["status"]) == (Exit.DONE, "completed")
    assert (found["program"]["status"], found["program"]["tries"]) == (None, 0)
    assert found["program"]["error"]["code"] == "usage"
    assert "  skipped: run program is of a program, not of an agent (next: start its program (cli/deadly)" in err


def test_a_target_that_is_gone_is_told_and_stops_no_other(project: Path, shop: str, cli: Cli):
    (project / "gone_shop.py").write_text(PROJECT)
    orphan(project, "gone_shop:looker", "a")
    orphan(project, f"{shop}:looker", "b")
    (project / "gone_shop.py").unlink()
    code, objects, _ = cli("resume", "--all")
    found = summary(objects)
    assert (code, found["a"]["status"], found["b"]["status"]) == (Exit.USAGE, None, "completed")
    assert "gone_shop" in found["a"]["error"]["message"]


def test_modules_of_two_projects_are_never_mixed_in_one_process(project: Path, shop: str, cli: Cli):
    store = ("--store", str(project / ".savepoint"))
    other = project / "other"
    other.mkdir()
    (other / f"{shop}.py").write_text(PROJECT.replace("saw", "saw elsewhere"))
    orphan(project, f"{shop}:looker", "a")
    orphan(other, f"{shop}:looker", "b", *store)
    code, objects, _ = cli("resume", "--all", *store)
    found = summary(objects)
    assert (code, found["a"]["status"], found["b"]["status"]) == (Exit.USAGE, "completed", None)
    assert str(other) in found["b"]["error"]["message"]
    assert "savepoint resume b --store" in found["b"]["error"]["next"]


def test_a_signal_ends_it_and_no_other_run_is_begun(project: Path, shop: str):
    for run_id in ("a", "b"):
        orphan(project, f"{shop}:looker", run_id)
    (project / "interrupt-a").touch()
    command = [sys.executable, "-m", "agent.cli", "resume", "--all", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == Exit.INTERRUPTED, done.stderr
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert list(summary(objects)) == ["a"]
    assert ledger(project) == ["a", "b", "a"]
    (project / "interrupt-a").unlink()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "neither RUN nor --all"),
        (("r", "--all"), "both RUN and --all"),
        (("--all", "--target", "m:x"), "--target"),
        (("--all", "--workspace", "."), "--workspace"),
        (("--all", "--tries", "0"), "tries=0"),
        (("--all", "--poison-after", "0"), "poison_after=0"),
        (("r", "--tries", "2"), "--tries goes with --all"),
        (("r", "--poison-after", "2"), "--poison-after goes with --all"),
    ],
)
def test_words_that_mean_nothing_are_usage(words: tuple[str, ...], named: str, shop: str, cli: Cli):
    assert cli("run", f"{shop}:looker", "r", "--run-id", "r")[0] == Exit.DONE
    code, (error,), _ = cli("resume", *words)
    assert code == Exit.USAGE
    assert named in error["error"]["message"]
    assert error["error"]["next"]


# -- run --auto-resume ------------------------------------------------------------------------------------------------


def test_a_run_first_continues_the_orphans_of_its_target_and_stdout_stays_its_own(project: Path, shop: str, cli: Cli):
    (project / "files").mkdir()
    orphan(project, f"{shop}:looker", "a", "--workspace", "files")
    orphan(project, f"{shop}:payer", "other")
    code, objects, err = cli("run", f"{shop}:looker", "new", "--run-id", "n", "--auto-resume")
    assert (code, objects[-1]["output"], objects[-1]["warnings"]) == (Exit.DONE, "saw new", [])
    assert {each["run_id"] for each in objects if "run_id" in each} == {"n"}
    assert "saw a" in err.splitlines()
    assert notes(err) == ["1 run lost its process: other; savepoint resume --all continues them"]
    statuses = {each["run_id"]: each["status"] for each in cli("runs")[1]}
    assert statuses == {"a": "completed", "n": "completed", "other": "running"}
    assert cli("show", "a")[1][0]["world"]["workspace"] == str(project / "files")


def test_an_orphan_that_does_not_complete_is_a_warning_and_stops_no_new_run(project: Path, shop: str, cli: Cli):
    orphan(project, f"{shop}:payer", "doubtful")
    code, objects, _ = cli("run", f"{shop}:payer", "new", "--auto-resume")
    assert (code, objects[-1]["status"]) == (Exit.DONE, "completed")
    assert objects[-1]["warnings"] == ["run doubtful lost its process and is waiting"]
    assert ledger(project) == ["pay doubtful", "pay new"]


def test_the_orphan_that_is_asked_for_itself_goes_on_once(project: Path, shop: str, cli: Cli):
    orphan(project, f"{shop}:looker", "a")
    code, objects, _ = cli("run", f"{shop}:looker", "a", "--run-id", "a", "--auto-resume")
    assert (code, objects[0]["resumed_from"], objects[-1]["replayed"]) == (Exit.DONE, 0, False)
    assert ledger(project) == ["a", "a"]


def test_a_signal_while_orphans_go_on_begins_no_new_run(project: Path, shop: str, cli: Cli):
    orphan(project, f"{shop}:looker", "a")
    (project / "interrupt-a").touch()
    command = [sys.executable, "-m", "agent.cli", "run", f"{shop}:looker", "new", "--run-id", "n", "--auto-resume"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (Exit.INTERRUPTED, "")
    assert "run n was not begun" in done.stderr
    assert cli("show", "n")[0] == Exit.NOT_FOUND
