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
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    @property
    def idle(self) -> bool:
        """Whether no body runs."""
        return not self._running

    @contextlib.asynccontextmanager
    async def running(self, key: bytes, *, alone: bool) -> AsyncGenerator[None]:
        """The body of the call `key` runs in the block; waits for those that it must not run beside."""
        while self._blocked(key, alone=alone):
            self._changed.clear()
            await self._changed.wait()
        entry = (key, alone)
        self._running.append(entry)
        try:
            yield
        finally:
            self._running.remove(entry)
            self._changed.set()

    def _blocked(self, key: bytes, *, alone: bool) -> bool:
        # A body does not wait for the body that performed it.
        return any((alone or other_alone) and not at_or_below(key, other) for other, other_alone in self._running)
