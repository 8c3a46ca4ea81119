"""One-line faults that the rig can plant into a child process: the suite must notice each of them."""

from collections.abc import Callable

from attrs import evolve

from effects._recovery import Facts
from savepoint import _journal
from savepoint._frame import Frame, component
from savepoint._guard import Guard
from savepoint._journal import Journal
from savepoint._passage import Passage
from savepoint._writer import INTENT, Writer


def _no_intent() -> None:
    """ONCE calls start without a durable intent."""
    Passage._needs_intent = lambda self: False  # type: ignore[method-assign]


def _contained_reuse() -> None:
    """A CONTAINED result is reused although the fork does not hold its change."""
    _journal.covered = lambda key, receipts, forked: True


def _no_guard() -> None:
    """A redone program may do something else than its receipts say."""
    Guard._missing = lambda self, levels: []  # type: ignore[method-assign]


def _position() -> None:
    """Receipts are matched by position, not by effect and arguments."""

    def next_key(self: Frame, effect: str, arguments: bytes) -> bytes:
        count = self.tally.counts.get(b"", 0)
        self.tally.counts[b""] = count + 1
        return self.key + component(b"position", count.to_bytes(8, "big"))

    Frame.next_key = next_key  # type: ignore[method-assign]


def _decision_twice() -> None:
    """A decision `redo` is not consumed by the try that it allowed."""
    facts = Journal.facts
    once: set[bytes] = set()

    def generous(self: Journal, receipt: _journal.Receipt, rules: _journal.Rules) -> Facts:
        known = facts(self, receipt, rules)
        if known.redo or any(said.choice.value == "redo" for said in self.decisions.values()):
            once.add(receipt.key)
        return evolve(known, redo=receipt.key in once)

    Journal.facts = generous  # type: ignore[method-assign]


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


SABOTAGES: dict[str, Callable[[], None]] = {
    "no intent": _no_intent,
    "contained reuse": _contained_reuse,
    "no guard": _no_guard,
    "position": _position,
    "decision twice": _decision_twice,
    "unordered": _unordered,
}
