"""Commands are real: what is asserted of processes is read from the kernel."""
# ruff: noqa: ASYNC220  nothing else runs in a test's loop; parameters of cases

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.worker._availability import available
from agent.worker._errors import NotRun
from agent.worker._process import run_command
from agent.worker._sandbox import Sandbox
from agent.worker.child._output import Output

SOURCE = Path(__file__).parents[2] / "src"
OWNER = """
import asyncio, sys
from pathlib import Path
from agent.worker._process import run_command
from agent.worker._sandbox import Sandbox
root = Path(sys.argv[1])
asyncio.run(run_command(sys.argv[2], cwd=root, sandbox=Sandbox(workspace=root) if sys.argv[3] == "in" else None))
"""


@pytest.fixture(params=["in", "out"])
def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> Sandbox | None:
    """Every test of this fixture runs inside and outside of a sandbox."""
    if request.param == "in" and not available():
        pytest.skip(available().reason)
    return Sandbox(workspace=tmp_path) if request.param == "in" else None


class Mortal:
    """A named pipe whose write end the command's processes hold: its end of file is their death, seen without waiting
    for any particular time."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "mortal"
        os.mkfifo(self.path)
        self._read = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)

    async def line(self) -> bytes:
        """What the command wrote; waits for it."""
        return await asyncio.to_thread(self._next)

    def _next(self, limit_s: float = 20.0) -> bytes:
        assert select.select([self._read], [], [], limit_s)[0], "nothing within the limit: still alive"
        return os.read(self._read, 4096)

    def all_dead(self) -> bool:
        """Every holder of the write end is gone."""
        while data := self._next():
            assert data
        os.close(self._read)
        return True


# Three generations hold the pipe: the shell, a child, and one that left the session as daemons do.
FAMILY = "exec 7>mortal; setsid sleep 1000 & (sleep 1000 & sleep 1000) & echo started >&7; "


async def test_output_of_both_streams_and_the_exit_code(tmp_path: Path, sandbox: Sandbox | None):
    done = await run_command("echo one; echo two >&2; exit 7", cwd=tmp_path, sandbox=sandbox)
    assert (done.output, done.exit_code, done.timed_out) == ("one\ntwo\n", 7, False)
    assert done.sandboxed is (sandbox is not None)


async def test_death_by_a_signal_is_128_and_its_number(tmp_path: Path, sandbox: Sandbox | None):
    done = await run_command("kill -SEGV $$", cwd=tmp_path, sandbox=sandbox)
    assert done.exit_code == 128 + signal.SIGSEGV


async def test_a_program_is_run_without_a_shell(tmp_path: Path, sandbox: Sandbox | None):
    done = await run_command(["echo", "$HOME;", "*"], cwd=tmp_path, sandbox=sandbox)
    assert done.output == "$HOME; *\n"


async def test_there_is_no_input(tmp_path: Path, sandbox: Sandbox | None):
    assert (await run_command("cat; echo end", cwd=tmp_path, sandbox=sandbox)).output == "end\n"


async def test_a_closed_pipe_kills_a_program_as_programs_expect(tmp_path: Path, sandbox: Sandbox | None):
    done = await run_command("yes | head -1; echo ${PIPESTATUS[0]}", cwd=tmp_path, sandbox=sandbox)
    assert done.output == f"y\n{128 + signal.SIGPIPE}\n"


async def test_the_environment_is_stated_and_not_ours(tmp_path: Path, sandbox: Sandbox | None):
    assert "PYTEST_CURRENT_TEST" in os.environ
    done = await run_command(["env"], cwd=tmp_path, env={"EXTRA": "1"}, sandbox=sandbox)
    names = {line.partition("=")[0] for line in done.output.splitlines()}
    stated = {"PATH", "LANG", "TZ", "TERM", "TMPDIR", "PAGER", "GIT_TERMINAL_PROMPT", "HOME", "EXTRA"}
    assert names == stated | {"PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED"}


async def test_what_cannot_be_started_says_why(tmp_path: Path, sandbox: Sandbox | None):
    with pytest.raises(NotRun, match="nonesuch: no such program"):
        await run_command(["nonesuch"], cwd=tmp_path, sandbox=sandbox)
    with pytest.raises(NotRun, match="directory must exist"):
        await run_command("true", cwd=tmp_path / "nowhere", sandbox=sandbox)
    with pytest.raises(NotRun, match="there must be a program"):
        await run_command([], cwd=tmp_path, sandbox=sandbox)


async def test_a_flood_is_bounded_and_its_ends_are_kept(tmp_path: Path, sandbox: Sandbox | None):
    text = "echo first; head -c 50000000 /dev/zero; echo last"
    done = await run_command(text, cwd=tmp_path, output_limit_bytes=1000, sandbox=sandbox)
    assert done.truncated_bytes == 50_000_011 - 1000
    assert done.output.startswith("first\n\0")
    assert done.output.endswith("\0last\n")
    assert "[... 49999011 bytes left out ...]" in done.output
    assert len(done.output) < 1100


async def test_an_endless_flood_ends_at_the_timeout(tmp_path: Path, sandbox: Sandbox | None):
    done = await run_command(["yes"], cwd=tmp_path, timeout_s=0.3, sandbox=sandbox)
    assert done.timed_out
    assert done.exit_code == 128 + signal.SIGTERM
    assert len(done.output) < 33_000


async def test_a_timeout_kills_every_generation(tmp_path: Path, sandbox: Sandbox | None):
    mortal = Mortal(tmp_path)
    done = await run_command(FAMILY + "wait", cwd=tmp_path, timeout_s=1.0, sandbox=sandbox)
    assert done.timed_out
    assert mortal.all_dead()


async def test_what_ignores_the_polite_signal_is_killed(tmp_path: Path, sandbox: Sandbox | None):
    mortal = Mortal(tmp_path)
    text = "trap '' TERM; exec 7>mortal; echo ready; while :; do sleep 1000; done"
    done = await run_command(text, cwd=tmp_path, timeout_s=1.0, grace_s=0.2, sandbox=sandbox)
    assert (done.timed_out, done.exit_code, done.output) == (True, 128 + signal.SIGKILL, "ready\n")
    assert mortal.all_dead()


async def test_what_heeds_the_polite_signal_may_tidy_up(tmp_path: Path, sandbox: Sandbox | None):
    text = "trap 'echo tidy > done; exit 3' TERM; while :; do sleep 0.01; done"
    done = await run_command(text, cwd=tmp_path, timeout_s=1.0, grace_s=20, sandbox=sandbox)
    assert (done.timed_out, done.exit_code) == (True, 3)
    assert (tmp_path / "done").read_text() == "tidy\n"


async def test_the_background_ends_with_the_command(tmp_path: Path, sandbox: Sandbox | None):
    mortal = Mortal(tmp_path)
    done = await run_command(FAMILY + "echo over", cwd=tmp_path, sandbox=sandbox)
    assert (done.output, done.exit_code, done.timed_out) == ("over\n", 0, False)
    assert mortal.all_dead()


async def test_a_process_that_made_its_own_group_ends_too(tmp_path: Path, sandbox: Sandbox | None):
    mortal = Mortal(tmp_path)
    await run_command("exec 7>mortal; timeout 1000 sleep 1000 & echo over", cwd=tmp_path, sandbox=sandbox)
    assert mortal.all_dead()


async def test_cancelling_kills_and_goes_on(tmp_path: Path, sandbox: Sandbox | None):
    mortal = Mortal(tmp_path)
    running = asyncio.create_task(run_command(FAMILY + "wait", cwd=tmp_path, sandbox=sandbox))
    assert await mortal.line() == b"started\n"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert mortal.all_dead()


@pytest.mark.parametrize("where", ["in", "out"])
async def test_the_owners_sigkill_leaves_no_process(tmp_path: Path, where: str):
    if where == "in" and not available():
        pytest.skip(available().reason)
    mortal = Mortal(tmp_path)
    arguments = [sys.executable, "-c", OWNER, str(tmp_path), FAMILY + "wait", where]
    with subprocess.Popen(arguments, env={"PYTHONPATH": str(SOURCE)}) as owner:
        assert await mortal.line() == b"started\n"
        owner.kill()
    assert owner.returncode == -signal.SIGKILL
    assert mortal.all_dead()


async def test_the_supervisors_own_end_ends_the_command(tmp_path: Path, sandbox: Sandbox | None):
    mortal = Mortal(tmp_path)
    running = asyncio.create_task(run_command(FAMILY + "wait", cwd=tmp_path, sandbox=sandbox))
    assert await mortal.line() == b"started\n"
    os.kill(_only_child(), signal.SIGTERM)
    assert (await running).exit_code == 128 + signal.SIGKILL
    assert mortal.all_dead()


async def test_many_commands_at_once_keep_their_own_output(tmp_path: Path, sandbox: Sandbox | None):
    done = await asyncio.gather(*(run_command(f"echo {n}", cwd=tmp_path, sandbox=sandbox) for n in range(8)))
    assert [one.output for one in done] == [f"{n}\n" for n in range(8)]


def _only_child() -> int:
    children = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/stat")
        if path.exists() and path.read_text().rpartition(") ")[2].split()[1] == str(os.getpid())
    ]
    (child,) = [pid for pid in children if b"child._supervise" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return child


@pytest.mark.parametrize("limit", [0, 1, 2, 7, 100])
def test_output_keeps_what_a_slice_would(limit: int):
    for sizes in ([0], [1] * 250, [3, 200_000, 5], [90, 20], [50, 50, 1]):
        output, whole = Output(limit), b""
        for number, size in enumerate(sizes):
            data = bytes([number % 251]) * size
            output.add(data)
            whole += data
        head, tail, dropped = output.kept()
        assert len(head) + len(tail) == min(limit, len(whole))
        assert head == whole[: len(head)]
        assert tail == whole[len(whole) - len(tail) :]
        assert dropped == len(whole) - len(head) - len(tail)


async def test_a_command_costs_milliseconds(tmp_path: Path):
    start = time.monotonic()
    await run_command(["true"], cwd=tmp_path)
    assert time.monotonic() - start < 2.0  # a loose bound: a lost wake-up would be `timeout_s`
