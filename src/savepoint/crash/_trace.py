"""Runs any program under the tracer: counts each system call that lasts and kills the whole tree at one of them.

The calls of all threads and descendants stand in one order. What is written through a shared mapping is not seen, nor
are changes of times, extended attributes, and the calls of a 32-bit program. A traced program cannot gain privileges.
"""

import os
import shutil
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

from savepoint._errors import Missing

from . import _ptrace
from ._calls import MACHINE, SUPPORTED
from ._follower import Follower, Listener, Traced
from ._kill import CALL, Kill
from ._lasting import Reader, outputs
from ._timed import run_untraced


def follow(
    pid: int,
    gate: int,
    *,
    kill: Kill | None = None,
    cwd: Path,
    outputs_of: Sequence[Path] = (),
    timeout_s: float,
    listener: Listener | None = None,
    started: Callable[[Follower], None] | None = None,
) -> Traced:
    """Follows a child that this thread forked and that waits in `trace_me` at the other end of the pipe `gate`.

    The thread may have no other children. `outputs_of`: files that are the program's own output. `started` is given
    the follower, which any thread may stop. Raises `OSError`.
    """
    reader = Reader(cwd.resolve(), outputs(outputs_of))
    follower = Follower(pid=pid, kill=kill, reader=reader, timeout_s=timeout_s, listener=listener)
    if started is not None:
        started(follower)
    return follower.follow(gate)


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdout: Path,
    stderr: Path,
    kill: Kill | None = None,
    timeout_s: float,
    listener: Listener | None = None,
) -> Traced:
    """One process of `argv` in `cwd`, its output in the two files, dying at `kill` if it gets there.

    Where tracing is refused, only a kill by time is possible, and the arrivals are times. Nothing of it lives on when
    this returns, nor when this process itself is killed. Raises `Missing` where `argv[0]` cannot be started.
    """
    program = _program(argv[0], cwd, env)
    if refused() is not None:
        return run_untraced(
            [program, *argv[1:]], cwd=cwd, env=env, stdout=stdout, stderr=stderr, kill=kill, timeout_s=timeout_s
        )

    def forked(started: Callable[[Follower], None]) -> Traced:
        with stdout.open("wb") as out, stderr.open("wb") as err:
            inner, gate = os.pipe()
            pid = _ptrace.fork()
            if not pid:
                os.close(gate)
                _become(program, argv, cwd, env, (out.fileno(), err.fileno()), inner)
            os.close(inner)
        return follow(
            pid,
            gate,
            kill=kill,
            cwd=cwd,
            outputs_of=(stdout, stderr),
            timeout_s=timeout_s,
            listener=listener,
            started=started,
        )

    return _apart(forked)


def _program(name: str, cwd: Path, env: Mapping[str, str]) -> str:
    found = str(cwd / name) if "/" in name else shutil.which(name, path=env.get("PATH", os.defpath))
    if found is None or not os.access(found, os.X_OK):
        raise Missing(f"{name}: there is no such program", next="name a program that is on PATH, or its whole path")
    return found


def _become(
    program: str, argv: Sequence[str], cwd: Path, env: Mapping[str, str], out: tuple[int, int], gate: int
) -> NoReturn:
    """In the forked child: only calls of the kernel, then the program."""
    try:
        os.setsid()  # a ^C at the terminal is for the rig
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out[0], 1)
        os.dup2(out[1], 2)
        os.chdir(cwd)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # what Python changes for itself
            signal.signal(ignored, signal.SIG_DFL)
        _ptrace.trace_me(gate)
        os.execve(program, list(argv), env)  # noqa: S606  # no shell is wanted
    except BaseException as error:  # nothing may run on in this copy of the rig
        os.write(2, f"{program}: cannot be started: {error}\n".encode(errors="replace"))
    finally:
        os._exit(127)


def _apart(work: Callable[[Callable[[Follower], None]], Traced]) -> Traced:
    """Does it in a thread of its own, whose only children are those of `work`."""
    done: list[Traced] = []
    failed: list[BaseException] = []
    started: list[Follower] = []

    def body() -> None:
        try:
            done.append(work(started.append))
        except BaseException as error:  # raised again where it is asked for
            failed.append(error)

    thread = threading.Thread(target=body, name="tracer", daemon=True)  # the rig's end kills what it traces
    thread.start()
    try:
        thread.join()
    except BaseException:  # ^C: nothing is left behind
        for each in started:
            each.stop()
        thread.join()
        raise
    if failed:
        raise failed[0]
    return done[0]


@cache
def refused() -> str | None:
    """Why no program can be traced here; `None` where it works. Tried once, for real."""
    if not hasattr(os, "pidfd_open"):
        return "tracing needs Linux"
    if not SUPPORTED:
        return f"tracing does not know the system calls of {MACHINE}"

    def forked(started: Callable[[Follower], None]) -> Traced:
        inner, gate = os.pipe()
        pid = _ptrace.fork()
        if not pid:
            try:
                os.close(gate)
                _ptrace.trace_me(inner)
                os.sync()
                os._exit(0)
            finally:
                os._exit(1)
        os.close(inner)
        return follow(pid, gate, kill=Kill(CALL, 1), cwd=Path("/"), timeout_s=10, started=started)

    try:
        tried = _apart(forked)
    except OSError as error:
        return f"ptrace is refused: {error.strerror}"
    return None if tried.killed and tried.calls else "seccomp is refused: no system call of a traced process stopped"
