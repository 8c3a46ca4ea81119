"""Searches the workspace's files: bounded in matches, bytes and time, also for a pattern that would never end."""

import asyncio
import os
import signal
import stat
import sys
from pathlib import Path
from typing import cast

from ._errors import Unsuitable
from ._place import DIRECTORY, is_name, place
from ._process import ENVIRONMENT

MATCHES = 200
BYTES = 512 << 20
TIMEOUT_S = 10.0
_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from child._grep import main; main()"
_GREP = (sys.executable, "-I", "-S", "-c", _PROGRAM, str(Path(__file__).parent))
_NO_PATTERN = 2


async def search_files(
    root: Path, pattern: str, path: str = ".", *, glob: str = "*", limit: int = MATCHES, timeout_s: float = TIMEOUT_S
) -> str:
    """Lines that match a Python regular expression, as `path:line: text`, in byte order of the names.

    `glob` chooses files: `*.py` by name, `src/**/*.py` by path from the workspace. Links, binary files and `.git` are
    left out. The answer says when a bound was met. Raises `Outside`, `Unsuitable` (also for what is no pattern).
    """
    for text in (pattern, glob):
        if not is_name(text):
            raise Unsuitable(f"{text!r}: not a pattern: it is empty, or holds a NUL or half of a surrogate pair")
    directory, place_arguments = await asyncio.to_thread(_opened, root, path)
    try:
        answer, code = await _grep(directory, *place_arguments, pattern, glob, str(limit), str(BYTES), str(timeout_s))
    finally:
        os.close(directory)
    if code == _NO_PATTERN:
        raise Unsuitable(f"{pattern!r}: not a regular expression: {answer.strip()}")
    notes = [f"[stopped after {timeout_s:g} s; use a simpler pattern or a smaller path]"] * (code == -signal.SIGALRM)
    if code not in (0, -signal.SIGALRM):
        raise Unsuitable(f"{path}: the search ended with {code}; search a smaller path")
    return "\n".join([*answer.splitlines(), *notes]) or "[no match]"


def _opened(root: Path, path: str) -> tuple[int, tuple[str, str]]:
    """An open directory, and its path and a file's name in it (empty: all of it)."""
    with place(root, path) as target:
        status = target.status()
        if status is None:
            raise Unsuitable(f"{target.path}: no such file or directory")
        if stat.S_ISDIR(status.st_mode):
            below = os.open(target.name, DIRECTORY, dir_fd=target.directory)
            return below, ("" if target.path == "." else f"{target.path}/", "")
        parent = target.path.removesuffix(target.name)
        return os.dup(target.directory), (parent, target.name)


async def _grep(directory: int, *arguments: str) -> tuple[str, int]:
    process = await asyncio.create_subprocess_exec(
        *(*_GREP, str(directory), *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        pass_fds=(directory,),
        env=ENVIRONMENT,
    )
    ending = asyncio.ensure_future(process.communicate())
    try:
        answer, _ = await asyncio.shield(ending)
    except asyncio.CancelledError:
        process.kill()
        await asyncio.wait([ending])
        raise
    return answer.decode(), cast("int", process.returncode)
