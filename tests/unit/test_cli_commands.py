"""Commands in this process: what they answer, and that only work done is called success."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from agent.cli import main
from agent.cli._exit import Exit

PROJECT = '''
import os
from pathlib import Path
from agent import Agent, Idempotency, ModelError, tool
from agent.testing import ScriptedModel, call, say

@tool(idempotency=Idempotency.ONCE)
async def pay(amount: int) -> str:
    """Pays."""
    with (Path(__file__).parent / "ledger").open("a") as file:
        file.write(f"{amount}\\n")
    return "paid"

@tool(idempotency=Idempotency.ONCE)
async def vague() -> str:
    """Nobody knows."""
    raise TimeoutError("no answer")

payer = Agent(name="payer", tools=(pay,), model=ScriptedModel([call("pay", amount=3), say("done")]))
doubter = Agent(name="doubter", tools=(vague,), model=ScriptedModel([call("vague"), say("done")]))
def broken(request):
    raise ModelError("the model says no more", next="ask later")

failing = Agent(name="failing", model=ScriptedModel([broken]))
odd = Agent(name="odd", instructions=lambda deps: str(1 / 0), model=ScriptedModel([say("x")]))
echo = Agent(name="echo", model=ScriptedModel([lambda request: say(request.messages[0].content)]))
bare = Agent(name="bare", tools=(pay,))
'''
SOURCE = Path(__file__).parents[2] / "src"
Cli = Callable[..., tuple[int, list[Any], str]]


def test_a_fork_starts_at_a_savepoint_and_may_wait_to_be_resumed(project: Path, shop: str, cli: Cli):
    assert cli("run", f"{shop}:payer", "pay", "--run-id", "r")[0] == Exit.DONE
    code, objects, _ = cli("fork", "r", "--at", "0", "--run-id", "f")
    assert (code, objects[0]["run_id"], objects[-1]["status"]) == (Exit.DONE, "f", "completed")
    assert objects[0]["may_repeat"] == objects[-1]["may_repeat"] == ["pay"]  # before anything is done, and after
    assert (project / "ledger").read_text() == "3\n3\n"
    code, objects, _ = cli("fork", "r", "--no-run", "--run-id", "g")
    assert (code, objects[-1]["status"]) == (Exit.DONE, "interrupted")
    assert cli("resume", "g")[1][-1]["status"] == "completed"
    assert (project / "ledger").read_text() == "3\n3\n"
    assert cli("fork", "r", "--at", "7")[0] == Exit.NOT_FOUND


def test_success_is_only_said_where_work_was_done(project: Path, shop: str, cli: Cli):
    assert cli("run", f"{shop}:echo", "hi", "--run-id", "done")[0] == Exit.DONE
    code, (answer,), _ = cli("run", f"{shop}:echo", "other", "--run-id", "done")
    assert (code, answer["replayed"], answer["output"]) == (Exit.DONE, True, "hi")
    code, (answer,), _ = cli("resume", "done")
    assert (code, answer["replayed"], answer["output"]) == (Exit.DONE, True, "hi")
    assert cli("run", f"{shop}:echo", "hi", "--run-id", "dance")[0] == Exit.DONE
    nowhere = str(project / "nowhere")
    wrong: Sequence[tuple[tuple[str, ...], Exit, str]] = (
        (("resume", "unknown"), Exit.NOT_FOUND, "unknown"),
        (("resume", "d"), Exit.USAGE, "dance, done"),
        (("show", "unknown"), Exit.NOT_FOUND, "unknown"),
        (("resume", "done", "--store", nowhere), Exit.NOT_FOUND, nowhere),
        (("runs", "--store", nowhere), Exit.NOT_FOUND, nowhere),
        (("run", f"{shop}:echo", "hi", "--run-id", "x", "--if-exists", "resume_only"), Exit.NOT_FOUND, "x"),
        (("run", f"{shop}:echo", "hi", "--run-id", "done", "--if-exists", "fail"), Exit.CONFLICT, "done"),
        (("run", f"{shop}:nothing", "hi"), Exit.USAGE, "nothing"),
        (("run", "worker", "hi"), Exit.USAGE, "--model"),
        (("run", f"{shop}:echo", ""), Exit.USAGE, "empty"),
        (("run", f"{shop}:echo", "hi", "--workspace", nowhere), Exit.NOT_FOUND, nowhere),
        (("run", f"{shop}:echo", "hi", "--store", "/proc/none/x"), Exit.NOT_WRITABLE, "/proc/none/x"),
        (("resume",), Exit.USAGE, "RUN"),
        (("nonsense",), Exit.USAGE, "nonsense"),
        (("decide", "done", "0" * 12, "redo"), Exit.NOT_FOUND, "0" * 12),
    )
    for words, expected, named in wrong:
        code, (error,), err = cli(*words)
        assert (words, code) == (words, expected)
        assert named in error["error"]["message"] + error["error"]["next"]
        assert err.splitlines()[-1].startswith("savepoint: ")
    assert not Path(nowhere).exists()


def test_a_failed_run_is_not_success(shop: str, cli: Cli):
    code, objects, _ = cli("run", f"{shop}:payer", "hi", "--run-id", "f", "--max-turns", "1")
    (question,) = objects[-1]["questions"]
    assert (code, question["kind"], question["verdicts"]) == (Exit.WAITING, "budget", ["grant", "fail"])
    assert cli("decide", "f", question["id"], "fail")[0] == Exit.DONE
    code, objects, err = cli("resume", "f")
    assert (code, objects[-1]["status"], objects[-1]["error"]["code"]) == (Exit.FAILED, "failed", "failed")
    assert "limit of 1" in objects[-1]["error"]["message"]
    assert "savepoint resume f" in err


def test_a_model_that_cannot_answer_leaves_a_run_that_can_be_resumed(shop: str, cli: Cli):
    code, objects, err = cli("run", f"{shop}:failing", "hi", "--run-id", "f")
    assert (code, objects[-1]["status"]) == (Exit.FAILED, "interrupted")
    assert "no more" in objects[-1]["error"]["message"]
    assert "savepoint resume f" in err


def test_damage_and_a_newer_store_have_codes_of_their_own(project: Path, shop: str, cli: Cli):
    cli("run", f"{shop}:payer", "pay", "--run-id", "r")
    store = project / ".savepoint"
    assert cli("verify")[0] == Exit.DONE
    newer = shutil.copytree(store, project / "newer")
    with sqlite3.connect(newer / "store.db") as database:
        database.execute("pragma user_version = 9999")
    database.close()
    assert cli("runs", "--store", str(newer))[0] == Exit.NEWER
    with sqlite3.connect(store / "store.db") as database:
        database.execute("delete from object")
    database.close()
    code, (found,), _ = cli("verify")
    assert (code, {damage["what"] for damage in found["damage"]}) == (Exit.DAMAGED, {"object", "run"})
    assert cli("fork", "r")[0] in {Exit.DAMAGED, Exit.NOT_FOUND}
    for path in store.glob("store.db-*"):
        path.unlink()
    (store / "store.db").write_bytes(b"")
    for words in (("runs",), ("resume", "r"), ("run", f"{shop}:echo", "hi"), ("verify",)):
        assert cli(*words)[0] == Exit.DAMAGED
    assert (store / "store.db").read_bytes() == b""


def test_an_answer_is_given_once_and_only_with_what_it_needs(project: Path, shop: str, cli: Cli):
    code, objects, _ = cli("run", f"{shop}:doubter", "hi", "--run-id", "d")
    assert code == Exit.WAITING
    question = objects[-1]["questions"][0]["id"]
    for words in (("approve",), ("performed",), ("redo", "--value", "1"), ("performed", "--value", "not json")):
        assert (words, cli("decide", "d", question, *words)[0]) == (words, Exit.USAGE)
    assert cli("decide", "d", question, "performed", "--value", '"yes"', "--note", "-asked-")[0] == Exit.DONE
    assert cli("decide", "d", question, "performed", "--value", '"yes"')[0] == Exit.DONE
    assert cli("decide", "d", question, "redo")[0] == Exit.CONFLICT
    assert cli("resume", "d")[1][-1]["output"] == "done"


def test_a_model_is_named_by_an_option_and_kept_for_the_resume(project: Path, shop: str, cli: Cli):
    (project / "turns.json").write_text('[{"call": "pay", "arguments": {"amount": 5}}, "all paid"]')
    code, (error,), _ = cli("run", f"{shop}:bare", "hi", "--run-id", "r")
    assert code == Exit.USAGE
    assert "--model" in error["error"]["next"]
    assert "SAVEPOINT_MODEL" in error["error"]["next"]
    assert not (project / ".savepoint").exists()
    assert (
        cli("run", f"{shop}:bare", "hi", "--run-id", "r", "--model", "script:turns.json")[1][-1]["output"] == "all paid"
    )
    assert cli("fork", "r", "--at", "1", "--run-id", "f")[1][-1]["output"] == "all paid"
    assert cli("run", f"{shop}:bare", "hi", "--model", "script:gone.json")[0] == Exit.NOT_FOUND


def test_reading_commands_speak_to_people_too(project: Path, shop: str, cli: Cli, capfd: pytest.CaptureFixture[str]):
    cli("run", f"{shop}:doubter", "hi", "--run-id", "d")
    with chdir(project):
        for words, expected in (
            (["runs"], "waiting"),
            (["show", "d"], "savepoint decide d "),
            (["log", "d"], "in_doubt"),
            (["verify"], "no damage"),
            (["--version"], ""),
            (["--help"], "Exit codes"),
        ):
            assert main(words) == Exit.DONE
            out = capfd.readouterr().out
            assert expected in out
            assert "\x1b" not in out


def test_an_unexpected_error_is_one_line_and_a_traceback_only_where_it_is_wanted(
    project: Path, shop: str, capfd: pytest.CaptureFixture[str]
):
    with chdir(project):
        assert main(["run", f"{shop}:odd", "hi"]) == Exit.FAILED
        err = capfd.readouterr().err
        assert "ZeroDivisionError" in err.splitlines()[-1]
        assert "Traceback" not in err
        assert main(["run", f"{shop}:odd", "hi", "--debug"]) == Exit.FAILED
        assert "Traceback" in capfd.readouterr().err


def test_a_wrong_target_is_refused_and_not_kept(shop: str, cli: Cli):
    assert cli("run", f"{shop}:doubter", "hi", "--run-id", "r")[0] == Exit.WAITING
    assert cli("resume", "r", "--target", f"{shop}:echo")[0] != Exit.DONE
    question = cli("show", "r")[1][0]["questions"][0]["id"]
    assert cli("decide", "r", question, "performed", "--value", '"yes"')[0] == Exit.DONE
    assert cli("resume", "r")[0] == Exit.DONE  # with the target that it was started with


def test_a_reader_that_goes_away_does_not_disturb_the_run(project: Path, shop: str):
    command = [sys.executable, "-m", "agent.cli", "run", f"{shop}:payer", "pay", "--run-id", "r", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(command, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.close()
        errors = run.stderr.read().decode()
        assert run.wait(timeout=60) == Exit.DONE, errors
    assert "Traceback" not in errors
    assert (project / "ledger").read_text() == "3\n"


def test_what_the_model_did_wrong_is_shown_as_an_outcome(project: Path, cli: Cli):
    script = project / "script.json"
    script.write_text('[{"call": "nosuch"}, {"say": "done"}]')
    (project / "files").mkdir()
    words = (
        "run",
        "worker",
        "go",
        "--model",
        f"script:{script}",
        "--workspace",
        str(project / "files"),
        "--run-id",
        "r",
    )
    code, objects, _ = cli(*words)
    assert code == Exit.DONE
    (outcome,) = [each for each in objects if each.get("event") == "outcome"]
    assert (outcome["failed"], outcome["tool"]) == (True, "nosuch")
