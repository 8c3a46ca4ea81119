"""Who may run beside whom: a call that acts outside *and* writes the world runs alone."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from attrs import field, mutable

from effects._key import at_or_below


@mutable(kw_only=True, eq=False)
class Gate:
    """The bodies that run now, COMPOSITE ones not counted: they do nothing themselves."""

    _running: list[tuple[bytes, bool]] = field(factory=list[tuple[bytes, bool]], init=False)
    """call key, alone"""
    _waiting: list[bytes] = field(factory=list[bytes], init=False)
    """calls that are held here"""
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    @property
    def idle(self) -> bool:
        """Whether no body runs."""
        return not self._running

    @contextlib.asynccontextmanager
    async def running(self, key: bytes, *, alone: bool) -> AsyncGenerator[None]:
        """The body of the call `key` runs in the block; waits for those that it must not run beside."""
        if self.blocks(key, alone=alone):
            await self._wait(key, alone=alone)
        entry = (key, alone)
        self._running.append(entry)
        try:
            yield
        finally:
            self._running.remove(entry)
            self._changed.set()

    async def emptied(self) -> None:
        """Returns when no body runs any more."""
        while self._running:
            self._changed.clear()
            await self._changed.wait()

    def blocks(self, key: bytes, *, alone: bool) -> bool:
        """Whether the body of `key` would have to wait."""
        return any((alone or other_alone) and not self._steps_aside(other, key) for other, other_alone in self._running)

    def _steps_aside(self, other: bytes, key: bytes) -> bool:
        # A body does not wait for the body that performed it, nor for one that itself waits here with a call of its
        # own: two such bodies would wait for each other for ever.
        return at_or_below(key, other) or any(at_or_below(waiting, other) for waiting in self._waiting)

    async def _wait(self, key: bytes, *, alone: bool) -> None:
        self._waiting.append(key)
        self._changed.set()
        try:
            while self.blocks(key, alone=alone):
                self._changed.clear()
                await self._changed.wait()
        finally:
            self._waiting.remove(key)
