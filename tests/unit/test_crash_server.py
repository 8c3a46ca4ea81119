"""The fork server: one process a life, killed where it is told, and nothing of it is left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from savepoint.crash import ForkServer, Kill, LifeFailed

LIVES = Path(__file__).with_name("lives")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer("some_lives:live", path=[LIVES]) as running:
        yield running


def gone(words: str) -> bool:
    commands = [each.read_bytes() for each in Path("/proc").glob("[0-9]*/cmdline") if each.exists()]
    return not any(words.encode() in each.replace(b"\0", b" ") for each in commands)


def test_each_life_is_a_process_of_its_own(server: ForkServer) -> None:
    pids = {server.attempt({"do": "nothing"}).report["pid"] for _ in range(3)}
    assert len(pids) == 3
    assert os.getpid() not in pids


def test_arrivals_are_told_and_each_can_be_the_last(server: ForkServer) -> None:
    whole = server.attempt({"do": "points"})
    assert [str(each) for each in whole.arrivals] == ["enter:1", "body.before:1", "enter:2"]
    for each in whole.arrivals:
        reply = server.attempt({"do": "points"}, each)
        assert reply.killed
        assert not reply.report
    assert not server.attempt({"do": "points"}, Kill("enter", 3)).killed


def test_a_large_report_arrives_whole(server: ForkServer) -> None:
    assert len(server.attempt({"do": "nothing", "big": 1_000_000}).report["big"]) == 1_000_000


def test_a_life_that_raises_is_no_report(server: ForkServer) -> None:
    with pytest.raises(LifeFailed, match="as planned"):
        server.attempt({"do": "raise"})
    assert server.attempt({"do": "nothing"}).report


def test_a_life_that_never_ends_is_ended(server: ForkServer) -> None:
    began = time.monotonic()
    assert server.attempt({"do": "sleep", "timeout_s": 0.2}).timed_out
    assert time.monotonic() - began < 5


def test_what_a_life_leaves_behind_is_named_and_ended(server: ForkServer) -> None:
    assert server.attempt({"do": "child"}).children == ["sleep 61"]
    assert gone("sleep 61")
    assert not server.attempt({"do": "short child"}).children


def test_a_fresh_interpreter_lives_the_same(server: ForkServer) -> None:
    assert server.fresh({"do": "nothing"}, PYTHONHASHSEED="7").report["seed"] == "7"
    assert server.fresh({"do": "points"}, Kill("enter", 2)).killed
    with pytest.raises(LifeFailed, match="as planned"):
        server.fresh({"do": "raise"})


def test_threads_at_import_are_named() -> None:
    with ForkServer("threaded_lives:live", path=[LIVES]) as threaded, pytest.raises(LifeFailed, match="sleeper"):
        threaded.attempt({})


def test_a_thread_that_is_about_to_end_is_waited_for() -> None:
    with ForkServer("ending_lives:live", path=[LIVES]) as ending:
        assert ending.attempt({}).report == {"threads": 1}


def test_a_server_whose_client_was_killed_ends_with_its_child(tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(
        "from pathlib import Path\n"
        "from savepoint.crash import ForkServer\n"
        f"server = ForkServer('some_lives:live', path=[Path({str(LIVES)!r})])\n"
        "server.attempt({'do': 'nothing'})\n"
        "print('ready', flush=True)\n"
        "server.attempt({'do': 'sleep', 'marker': 'of-a-killed-client'})\n"
    )
    env = {**os.environ, "PYTHONPATH": str(LIVES.parents[2] / "src")}
    client = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=env)
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    time.sleep(0.2)
    below = Path(f"/proc/{client.pid}/task/{client.pid}/children").read_text().split()
    child = Path(f"/proc/{below[0]}/task/{below[0]}/children").read_text().split()
    assert len(child) == 1
    client.send_signal(signal.SIGKILL)
    client.wait()
    client.stdout.close()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{each}").exists() for each in (*below, *child)):
        assert time.monotonic() < deadline, "it outlived its client"
        time.sleep(0.02)
