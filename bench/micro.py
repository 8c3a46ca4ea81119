"""What the ideas cost where nothing is stored: a savepoint nobody handles, an effect that one handler answers."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

from row import Against, Goal, Row, Sample

CALLS = 20_000
ROUNDS = 9
Loop = Callable[[], Awaitable[None]]
"""Does the work `CALLS` times: a wrapper a call would cost about what is measured."""


async def us_a_call(loop: Loop) -> float:
    start = time.perf_counter()
    await loop()
    return (time.perf_counter() - start) / CALLS * 1e6


async def samples(floor: Loop, ours: Loop) -> list[Sample]:
    """Alternating rounds; the first, which warms both up, is dropped."""
    found = [Sample(floor=await us_a_call(floor), ours=await us_a_call(ours)) for _ in range(ROUNDS + 1)]
    return found[1:]


async def savepoint_row() -> Row:
    from savepoint import Cell, World, resumable, savepoint

    transcript = Cell("transcript", int, default=0)

    @resumable("bench/continue", version=1)
    async def go_on(world: World, step: int) -> None: ...

    async def empty(name: str, *, key: object, resume: object, state: object) -> None: ...

    key, resume, state = {"step": 1}, go_on.at(2), [transcript]

    async def floor() -> None:
        for _ in range(CALLS):
            await empty("bench/turn", key=key, resume=resume, state=state)

    async def ours() -> None:
        for _ in range(CALLS):
            await savepoint("bench/turn", key=key, resume=resume, state=state)

    found = await samples(floor, ours)
    return Row(what="savepoint that nobody handles", unit="us", samples=found, goal=Goal(limit=1.5))


async def effect_row() -> Row:
    from effects import effect, handler

    async def plain(to: str, *, body: str) -> str:
        return body

    @effect("bench/send")
    async def send(to: str, *, body: str) -> str:
        raise AssertionError("the handler answers")

    async def floor() -> None:
        for _ in range(CALLS):
            await plain("a@example.org", body="hello")

    async def ours() -> None:
        for _ in range(CALLS):
            await send("a@example.org", body="hello")

    with handler(send, plain):
        found = await samples(floor, ours)
    goal = Goal(limit=3, against=Against.EXTRA)
    return Row(what="effect answered by one handler", unit="us", samples=found, goal=goal)


def rows() -> Iterator[Row]:
    yield asyncio.run(savepoint_row())
    yield asyncio.run(effect_row())
