"""Fakes for tests of programs that perform effects: a clock, randomness, and the plainest layer."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from uuid import UUID

from ._ambient import monotonic, now, random_bytes, sleep, uuid
from ._call import CURRENT, Call, CurrentCall
from ._handler import handler
from ._layer import LAYER

__all__ = ["ManualClock", "PlainLayer", "seeded"]

START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """A clock that moves only when told: `with clock.installed():` answers `now`, `monotonic` and `sleep` by it.

    Sleeping moves it on at once, so concurrent sleepers add up instead of overlapping.
    """

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._passed = 0.0

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"a clock cannot go back {-seconds} s; make a new one with an earlier start")
        self._passed += seconds

    @contextmanager
    def installed(self) -> Generator[None, None, None]:
        with handler(now, self._now), handler(monotonic, self._monotonic), handler(sleep, self._sleep):
            yield

    async def _now(self) -> datetime:
        return self._start + timedelta(seconds=self._passed)

    async def _monotonic(self) -> float:
        return self._passed

    async def _sleep(self, seconds: float) -> None:
        self.advance(max(0.0, seconds))
        await asyncio.sleep(0)  # as a real one: others get their turn


@contextmanager
def seeded(seed: int) -> Generator[None, None, None]:
    """Answers `uuid` and `random_bytes` from a seed: the same sequence each time."""
    source = Random(seed)

    async def draw_bytes(n: int) -> bytes:
        return source.randbytes(n)

    async def draw_uuid() -> UUID:
        return UUID(bytes=source.randbytes(16), version=4)

    with handler(random_bytes, draw_bytes), handler(uuid, draw_uuid):
        yield


class PlainLayer:
    """A layer that enters every body and remembers nothing, so that `current_call()` works without a run."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        """Those that reached their body, in the order of entering."""

    @contextmanager
    def installed(self) -> Generator[None, None, None]:
        token = LAYER.set(self)
        try:
            yield
        finally:
            LAYER.reset(token)

    async def settle(self, call: Call, body: Callable[[], Awaitable[object]]) -> object:
        self.calls.append(call)
        current = CurrentCall(call=call, keyed=partial("key-{}".format, len(self.calls)), attempt=1, tried=0)
        token = CURRENT.set(current)
        try:
            return await body()
        finally:
            CURRENT.reset(token)

    async def answer(self, call: Call, ask: Callable[[], Awaitable[object]]) -> object:
        return await ask()

    def branch(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()
