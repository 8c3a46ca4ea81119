"""The demo's own processes: they tell events as JSON lines, and are gone when their block ends, however it ends."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from savepoint import SavepointError

LOG = "errors.log"
"""What the processes wrote to their standard error, in the demo's directory."""


class Staging(SavepointError):
    """The demo could not be played to its end: that says nothing about the runs in it."""

    code = "demo"


class Child:
    """A running process. Its input is our sign of life: it ends when that does."""

    def __init__(self, process: Process, place: Path) -> None:
        self._process = process
        self._place = place

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """What it tells, until it ends."""
        output = cast("asyncio.StreamReader", self._process.stdout)
        while (line := await output.readline()).endswith(b"\n"):
            yield json.loads(line)

    async def event(self, name: str) -> str:
        """The value of its next event, which is `name`. Raises `Staging` if another came, or none."""
        nothing: dict[str, Any] = {}
        found = await anext(self.events(), nothing)
        if name not in found:
            raise self.failed(f"a process of the demo told {found} in place of {name!r}")
        return found[name]

    def order(self, line: str) -> None:
        cast("asyncio.StreamWriter", self._process.stdin).write(line.encode() + b"\n")

    async def ended(self) -> None:
        """Waits for the end that it comes to by itself."""
        await self._process.wait()

    async def kill(self) -> None:
        """SIGKILL: no handler of it runs, nothing is flushed."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    def failed(self, what: str) -> Staging:
        log = self._place / LOG
        said = log.read_text(encoding="utf-8", errors="replace")[-2000:].strip()
        return Staging(f"{what}; it said: {said or 'nothing'}", next="savepoint demo --keep leaves its directory")


@asynccontextmanager
async def child(command: Sequence[str], place: Path) -> AsyncGenerator[Child]:
    """Starts `command` in the directory `place`, in a session of its own: Ctrl-C is ours to handle."""
    with (place / LOG).open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=place, env=_environment(), stdin=PIPE, stdout=PIPE, stderr=log, start_new_session=True
        )
    started = Child(process, place)
    try:
        yield started
    finally:
        await started.kill()


def _environment() -> dict[str, str]:
    """Ours, with the search path made absolute: a process in another directory finds the same packages."""
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [str(Path(__file__).parents[2]), *(str(Path(path).absolute()) for path in known if path)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def actor(*arguments: str) -> list[str]:
    """-P: the demo's directory is no place to import from."""
    return [sys.executable, "-P", "-c", "from agent.demo._actor import main; main()", *arguments]


def outside() -> list[str]:
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("_outside.py"))]
