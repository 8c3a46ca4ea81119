"""Runs a command so that nothing of it outlives its call: not its children, not when we are killed ourselves.

A small supervisor (`child/_supervise.py`) is started for each command; see `design/0007-sandbox.md`.
"""

import asyncio
import marshal
import os
import pwd
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from attrs import frozen

from ._errors import NotRun
from ._sandbox import HOME, Sandbox

if TYPE_CHECKING:
    from .child._order import Order

GRACE_S = 2.0
ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "TERM": "dumb",
    "TMPDIR": "/tmp",  # noqa: S108
    "PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
}
"""The whole environment of a command but for HOME: never our own, which holds secrets."""

_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from child._supervise import main; main()"
SUPERVISOR = (sys.executable, "-I", "-S", "-c", _PROGRAM, str(Path(__file__).parent))


@frozen(kw_only=True)
class Completed:
    """How a command ended."""

    exit_code: int
    """128 + n if signal n ended it."""
    output: str
    """Standard output and error as they came, undecodable bytes replaced; where the middle is left out, a line says so."""
    truncated_bytes: int
    timed_out: bool
    sandboxed: bool


async def run_command(
    command: str | Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
    grace_s: float = GRACE_S,
    output_limit_bytes: int = 32768,
    sandbox: Sandbox | None = None,
) -> Completed:
    """Runs shell text (by bash where there is one, else sh) or a program with its arguments, to its end.

    `env` is added to `ENVIRONMENT`. At `timeout_s` the command gets SIGTERM, `grace_s` later SIGKILL. Background
    processes end with the command. Cancelling kills everything at once, then goes on. Raises `NotRun`.
    """
    bounds = {"timeout_s": float(timeout_s), "grace_s": float(grace_s), "limit": output_limit_bytes}
    order = await asyncio.to_thread(_order, command, cwd, env or {}, sandbox, bounds)
    return completed(await _supervise(order), order)


def _order(
    command: str | Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    sandbox: Sandbox | None,
    bounds: Mapping[str, float],
) -> "Order":
    """Looks up on the disk what the supervisor must be told."""
    shell = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
    argv = [shell, "-c", command] if isinstance(command, str) else list(command)
    if not argv or not Path(cwd).is_dir():
        raise NotRun(f"{argv!r} in {cwd}: there must be a program, and the directory must exist")
    home = HOME if sandbox else pwd.getpwuid(os.getuid()).pw_dir
    return {
        "argv": argv,
        "cwd": sandbox.inside(os.path.realpath(cwd)) if sandbox else os.path.realpath(cwd),
        "env": {**ENVIRONMENT, "HOME": home, **env},
        "timeout_s": bounds["timeout_s"],
        "grace_s": bounds["grace_s"],
        "limit": int(bounds["limit"]),
        "layout": sandbox.layout() if sandbox else None,
    }


async def _supervise(order: "Order") -> bytes:
    """The supervisor's report. Its standard input is our sign of life: closed by us or by our death, it kills."""
    supervisor = await asyncio.create_subprocess_exec(
        *SUPERVISOR,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=order["env"],  # the sandbox's first process is a fork of it: what we hold would be readable inside
        start_new_session=True,
    )
    stdin = cast("asyncio.StreamWriter", supervisor.stdin)
    stdout = cast("asyncio.StreamReader", supervisor.stdout)
    stdin.write(encoded(order))
    ending = asyncio.ensure_future(_report(supervisor, stdout))
    try:
        return await asyncio.shield(ending)
    finally:
        stdin.close()
        await asyncio.wait([ending])


async def _report(supervisor: asyncio.subprocess.Process, stdout: asyncio.StreamReader) -> bytes:
    report = await stdout.read()
    await supervisor.wait()
    return report


def encoded(order: "Order") -> bytes:
    """For the supervisor, which is the same interpreter and imports nothing to read it."""
    return marshal.dumps(cast("dict[str, str]", order))


def completed(report: bytes, order: "Order") -> Completed:
    """Reads the supervisor's report. Raises `NotRun`."""
    line, _, rest = report.partition(b"\n")
    program = order["argv"][0]
    if not line:
        raise NotRun(f"{program}: its supervisor was killed, and the command with it; what it did until then stays")
    code, timed_out, head, tail, dropped, error = map(int, line.split())
    if error:
        raise NotRun(f"{program} was not started: {rest[head + tail :].decode('utf-8', 'replace')}")
    parts = [rest[:head], rest[head : head + tail]]
    if dropped:
        parts.insert(1, f"\n[... {dropped} bytes left out ...]\n".encode())
    return Completed(
        exit_code=code,
        output=b"".join(parts).decode("utf-8", "replace"),
        truncated_bytes=dropped,
        timed_out=bool(timed_out),
        sandboxed=order["layout"] is not None,
    )
