"""Who may run beside whom: a call that acts outside *and* writes the world runs alone."""

import asyncio
from typing import Any

from attrs import field, mutable

from effects._key import at_or_below


@mutable(kw_only=True, eq=False)
class Gate:
    """The bodies that run now, COMPOSITE ones not counted: they do nothing themselves."""

    _running: list[tuple[bytes, bool]] = field(factory=list[tuple[bytes, bool]], init=False)
    """call key, alone"""
    _tasks: dict[bytes, "asyncio.Task[Any] | None"] = field(factory=dict[bytes, "asyncio.Task[Any] | None"], init=False)
    """who runs the body of each call"""
    _waiting: list[bytes] = field(factory=list[bytes], init=False)
    """calls that are held here"""
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    @property
    def idle(self) -> bool:
        """Whether no body runs."""
        return not self._running

    def running(self, key: bytes, *, alone: bool) -> "Pass":
        """`async with`: the body of the call `key` runs in the block; waits for those that it must not run beside."""
        return Pass(self, key, alone)

    async def enter(self, entry: tuple[bytes, bool]) -> None:
        key, alone = entry
        if self._running and self.blocks(key, alone=alone):
            await self._wait(key, alone=alone)
        self._running.append(entry)
        self._tasks[entry[0]] = asyncio.current_task()

    def leave(self, entry: tuple[bytes, bool]) -> None:
        self._running.remove(entry)
        self._tasks.pop(entry[0], None)
        self._changed.set()

    def cancel(self) -> None:
        """Cancels the bodies that still run in tasks which the program left behind."""
        present = asyncio.current_task()
        for task in list(self._tasks.values()):
            if task is not None and task is not present:
                task.cancel()

    async def emptied(self) -> None:
        """Returns when no body runs any more."""
        while self._running:
            self._changed.clear()
            await self._changed.wait()

    def blocks(self, key: bytes, *, alone: bool) -> bool:
        """Whether the body of `key` would have to wait."""
        if not self._running:
            return False
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


class Pass:
    """One body's way through the gate. A class, because it stands around every body."""

    __slots__ = ("_entry", "_gate")

    def __init__(self, gate: Gate, key: bytes, alone: bool) -> None:
        self._gate = gate
        self._entry = (key, alone)

    async def __aenter__(self) -> None:
        await self._gate.enter(self._entry)

    async def __aexit__(self, *_: object) -> None:
        self._gate.leave(self._entry)
