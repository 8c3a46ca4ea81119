"""The divergence rule at work: what was asked for again, and who must wait for whom.

Deciding is pure (`effects._divergence`); this holds the sets it decides on and lets a call wait while another part of
the program may still ask for what is missing.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from attrs import field, mutable

from effects._divergence import unasked
from effects._key import at_or_below
from effects._receipt import Receipt

from ._frame import Frame

_SETTLING = 32
"""Passes of the event loop before it is believed that nothing else moves: a new task starts in one, and what a task
returned climbs up through nested groups by two a level.
"""


@mutable(kw_only=True, eq=False)
class Guard:
    """What this attempt has asked for in the present step."""

    past: tuple[Receipt, ...] = ()
    """receipts of earlier attempts; those of this one were asked for, or there would be none"""
    excused: set[tuple[int, bytes]] = field(factory=set[tuple[int, bytes]])
    """step and key of calls that a decision lets stand"""
    asked: set[bytes] = field(factory=set[bytes], init=False)
    reused: set[bytes] = field(factory=set[bytes], init=False)
    _present: tuple[Receipt, ...] = field(default=(), init=False)
    _open: set[Frame] = field(factory=set[Frame], init=False)
    _moved: asyncio.Event = field(factory=asyncio.Event, init=False)

    def new_step(self, step: int) -> None:
        self.asked.clear()
        self.reused.clear()
        self.past = tuple(receipt for receipt in self.past if receipt.step >= step)
        self._present = tuple(receipt for receipt in self.past if receipt.step == step)

    def ask(self, key: bytes) -> None:
        self.asked.add(key)
        self._moved.set()

    def reuse(self, key: bytes) -> None:
        self.reused.add(key)
        self._moved.set()

    def running(self, frame: Frame) -> "Running":
        """`with`: a body or branch is open, and may still ask."""
        return Running(self, frame)

    def opened(self, frame: Frame) -> None:
        self._open.add(frame)

    def closed(self, frame: Frame) -> None:
        self._open.discard(frame)
        self._moved.set()

    async def missing(self, frame: Frame, levels: tuple[bytes, ...]) -> list[Receipt]:
        """Waits while somebody else may still ask for what is missing below `levels`; returns what nobody will."""
        missing = self._missing(levels)
        if not missing:
            return []
        with self.held(frame):
            passes = 0
            while missing and passes < _SETTLING:
                if self._others(frame, levels):
                    passes = 0
                    self._moved.clear()
                    await self._moved.wait()
                else:
                    passes += 1
                    await asyncio.sleep(0)
                missing = self._missing(levels)
        return missing

    def _missing(self, levels: tuple[bytes, ...]) -> list[Receipt]:
        if not self._present:
            return []
        return unasked(self._present, levels, asked=self.asked, reused=self.reused, excused=self.excused)

    @contextmanager
    def held(self, frame: Frame) -> Generator[None]:
        """The call of this frame waits, here or at the gate, and asks for nothing until somebody else moves."""
        frame.waiting = True
        # Whoever waits already must look again: with one more frame waiting, nobody may be left to wait for.
        self._moved.set()
        try:
            yield
        finally:
            frame.waiting = False

    async def quiet(self, timeout_s: float | None) -> bool:
        """Whether all bodies and branches have ended, at once or within this time (None: however long it takes)."""
        if not self._open:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                while self._open:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            return False
        return True

    def _others(self, frame: Frame, levels: tuple[bytes, ...]) -> bool:
        """Whether an open frame below one of the levels, neither ours nor above us nor itself waiting, may still ask."""
        return any(
            not other.waiting and not at_or_below(frame.key, other.key) and not self._blocked(other)
            for other in self._open
            if any(at_or_below(other.key, level) for level in levels)
        )

    def _blocked(self, frame: Frame) -> bool:
        """Whether all that runs inside this frame waits by this rule."""
        inner = [other for other in self._open if other is not frame and at_or_below(other.key, frame.key)]
        return bool(inner) and all(other.waiting for other in inner)


class Running:
    """A frame that is open. A class, because it stands around every body."""

    __slots__ = ("_frame", "_guard")

    def __init__(self, guard: Guard, frame: Frame) -> None:
        self._guard = guard
        self._frame = frame

    def __enter__(self) -> None:
        self._guard.opened(self._frame)

    def __exit__(self, *_: object) -> None:
        self._guard.closed(self._frame)
