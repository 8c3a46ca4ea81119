"""The command line as scripts use it: no terminal, closed stdin, signals, kills, and what the exit codes say."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.cli._exit import Exit

SOURCE = Path(__file__).parents[2] / "src"
PROJECT = '''
import asyncio, os, signal
from pathlib import Path
from agent import Agent, Context, Idempotency, tool
from agent.testing import ScriptedModel, call, calls, say

HERE = Path(__file__).parent

def line(path, text):
    with path.open("a") as file:
        file.write(text + "\\n")
        os.fsync(file.fileno())

@tool(idempotency=Idempotency.ONCE)
async def pay(amount: int) -> str:
    """Pays, and dies or hangs if it is told to."""
    line(HERE / "ledger", str(amount))
    if os.environ.get("PAY") == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if os.environ.get("PAY") == "hangs":
        await asyncio.Event().wait()
    return "paid"

@tool(idempotency=Idempotency.READ)
async def wait() -> str:
    """Hangs unless there is a file `go`."""
    print("noise on stdout", flush=True)
    os.write(1, b"noise below stdout\\n")
    while not (HERE / "go").exists():
        await asyncio.sleep(0.01)
    return "waited"

@tool(idempotency=Idempotency.CONTAINED)
async def write(path: str, text: str, context: Context) -> str:
    """Writes a file."""
    (context.world.system("files").path / path).write_text(text)
    return "written"

payer = Agent(name="payer", tools=(pay,), model=ScriptedModel([call("pay", amount=3), say("done")]))
waiter = Agent(name="waiter", tools=(wait,), model=ScriptedModel([call("wait"), say("done")]))
writer = Agent(name="writer", tools=(write,), model=ScriptedModel([call("write", path="old", text="new"), say("done")]))
echo = Agent(name="echo", model=ScriptedModel([lambda request: say(request.messages[0].content)]))
'''
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE), "NO_COLOR": "", "FORCE_COLOR": "1"}
COMMAND = [sys.executable, "-m", "agent.cli"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(PROJECT)
    (tmp_path / ".git").mkdir()
    return tmp_path


def cli(project: Path, *words: str, text: str | None = None, **environment: str) -> tuple[int, list[Any], str]:
    """Exit code, the JSON objects of stdout, stderr. Without `text` stdin is closed, not merely empty."""
    done = subprocess.run(
        [*COMMAND, *words, "--json"],
        cwd=project,
        env={**ENVIRONMENT, **environment},
        input=text,
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
        preexec_fn=None if text is not None else lambda: os.close(0),
    )
    assert "\x1b" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def started(project: Path, *words: str, until: str, **environment: str) -> subprocess.Popen[str]:
    """A run in its own process, at the moment when its `until` event is out."""
    process = subprocess.Popen(
        [*COMMAND, "run", *words, "--json"],
        cwd=project, env={**ENVIRONMENT, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["event"] == until:
            return process
    raise AssertionError(f"the run ended before {until}: {process.communicate()[1]}")


def ended(process: subprocess.Popen[str]) -> tuple[int, list[Any], str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, [json.loads(line) for line in out.splitlines()], err


def ledger(project: Path) -> list[str]:
    path = project / "ledger"
    return path.read_text().splitlines() if path.exists() else []


def test_a_run_parks_is_decided_and_resumed_by_id_without_a_terminal(project: Path):
    killed = started(project, "shop:payer", "pay", "--run-id", "ticket", until="started", PAY="dies")
    assert ended(killed)[0] == -signal.SIGKILL
    code, (_, last), _ = cli(project, "resume", "ticket")
    assert (code, last["status"], last["run_id"]) == (Exit.WAITING, "waiting", "ticket")
    (question,) = last["questions"]
    assert (question["kind"], question["effect"], question["arguments"]) == ("in_doubt", "pay", {"amount": 3})
    assert question["verdicts"] == ["performed", "redo", "fail"]
    code, objects, err = cli(project, "resume", "ticket")
    assert (code, objects[-1]["questions"][0]["id"]) == (Exit.WAITING, question["id"])
    assert "savepoint resume ticket" in err
    code, (decided,), _ = cli(project, "decide", "tick", question["id"][:5], "performed", "--value", '"paid"')
    assert (code, decided["open"], decided["next"]) == (Exit.DONE, [], "savepoint resume ticket")
    code, objects, _ = cli(project, "resume", "ticket")
    assert (code, objects[0]["run_id"], objects[0]["resumed_from"]) == (Exit.DONE, "ticket", 0)
    assert (objects[-1]["status"], objects[-1]["output"]) == ("completed", "done")
    assert ledger(project) == ["3"]
    code, (shown,), _ = cli(project, "show", "ticket")
    fields = {"run_id", "status", "orphaned", "step", "savepoint", "resumable_from", "attempts", "questions", "world"}
    assert (code, fields - shown.keys()) == (Exit.DONE, set())
    code, receipts, _ = cli(project, "log", "ticket")
    assert [(each["effect"], each["idempotency"], each["status"], each["attempt"]) for each in receipts] == [
        ("agent/model", "read", "performed", 1), ("pay", "once", "performed", 3), ("agent/model", "read", "performed", 3),
    ]  # fmt: skip


def test_the_input_comes_as_an_argument_from_stdin_or_from_a_file(project: Path):
    (project / "task.txt").write_text("from a file")
    given = (("as text", None), ("-", "from stdin"), ("@task.txt", None))
    outputs = [cli(project, "run", "shop:echo", word, text=text)[1][-1]["output"] for word, text in given]
    assert outputs == ["as text", "from stdin", "from a file"]
    assert cli(project, "run", "shop:echo", "-")[0] == Exit.USAGE  # closed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_and_the_run_goes_on_later(project: Path, number: signal.Signals):
    process = started(project, "shop:waiter", "hi", "--run-id", "r", until="call")
    process.send_signal(number)
    code, objects, err = ended(process)
    assert (code, objects[-1]["status"], objects[-1]["run_id"]) == (Exit.INTERRUPTED, "interrupted", "r")
    assert "noise below stdout" in err  # and not on stdout, which was parsed as JSON
    assert cli(project, "show", "r")[1][0]["resumable_from"] == 0
    (project / "go").touch()
    code, objects, _ = cli(project, "resume", "r")
    assert (code, objects[-1]["status"], objects[-1]["output"]) == (Exit.DONE, "completed", "done")


def test_a_signal_inside_a_once_call_leaves_a_question_and_never_a_second_call(project: Path):
    process = started(project, "shop:payer", "pay", "--run-id", "r", until="call", PAY="hangs")
    while not ledger(project):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    code, objects, _ = ended(process)
    assert (code, objects[-1]["status"]) == (Exit.INTERRUPTED, "waiting")
    assert [question["effect"] for question in objects[-1]["questions"]] == ["pay"]
    assert cli(project, "resume", "r")[0] == Exit.WAITING
    assert ledger(project) == ["3"]


def test_a_run_that_is_alive_is_held_and_stops_when_it_is_cancelled(project: Path):
    process = started(project, "shop:waiter", "hi", "--run-id", "r", until="call")
    for words in (("resume", "r"), ("run", "shop:waiter", "hi", "--run-id", "r")):
        code, (error,), err = cli(project, *words)
        assert (code, error["error"]["code"]) == (Exit.HELD, "held")
        assert "r is held by process" in err
    code, (asked,), _ = cli(project, "cancel", "r")
    assert (code, asked["requested"], asked["status"]) == (Exit.DONE, True, "running")
    code, objects, _ = ended(process)
    assert (code, objects[-1]["status"]) == (Exit.CONFLICT, "cancelled")
    assert cli(project, "resume", "r")[0] == Exit.CONFLICT
    assert cli(project, "cancel", "r")[0] == Exit.DONE


def test_a_killed_run_is_an_orphan_that_can_be_cancelled_or_resumed(project: Path):
    for run_id in ("a", "b"):
        process = started(project, "shop:waiter", "hi", "--run-id", run_id, until="call")
        process.kill()
        ended(process)
    listed = {each["run_id"]: each for each in cli(project, "runs")[1]}
    assert {run_id: (each["status"], each["orphaned"]) for run_id, each in listed.items()} == {
        "a": ("running", True), "b": ("running", True),
    }  # fmt: skip
    assert cli(project, "cancel", "a")[1][0]["status"] == "cancelled"
    (project / "go").touch()
    assert cli(project, "resume", "b")[0] == Exit.DONE


KILLED_MERGE = """
import asyncio, os, signal, sys
from pathlib import Path
from savepoint import Workspace, World, open_store
from savepoint._merge_run import merge_run

class Dies(Workspace):
    async def apply(self, contents, old, new):
        os.kill(os.getpid(), signal.SIGKILL)

async def main(store, host):
    async with open_store(store, create=False) as opened:
        await merge_run(opened, "r", World({"files": Dies(Path(host))}))

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_run_works_in_a_fork_and_a_killed_merge_is_finished_by_repeating(project: Path):
    host = project / "host"
    host.mkdir()
    (host / "old").write_text("before")
    code, objects, err = cli(project, "run", "shop:writer", "hi", "--run-id", "r", "--workspace", "host")
    assert (code, objects[-1]["changes"]) == (Exit.DONE, [{"system": "files", "kind": "changed", "path": "old"}])
    assert (host / "old").read_text() == "before"
    assert "savepoint merge r" in err
    (host / "old").write_text("mine")
    code, (error,), _ = cli(project, "merge", "r")
    assert (code, error["error"]["code"]) == (Exit.CONFLICT, "conflict")
    assert "old" in error["error"]["message"]
    assert (host / "old").read_text() == "mine"
    (host / "old").write_text("before")
    store = project / ".savepoint"
    words = [sys.executable, "-c", KILLED_MERGE, str(store), str(host)]
    assert subprocess.run(words, env=ENVIRONMENT, timeout=60, check=False).returncode == -signal.SIGKILL
    assert cli(project, "show", "r")[1][0]["world"]["settled"] == "merging"
    assert cli(project, "discard", "r")[0] == Exit.CONFLICT
    code, (settled,), _ = cli(project, "merge", "r")
    assert (code, settled["settled"], (host / "old").read_text()) == (Exit.DONE, "merged", "new")
    assert cli(project, "merge", "r")[0] == Exit.DONE
    code, objects, _ = cli(project, "run", "shop:writer", "hi", "--run-id", "s", "--workspace", "host", "--merge")
    assert (code, objects[-1]["merged"]) == (Exit.DONE, True)


def test_without_the_extra_it_says_what_to_install():
    program = (
        "import sys; sys.modules['cyclopts'] = None; from agent.cli import main; sys.exit(main(['runs', '--json']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == Exit.USAGE
    assert "portable-savepoints[cli]" in json.loads(done.stdout)["error"]["next"]
    assert "pip install 'portable-savepoints[cli]'" in done.stderr
