"""Faults in how receipts are written, kept in order, named and read back."""

import asyncio
from collections.abc import Callable
from typing import Any

from effects._receipt import Receipt, Status
from savepoint import _passage, _past, _tries
from savepoint._doubt import doubted
from savepoint._frame import Frame, component
from savepoint._journal import Journal
from savepoint._passage import Passage
from savepoint._writer import INTENT, Writer


def _no_intent() -> None:
    """ONCE calls start without a durable intent."""
    Passage._needs_intent = lambda self: False  # type: ignore[method-assign]


def _receipt_before_effect() -> None:
    """What is written before the body says that the call was performed."""
    new = Passage.new

    def hasty(self: Passage, status: Status, **more: Any) -> Receipt:
        return new(self, Status.PERFORMED if status is Status.INTENDED else status, **more)

    Passage.new = hasty  # type: ignore[method-assign]


def _unordered() -> None:
    """An intent's commit does not hold what landed before it."""
    commit = Writer.commit

    async def careless(self: Writer, boundary: object, *rest: object, **more: object) -> None:
        if boundary is not INTENT:
            await commit(self, boundary, *rest, **more)  # type: ignore[arg-type]
            return
        landed, values = self._landed, self._values
        self._landed, self._values = [], []
        await commit(self, boundary, *rest, **more)  # type: ignore[arg-type]
        self._landed, self._values = [*landed, *self._landed], [*values, *self._values]

    Writer.commit = careless  # type: ignore[method-assign, assignment]


def _position() -> None:
    """Receipts are matched by position, not by effect and arguments."""

    def next_key(self: Frame, effect: str, arguments: bytes) -> bytes:
        count = self.tally.counts.get(b"", 0)
        self.tally.counts[b""] = count + 1
        return self.key + component(b"position", count.to_bytes(8, "big"))

    Frame.next_key = next_key  # type: ignore[method-assign]


def _arguments_alone() -> None:
    """Receipts are matched by the arguments' digest: no parent, no effect, no occurrence."""
    Frame.next_key = lambda self, effect, arguments: component(arguments)  # type: ignore[method-assign]


def _no_occurrence() -> None:
    """Equal calls under one parent share their receipt."""

    def next_key(self: Frame, effect: str, arguments: bytes) -> bytes:
        return self.key + component(effect.encode(), arguments)

    Frame.next_key = next_key  # type: ignore[method-assign]


def _no_lineage_in_key() -> None:
    """A fork passes the same idempotency keys to the outside as the run that it was forked from."""
    Journal.idempotency_key = lambda self, key, step=None: component(key).hex()  # type: ignore[method-assign]


def _attempt_in_key() -> None:
    """A call that is made again has another idempotency key than before."""

    def key_of(self: Journal, key: bytes, step: int | None = None) -> str:
        return component(key, self.writer.lineage, self.claim.epoch.to_bytes(8, "big")).hex()

    Journal.idempotency_key = key_of  # type: ignore[method-assign]


def _ambiguous_is_failed() -> None:
    """A timeout or a lost connection is recorded as the call's failure, and told to the program."""
    _passage.perform = Passage.run  # type: ignore[assignment]


def _interrupted_is_failed() -> None:
    """A ONCE call that was cancelled under way is recorded as failed."""

    async def sure(passage: Passage, error: BaseException) -> object:
        if isinstance(error, asyncio.CancelledError):
            passage._fail(RuntimeError("it was interrupted"))
            raise error
        return await doubted(passage, error)

    _tries.doubted = sure


def _damaged_is_none() -> None:
    """A receipt that cannot be read counts as one that never was."""

    async def trusting(*what: Any) -> Any:
        return (await events(*what))[0], ""

    events = _past._events
    _past._events = trusting


def _no_chain() -> None:
    """Nobody notices that receipts were cut off at the end."""
    _past.check_chain = lambda *_, **__: None


RECEIPTS: dict[str, Callable[[], None]] = {
    "no intent": _no_intent,
    "receipt before effect": _receipt_before_effect,
    "unordered": _unordered,
    "position": _position,
    "arguments alone": _arguments_alone,
    "no occurrence": _no_occurrence,
    "no lineage in the key": _no_lineage_in_key,
    "attempt in the key": _attempt_in_key,
    "ambiguous is failed": _ambiguous_is_failed,
    "interrupted is failed": _interrupted_is_failed,
    "damaged receipt is none": _damaged_is_none,
    "no chain": _no_chain,
}
