"""The tracer: what it counts, that a kill before a call prevents it and one after keeps it, and that nothing is left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from savepoint._errors import Missing
from savepoint.crash import Kill
from savepoint.crash._timed import run_untraced
from savepoint.crash._trace import Traced, refused, run

if reason := refused():
    pytest.skip(reason, allow_module_level=True)

Run = Callable[..., Traced]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "at").mkdir()
    return tmp_path / "at"


@pytest.fixture
def traced(place: Path) -> Run:
    def one(*argv: str, env: Mapping[str, str] | None = None, timeout_s: float = 30, **also: object) -> Traced:
        return run(
            argv,
            cwd=place,
            env={**os.environ, **(env or {})},
            stdout=place.parent / "out",
            stderr=place.parent / "err",
            timeout_s=timeout_s,
            **also,
        )

    return one


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-I", "-S", "-c", code


def gone(pid: int, within_s: float = 5) -> bool:
    """The process ended, or waits for a parent that does not look."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


ALL = """
import os
fd = os.open("a", os.O_RDWR | os.O_CREAT)
os.write(fd, b"one"); os.pwrite(fd, b"two", 9); os.writev(fd, [b"x"]); os.ftruncate(fd, 4); os.posix_fallocate(fd, 0, 8)
os.fsync(fd); os.fdatasync(fd); os.fchmod(fd, 0o600); os.close(fd)
os.open("a", os.O_RDWR | os.O_CREAT); os.open("a", os.O_RDONLY)
os.open("a", os.O_WRONLY | os.O_TRUNC)
os.open("a", os.O_WRONLY | os.O_TRUNC)
os.truncate("a", 2)
os.mkdir("d"); here = os.open("d", os.O_RDONLY)
os.rename("a", "b", dst_dir_fd=here); os.link("d/b", "c"); os.symlink("b", "s"); os.chmod("c", 0o644)
os.fsync(here); os.unlink("b", dir_fd=here); os.rmdir("d")
for missing in (lambda: os.unlink("z"), lambda: os.mkdir("/proc"), lambda: os.rename("z", "y"), lambda: os.mkdir("c")):
    try: missing()
    except OSError: pass
"""


def test_each_call_that_lasts_counts_once_and_in_order(traced: Run) -> None:
    found = traced(*python(ALL))
    assert (found.code, found.signal, found.killed, found.timed_out, found.children) == (0, None, False, False, [])
    assert found.calls == [
        *("open(a)", "write(a)", "pwrite(a)", "writev(a)", "ftruncate(a)", "fallocate(a)"),
        *("fsync(a)", "fdatasync(a)", "fchmod(a)", "open(a)", "truncate(a)", "mkdir(d)", "rename(a -> d/b)"),
        *("link(d/b -> c)", "symlink(s -> b)", "chmod(c)", "fsync(d)", "unlink(d/b)", "rmdir(d)"),
    ]
    numbers = range(1, len(found.calls) + 1)
    assert found.arrivals == [Kill("call", n, after) for n in numbers for after in (False, True)]


def test_what_does_not_last_does_not_count(traced: Run, place: Path) -> None:
    code = """
import os, sys, tempfile, asyncio, socket
print("out"); print("err", file=sys.stderr); sys.stdout.flush()
r, w = os.pipe(); os.write(w, b"x")
open("/dev/null", "w").write("x"); open("/proc/self/comm", "w").write("x")
one, other = socket.socketpair(); one.send(b"x"); one.sendmsg([b"y"]); os.write(one.fileno(), b"z")
os.write(os.memfd_create("m"), b"x")
fd = os.open("t", os.O_RDWR | os.O_CREAT); os.unlink("t"); os.write(fd, b"x")
asyncio.run(asyncio.to_thread(print))
socket.getaddrinfo("127.0.0.1", 80)
"""
    found = traced(*python(code))
    assert found.code == 0, (place.parent / "err").read_text()
    assert found.calls == ["open(t)", "unlink(t)"]
    assert (place.parent / "out").read_text() == "out\n\n"
    assert (place.parent / "err").read_text() == "err\n"


def test_compiled_modules_do_not_count(traced: Run, place: Path) -> None:
    (place / "mine.py").write_text("x = 1\n")
    found = traced(sys.executable, "-S", "-c", "import mine", env={"PYTHONDONTWRITEBYTECODE": ""})
    assert (found.code, found.calls) == (0, [])
    assert list((place / "__pycache__").iterdir())


def test_messages_to_others_count(traced: Run, place: Path) -> None:
    code = """
import socket
there = socket.create_server(("127.0.0.1", 0)); here = socket.create_connection(there.getsockname()); here.sendall(b"x")
asks = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); asks.connect(there.getsockname()); asks.send(b"x")
"""
    found = traced(*python(code))
    assert [each.partition("(")[0] for each in found.calls] == ["connect", "sendto", "sendto"], found.calls
    assert found.calls[0].startswith("connect(127.0.0.1:")


STEPS = "import os; fd = os.open('f', os.O_RDWR | os.O_CREAT); [os.write(fd, b'%d' % n) for n in range(5)]"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("nth", [1, 2, 4, 6])
def test_a_kill_before_a_call_prevents_it_and_one_after_keeps_it(
    traced: Run, place: Path, nth: int, after: bool
) -> None:
    for _ in range(5):
        (place / "f").unlink(missing_ok=True)
        found = traced(*python(STEPS), kill=Kill("call", nth, after))
        assert (found.killed, found.code, found.signal) == (True, None, None)
        done = nth if after else nth - 1
        assert (place / "f").exists() == (done > 0)
        assert not done or (place / "f").read_text() == "01234"[: done - 1]
        assert len(found.calls) == nth


def test_a_kill_that_never_comes_kills_nothing(traced: Run, place: Path) -> None:
    found = traced(*python(STEPS), kill=Kill("call", 99))
    assert (found.killed, found.code) == (False, 0)
    assert (place / "f").read_text() == "01234"


def test_calls_of_threads_and_descendants_stand_in_one_order(traced: Run, place: Path) -> None:
    code = """
import os, subprocess, threading, asyncio
def here(name): open(name, "w").write("x")
here("main")
for n in range(3):
    thread = threading.Thread(target=here, args=(f"thread{n}",)); thread.start(); thread.join()
pid = os.fork()
if not pid:
    here("forked")
    subprocess.run(["sh", "-c", "echo x > shell"], check=True)
    os._exit(0)
os.waitpid(pid, 0)
async def more():
    process = await asyncio.create_subprocess_exec("sh", "-c", "echo x > async; sh -c 'echo x > deep'")
    assert await process.wait() == 0
asyncio.run(more())
"""
    found = traced(sys.executable, "-c", code)
    assert found.code == 0, (place.parent / "err").read_text()
    names = ["main", "thread0", "thread1", "thread2", "forked", "shell", "async", "deep"]
    assert found.calls == [f"{call}({name})" for name in names for call in ("open", "write")]
    killed = traced(sys.executable, "-c", code, kill=Kill("call", 11))
    assert killed.killed
    assert killed.calls[-1] == "open(shell)"


def test_an_exec_from_a_thread_is_followed(traced: Run, place: Path) -> None:
    code = """
import os, threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
threading.Thread(target=os.execv, args=("/bin/sh", ["sh", "-c", "echo x > f; exit 7"])).start()
time.sleep(60)
"""
    found = traced(*python(code))
    assert (found.code, found.calls) == (7, ["open(f)", "write(f)"])


def test_signals_reach_the_program(traced: Run, place: Path) -> None:
    code = """
import os, signal, subprocess, time
seen = []
for each in (signal.SIGALRM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGTRAP): signal.signal(each, lambda n, _: seen.append(n))
signal.setitimer(signal.ITIMER_REAL, 0.02)
os.kill(os.getpid(), signal.SIGUSR1); os.kill(os.getpid(), signal.SIGTRAP)
for stop in (signal.SIGSTOP, signal.SIGTSTP):
    child = subprocess.Popen(["sleep", "60"], process_group=0)  # a group whose parent is not in it: it may be stopped
    child.send_signal(stop)
    assert os.WIFSTOPPED(os.waitpid(child.pid, os.WUNTRACED)[1])
    child.send_signal(signal.SIGCONT)
    assert os.WIFCONTINUED(os.waitpid(child.pid, os.WCONTINUED)[1])
    child.send_signal(signal.SIGTERM)
    assert os.WTERMSIG(os.waitpid(child.pid, 0)[1]) == signal.SIGTERM
    child.returncode = 0
time.sleep(0.05)
assert {signal.SIGALRM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGTRAP} <= set(seen), seen
"""
    found = traced(*python(code))
    assert (found.code, (place.parent / "err").read_text()) == (0, "")


def test_an_end_by_a_signal_of_its_own_is_named(traced: Run) -> None:
    found = traced("sh", "-c", "kill -SEGV $$")
    assert (found.code, found.signal, found.killed) == (None, signal.SIGSEGV, False)


@pytest.mark.parametrize("start", ["sleep 61 & echo $! > pid; sleep 0.3", "setsid sleep 61 & echo $! > pid; sleep 0.3"])
def test_a_child_left_behind_is_named_and_killed(traced: Run, place: Path, start: str) -> None:
    found = traced("sh", "-c", start)
    assert found.code == 0
    assert found.children == ["sleep 61"]
    assert gone(int((place / "pid").read_text()))


def test_a_child_that_ends_soon_after_is_not_left_behind(traced: Run) -> None:
    assert traced("sh", "-c", "sleep 0.05 &").children == []


def test_a_kill_takes_the_whole_tree(traced: Run, place: Path) -> None:
    found = traced("sh", "-c", "sleep 61 & echo $! > pid; setsid sh -c 'sleep 62' & echo x > f", kill=Kill("call", 3))
    assert found.killed
    assert found.calls[-1] == "open(f)"
    assert gone(int((place / "pid").read_text()))


def test_one_that_does_not_end_is_killed_with_its_children(traced: Run, place: Path) -> None:
    began = time.monotonic()
    found = traced("sh", "-c", "sleep 61 & echo $! > pid; sleep 62", timeout_s=0.3)
    assert (found.timed_out, found.killed, found.code, found.signal) == (True, False, None, None)
    assert time.monotonic() - began < 5
    assert gone(int((place / "pid").read_text()))


def test_a_kill_by_time(traced: Run) -> None:
    found = traced("sleep", "61", kill=Kill("time", 80))
    assert (found.killed, found.timed_out, found.code) == (True, False, None)
    found = traced("true", kill=Kill("time", 5000))
    assert (found.killed, found.code) == (False, 0)


RIG = """
import os, sys
from pathlib import Path
from savepoint.crash._timed import run_untraced
from savepoint.crash._trace import run
at = Path(sys.argv[1])
argv = ["/bin/sh", "-c", "sleep 61 & echo $! > pid; setsid sleep 62 & echo $! > other; echo $$ > main; sleep 63"]
way = run if sys.argv[2] == "traced" else run_untraced
way(argv, cwd=at, env=os.environ, stdout=at / "out", stderr=at / "err", timeout_s=60)
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("way", ["traced", "untraced"])
def test_nothing_lives_on_when_the_rig_is_killed(place: Path, way: str, sent: signal.Signals) -> None:
    rig = subprocess.Popen([sys.executable, "-c", RIG, str(place), way], stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 20
        while not ((place / "main").exists() and (place / "main").read_text()) and time.monotonic() < until:
            time.sleep(0.01)
    finally:
        rig.send_signal(sent)
        rig.wait()
    found = {name: int((place / name).read_text()) for name in ("pid", "other", "main")}
    assert gone(found["main"])
    assert gone(found["pid"])
    if way == "traced" or sent is signal.SIGINT:
        assert gone(found["other"])
    elif not gone(found["other"], within_s=0.2):  # it left the session: known, and said so
        os.kill(found["other"], signal.SIGKILL)


def test_two_programs_are_traced_at_once(place: Path) -> None:
    def one(name: str) -> Traced:
        at = place / name
        at.mkdir()
        return run(python(STEPS), cwd=at, env={}, stdout=at / "out", stderr=at / "err", timeout_s=60)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(one, map(str, range(12))))
    assert {tuple(each.calls) for each in found} == {("open(f)", *["write(f)"] * 5)}


def test_other_children_of_the_caller_are_left_alone(traced: Run) -> None:
    mine = subprocess.Popen(["sh", "-c", "exit 5"])
    assert traced("true").code == 0
    assert mine.wait() == 5


def test_what_cannot_be_started_is_named(traced: Run, place: Path) -> None:
    with pytest.raises(Missing, match="no-such-program"):
        traced("no-such-program")
    (place / "bad").write_bytes(b"\0\1\2")
    (place / "bad").chmod(0o700)
    assert traced("./bad").code == 127
    assert "cannot be started" in (place.parent / "err").read_text()


FORKED = """
import os, sys
from pathlib import Path
from savepoint.crash import Kill
from savepoint.crash._ptrace import trace_me
from savepoint.crash._trace import follow
inner, gate = os.pipe()
open("before", "w").write("x")
pid = os.fork()
if not pid:
    os.close(gate)
    trace_me(inner)
    open("one", "w").write("x")
    open("two", "w").write("x")
    os._exit(3)
os.close(inner)
found = follow(pid, gate, cwd=Path.cwd(), timeout_s=20, kill=Kill.parse(sys.argv[1]) if sys.argv[1:] else None)
print(found.code, found.killed, *found.calls)
"""


def test_a_forked_child_is_followed_without_an_exec(place: Path) -> None:
    def told(*arguments: str) -> str:
        for name in ("one", "two"):
            (place / name).unlink(missing_ok=True)
        argv = [sys.executable, "-c", FORKED, *arguments]
        return subprocess.run(argv, cwd=place, check=True, capture_output=True, text=True).stdout

    assert told() == "3 False open(one) write(one) open(two) write(two)\n"
    assert told("call:3") == "None True open(one) write(one) open(two)\n"
    assert not (place / "two").exists()
    assert told("call:2+") == "None True open(one) write(one)\n"
    assert (place / "one").read_text() == "x"


# -- where tracing is refused -------------------------------------------------------------------------------------------


def untraced(place: Path, *argv: str, timeout_s: float = 30, kill: Kill | None = None) -> Traced:
    at = place.parent
    return run_untraced(
        argv, cwd=place, env=os.environ, stdout=at / "out", stderr=at / "err", kill=kill, timeout_s=timeout_s
    )


def test_untraced_its_places_to_die_are_times(place: Path) -> None:
    found = untraced(place, "sh", "-c", "sleep 0.2; exit 3")
    assert (found.code, found.calls) == (3, ())
    assert {each.at for each in found.arrivals} == {"time"}
    times = [each.nth for each in found.arrivals]
    assert times == sorted(set(times))
    assert 150 < times[-1] < 3000
    assert times[0] < 100


def test_untraced_kills_by_time_and_takes_the_tree(place: Path) -> None:
    found = untraced(place, "sh", "-c", "sleep 61 & echo $! > pid; sleep 62", kill=Kill("time", 100))
    assert (found.killed, found.timed_out, found.code, found.signal) == (True, False, None, None)
    assert gone(int((place / "pid").read_text()))


@pytest.mark.parametrize("start", ["sleep 61 & echo $! > pid; sleep 0.3", "setsid sleep 61 & echo $! > pid; sleep 0.3"])
def test_untraced_a_child_left_behind_is_named_and_killed(place: Path, start: str) -> None:
    found = untraced(place, "sh", "-c", start)
    assert (found.code, found.children) == (0, ["sleep 61"])
    assert gone(int((place / "pid").read_text()))


def test_untraced_timeouts_and_signals(place: Path) -> None:
    assert untraced(place, "sleep", "61", timeout_s=0.1).timed_out
    assert untraced(place, "sh", "-c", "kill -SEGV $$").signal == signal.SIGSEGV
