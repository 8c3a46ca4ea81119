"""Flat costs: turn 2 000 of a run in a session beside turn 100, with call ids of 30 characters; one more run on a session
of 1 000 runs beside the bare reading of what it sends.
"""

import asyncio
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from attrs import define, field

from agent import Agent, StoredSession, User, run, tool
from agent._answer import Answer, ModelError, Wanted
from agent._entries import Reply
from agent._model import Request
from effects import Idempotency
from row import Against, Goal, Row, Sample
from savepoint import open_store
from savepoint._shelf import shelf_of
from workload import turn

EARLY, LATE = 100, 2000
SPAN = 50
"""Turns of a window, which is what a figure is the median or the sum of."""
RUNS = 1000
FLAT = Goal(limit=1.2, against=Against.RATIO)
RESULTS: dict[str, str] = {}


@tool(idempotency=Idempotency.READ)
async def lookup(q: str) -> str:
    """Looks something up."""
    return RESULTS[q]


@define
class Endless:
    """Asks for one call a turn, under a provider's id of 30 characters; tells when each turn begins."""

    last: int
    mark: Callable[[int], None]
    name: str = "endless"
    settings: Mapping[str, object] = field(factory=dict[str, object])

    async def reply(self, request: Request, *, on_text: Callable[[str], None] | None = None) -> Answer:
        number = request.turn
        self.mark(number)
        if number == self.last:
            raise ModelError("enough")
        content = turn(number)
        RESULTS[content.question] = content.result
        call_id = f"call_{number:025d}"
        wanted = Wanted(tool=lookup.name, arguments=json.dumps({"q": content.question}), provider_id=call_id)
        return Answer(text=content.text, calls=(wanted,))


def agent_of(model: object) -> Agent:
    return Agent(name="endless", model=model, tools=[lookup], max_turns=LATE * 2)  # type: ignore[arg-type]


@define
class Window:
    """Cpu seconds and written bytes at the beginning of each turn."""

    cpu: dict[int, float] = field(factory=dict[int, float])
    written: dict[int, int] = field(factory=dict[int, int])

    def mark(self, number: int) -> None:
        self.cpu[number] = time.process_time()
        if number in {EARLY, EARLY + SPAN, LATE, LATE + SPAN}:
            self.written[number] = written_by_us()

    def turn_ms(self, first: int) -> float:
        return statistics.median(self.cpu[n + 1] - self.cpu[n] for n in range(first, first + SPAN)) * 1e3

    def bytes(self, first: int) -> float:
        return (self.written[first + SPAN] - self.written[first]) / SPAN


def written_by_us() -> int:
    """Bytes that this process handed to `write`."""
    found = re.search(r"wchar: (\d+)", Path("/proc/self/io").read_text()) if Path("/proc/self/io").exists() else None
    return 0 if found is None else int(found[1])


async def long_run(place: Path, last: int, mark: Callable[[int], None]) -> None:
    async with open_store(place) as store:
        await run(agent_of(Endless(last, mark)), "Begin.", store=store, run_id="long", session_id="bench")


def syncs_until(last: int, scratch: Path) -> int:
    """Of a whole run of this many turns, counted by strace."""
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        log = Path(name) / "log"
        tracer = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(log)]
        command = [*tracer, sys.executable, __file__, str(Path(name) / "store"), str(last)]
        subprocess.run(command, check=True, capture_output=True, env=os.environ, timeout=600)
        return len(re.findall(r"sync\(", log.read_text()))


async def one_more(place: Path) -> Sample:
    """From `run` to the first request, in a session of many runs; the floor reads the conversation and no more."""
    async with open_store(place) as store:
        session = StoredSession(store)
        for number in range(RUNS):
            content = turn(number)
            entries = [User(content=content.question), Reply(text=content.result)]
            await session.append("bench", entries, run_id=f"run {number}")
    began = 0.0

    class Asked:
        name, settings = "asked", {}

        async def reply(self, request: Request, **_: object) -> NoReturn:
            nonlocal began
            assert len(request.messages) == 2 * RUNS + 1
            began = time.perf_counter() - start
            raise ModelError("enough")

    async with open_store(place) as store:
        start = time.perf_counter()
        await StoredSession(store).load("bench")
        floor = time.perf_counter() - start
    async with open_store(place) as store:
        shelf_of(store)
        start = time.perf_counter()
        await run(agent_of(Asked()), "One more.", store=store, session_id="bench")
    return Sample(floor=floor * 1e3, ours=began * 1e3)


def rows(scratch: Path | None) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="sessions-", dir=scratch) as name:
        place = Path(name)
        window = Window()
        asyncio.run(long_run(place / "long", LATE + SPAN + 1, window.mark))
        cpu = [Sample(floor=window.turn_ms(EARLY), ours=window.turn_ms(LATE))]
        yield Row(
            what=f"turn {LATE} of a run in a session, beside turn {EARLY}: cpu", unit="ms", samples=cpu, goal=FLAT
        )
        if any(window.written.values()):
            written = [Sample(floor=window.bytes(EARLY), ours=window.bytes(LATE))]
            yield Row(what="the same: bytes written", unit="B", samples=written, goal=FLAT)
        if shutil.which("strace"):
            early, late = (
                (syncs_until(first + SPAN, place) - syncs_until(first, place)) / SPAN for first in (EARLY, LATE)
            )
            yield Row(what="the same: syncs", unit="", samples=[Sample(floor=early, ours=late)], goal=FLAT)
        samples = [asyncio.run(one_more(place / f"many {repetition}")) for repetition in range(3)]
        yield Row(
            what=f"a run on a session of {RUNS}: to its first request, beside reading it", unit="ms", samples=samples
        )


if __name__ == "__main__":
    asyncio.run(long_run(Path(sys.argv[1]), int(sys.argv[2]), lambda _: None))
