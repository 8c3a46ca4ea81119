"""Runs a program where no tracing is possible: it can be killed by time only, and its places to die are times.

A process that it started is found by its group, and by a mark in its environment where there is a `/proc`: one that
leaves both is not seen.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ._ends import command
from ._follower import GRACE_S, Traced
from ._kill import TIME, Kill

PLACES = 32
"""How many times of a run are tried as places to die, spread evenly"""
_MARK = "SAVEPOINT_CRASH_RIG"
_WATCH = "read -r _; kill -9 0"
"""In the program's group: reads until the rig closes the pipe, or is gone; then nothing of the group lives on."""


def run_untraced(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdout: Path,
    stderr: Path,
    kill: Kill | None = None,
    timeout_s: float,
) -> Traced:
    """As `run` of the tracer, by time. A kill at a call never comes."""
    due_s = kill.nth / 1000 if kill is not None and kill.at == TIME else None
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    began = time.monotonic()
    watcher = subprocess.Popen(["/bin/sh", "-c", _WATCH], stdin=subprocess.PIPE, process_group=0)
    process = None
    ended, killed, code = False, False, 0
    try:  # from here on an interrupt leaves nothing behind
        with stdout.open("wb") as out, stderr.open("wb") as err:
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                env={**env, _MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                process_group=watcher.pid,
            )
        limit = timeout_s if due_s is None else min(due_s, timeout_s)
        try:
            process.wait(limit)
            ended = True
        except subprocess.TimeoutExpired:
            killed = due_s is not None and due_s <= timeout_s
        lasted_s = time.monotonic() - began
        children = _left(watcher.pid, mark) if ended else []
    finally:
        code = _end(process, watcher.pid, mark)
        watcher.communicate()
    return Traced(
        code=code if ended and code >= 0 else None,
        signal=-code if ended and code < 0 else None,
        killed=killed,
        timed_out=not ended and not killed,
        arrivals=() if killed else _spread(lasted_s),
        calls=(),
        children=children,
    )


def _spread(lasted_s: float) -> list[Kill]:
    """Times of a run that lasted so long, at least a millisecond apart."""
    whole_ms = max(1, int(lasted_s * 1000))
    return [Kill(TIME, ms) for ms in sorted({max(1, whole_ms * n // PLACES) for n in range(1, PLACES + 1)})]


def _left(group: int, mark: str) -> list[str]:
    until = time.monotonic() + GRACE_S
    while (found := _members(group, mark)) and time.monotonic() < until:
        time.sleep(0.01)
    return [line for _, line in sorted(found.items()) if line]


def _members(group: int, mark: str) -> dict[int, str]:
    """Process id -> command line, of those that live; the group's first process, which watches, is none of them.

    Without `/proc` none is known.
    """
    found: dict[int, str] = {}
    wanted = f"{_MARK}={mark}".encode()
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, of = _stat(each)
            marked = wanted in (each / "environ").read_bytes().split(b"\0")
            if state != "Z" and (of == group or marked) and each.name != str(group):
                found[int(each.name)] = command(int(each.name))
    return found


def _stat(process: Path) -> tuple[str, int]:
    """Its state and its group."""
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[2])


def _end(process: "subprocess.Popen[bytes] | None", group: int, mark: str) -> int:
    """What the main process ended with. What is known is dead then: one look may miss what was started meanwhile."""
    if process is not None:
        process.kill()
    while members := _members(group, mark):
        for each in members:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        if process is not None:
            process.poll()
    return 0 if process is None else process.wait()
