"""The worlds of the runs nested in one reply are merged one after the other, in reply order, once nothing else of the
reply is at work: which of them meets a conflict does not depend on who ends first, nor on a crash between them.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

from attrs import define, field


@define(eq=False)
class Merges:
    """Those of the calls of one reply that run beside each other.

    Of a call that begins several runs only the first one waits for the other calls.
    """

    _at_work: set[int] = field(converter=set[int])
    """the calls, by index, that have neither ended nor come to a merge"""
    _waiting: list[int] = field(factory=list[int], init=False)
    _merging: bool = field(default=False, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    @contextmanager
    def call(self, index: int) -> Generator[None]:
        """The call `index` runs in the block."""
        token = _PLACE.set((self, index))
        try:
            yield
        finally:
            _PLACE.reset(token)
            self._at_work.discard(index)
            self._changed.set()

    @asynccontextmanager
    async def turn(self, index: int) -> AsyncGenerator[None]:
        """Waits until it is the turn of the call `index`; nobody else merges in the block."""
        self._at_work.discard(index)
        self._waiting.append(index)
        self._changed.set()
        try:
            while self._at_work or self._merging or index != min(self._waiting):
                self._changed.clear()
                await self._changed.wait()
            self._merging = True
        finally:
            self._waiting.remove(index)
            self._changed.set()
        try:
            yield
        finally:
            self._merging = False
            self._changed.set()


Place = tuple[Merges, int]
_PLACE: ContextVar[Place | None] = ContextVar("agent_merges", default=None)


def present_place() -> Place | None:
    """That of the call which is being performed; None outside of a reply's calls."""
    return _PLACE.get()


@asynccontextmanager
async def in_turn(place: Place | None) -> AsyncGenerator[None]:
    """The block merges, when it is the turn of the call at `place`."""
    if place is None:
        yield
        return
    merges, index = place
    async with merges.turn(index):
        yield
