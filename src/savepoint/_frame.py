"""Frames: whose calls are counted together. A frame's key is the parent part of the call keys made in it.

A frame is the program itself, a call of a recorded reply, an entered body or a branch.
"""

from contextvars import ContextVar
from typing import TYPE_CHECKING

from attrs import field, mutable

from effects._idempotency import Idempotency
from effects._key import ROOT, WIDTH

from ._digest import Domain, seal

if TYPE_CHECKING:
    from ._codec import Encoded


COMPENSATING = b"compensate".ljust(WIDTH, b"\0")
"""The first component of the keys of compensations: no program asks for them, so none can fail to."""


def component(*parts: bytes) -> bytes:
    """One component of a call key, from parts that are framed by their length."""
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return seal(Domain.CALL, framed)[:WIDTH]


@mutable(kw_only=True, eq=False)
class Tally:
    """What all views of one parent share."""

    counts: dict[bytes, int] = field(factory=dict[bytes, int])
    running: str = ""
    """the outside-changing effect that runs directly under this parent"""


@mutable(kw_only=True, eq=False)
class Frame:
    """Counts equal calls under one parent."""

    key: bytes = ROOT
    idempotency: Idempotency = Idempotency.COMPOSITE
    """of the body that runs here; a program and a branch do nothing by themselves"""
    recorded: bool = False
    """the calls made directly here are those of a recorded reply: they cannot diverge"""
    under_reply: bool = False
    """the outermost component of the key is a call of a recorded reply"""
    writes_world: bool = False
    """the outcome of the body that runs here needs a snapshot of the world"""
    approved: bool = False
    """the calls made directly here were approved one by one: each writes an intent, which consumes the approval"""
    outcome: "Encoded | None" = None
    """of the newest call made directly here, so that a transcript need not encode it again"""
    known: bool = False
    """the newest call made directly here was answered from its receipt"""
    lost: bool = False
    """and what that call changed in the world is lost"""
    reached: bool = False
    """a call made under this frame came as far as the layer"""
    note: object = None
    """what the body wants kept with its receipt, outside every identity"""
    waiting: bool = False
    """it is held by the divergence rule, so it asks for nothing until somebody else moves"""
    _tally: Tally | None = field(default=None, alias="tally")

    @property
    def tally(self) -> Tally:
        """Made when a call is first made here: most bodies make none."""
        if self._tally is None:
            self._tally = Tally()
        return self._tally

    @property
    def called(self) -> bool:
        """Whether a call was made under this frame."""
        return self._tally is not None and bool(self._tally.counts)

    def next_key(self, effect: str, arguments: bytes) -> bytes:
        """The key of the next call of this effect with these arguments (a digest) under this frame."""
        identity = component(effect.encode(), arguments)
        counts = self.tally.counts
        occurrence = counts.get(identity, 0)
        counts[identity] = occurrence + 1
        return self.key + (component(identity, occurrence.to_bytes(8, "big")) if occurrence else identity)

    def new_step(self) -> None:
        """Forgets the counts."""
        self._tally = None

    def inside(self, key: bytes, idempotency: Idempotency) -> "Frame":
        """The frame of the body of the call `key`."""
        return Frame(key=key, idempotency=idempotency, under_reply=self.under_reply)

    def branch(self, name: str) -> "Frame":
        """A parent of its own for one of several concurrent parts of a body."""
        key = self.next_key("branch", name.encode())
        return Frame(key=key, idempotency=self.idempotency, under_reply=self.under_reply)

    def handled(self) -> "Frame":
        """The same parent, seen through a handler: what it forwards need not be what a reply recorded."""
        return Frame(key=self.key, idempotency=self.idempotency, under_reply=self.under_reply, tally=self.tally)


def reply_call(ordinal: int, index: int) -> Frame:
    """The parent of one call of a recorded reply: its place in the reply is a fact."""
    key = component(b"reply", ordinal.to_bytes(8, "big"), index.to_bytes(8, "big"))
    return Frame(key=key, recorded=True, under_reply=True)


FRAME: ContextVar[Frame | None] = ContextVar("savepoint_frame", default=None)


class in_frame:  # noqa: N801  reads as the verb of a `with`
    """The calls of the block are counted under `frame`. A class, because it stands around every body."""

    __slots__ = ("_frame", "_token")

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def __enter__(self) -> Frame:
        self._token = FRAME.set(self._frame)
        return self._frame

    def __exit__(self, *_: object) -> None:
        FRAME.reset(self._token)


def annotate(note: object) -> None:
    """Keeps `note` (portable: usage, provider ids) with the receipt of the call whose body is running.

    It is part of no identity and of no result; without a run it is dropped.
    """
    if (frame := FRAME.get()) is not None:
        frame.note = note
