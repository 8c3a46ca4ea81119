"""Faults in what a resumed run makes of its receipts, and of what was decided."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from effects import Effect, Idempotency
from effects import _recovery as table
from effects._receipt import Receipt
from effects._recovery import Facts, Rules, Verdict
from savepoint import _journal, _play, _program, _settle
from savepoint._attempt import Attempt
from savepoint._begin import create
from savepoint._errors import Superseded
from savepoint._guard import Guard
from savepoint._journal import Journal, rules_of
from savepoint._past import read_standing
from savepoint._settle import settle_doubts


def _doubt_is_redone() -> None:
    """A call of which nobody knows whether it happened is made again."""
    table._doubtful = lambda *_: Verdict.DO


def _contained_reuse() -> None:
    """A CONTAINED result is reused although the fork does not hold its change."""
    _journal.covered = lambda key, receipts, forked: True


def _no_guard() -> None:
    """A redone program may do something else than its receipts say."""
    Guard._missing = lambda self, levels: []  # type: ignore[method-assign]


def _decision_twice() -> None:
    """A decision `redo` is not consumed by the try that it allowed."""
    facts = Journal.facts
    once: set[bytes] = set()

    def generous(self: Journal, receipt: Receipt, rules: Rules) -> Facts:
        known = facts(self, receipt, rules)
        if known.redo or any(said.choice.value == "redo" for said in self.decisions.values()):
            once.add(receipt.key)
        return evolve(known, redo=receipt.key in once)

    Journal.facts = generous  # type: ignore[method-assign]


def _no_window() -> None:
    """A KEYED call is repeated with its key however long ago the remote forgot it."""

    def endless(effect: Effect[..., Any] | None, receipt: Receipt) -> Rules:
        return evolve(rules_of(effect, receipt), window_s=float("inf"))

    _journal.rules_of = endless


def _old_is_read_again() -> None:
    """An answer that is too old is observed anew though something outside rests on it."""
    _journal.may_depend = lambda *_: False


def _max_age_ignored() -> None:
    """However old an answer is, it is used again."""
    table._too_old = lambda *_: False


def _not_performed_is_final() -> None:
    """A probe's "not performed" is believed at once, though the request may still be under way."""
    _settle._settled_outside = lambda *_: True


def _not_asked_first() -> None:
    """The program is entered before its questions are answered."""

    async def settled(attempt: Attempt) -> list[str]:
        await settle_doubts(attempt)
        return []

    _play.settle_doubts = settled


def _parked_goes_on() -> None:
    """A run that waits for a decision starts further calls."""

    def must_go_on(self: Journal) -> None:
        if self.ended and not self.parked:
            raise Superseded

    Journal.must_go_on = must_go_on  # type: ignore[method-assign]


def _savepoint_past_doubt() -> None:
    """A savepoint is published past a call of which nobody knows whether it happened."""
    _parked_goes_on()
    Journal.doubts = lambda self: []  # type: ignore[method-assign]


def _restart_inherits() -> None:
    """A run that is started anew still has the receipts of the one that it replaces."""

    async def heir(store: Any, record: Any, *rest: Any, registry: Any, former: Any = None, **more: Any) -> Any:
        standing = None if former is None else await read_standing(store, former.lineage, registry)
        attempt = await create(store, record, *rest, registry=registry, former=former, **more)
        attempt.journal.receipts = {} if standing is None else dict(standing.past.receipts)
        return attempt

    _program.create = heir


def _model_asked_again() -> None:
    """A reply of the model that is durable is asked, and paid, for again."""
    verdict = Journal.verdict

    def wasteful(self: Journal, effect: Effect[..., Any] | None, receipt: Receipt | None) -> Verdict:
        paid = receipt is not None and receipt.effect == "agent/model" and receipt.idempotency is Idempotency.READ
        return Verdict.DO if paid else verdict(self, effect, receipt)

    Journal.verdict = wasteful  # type: ignore[method-assign]


RECOVERY: dict[str, Callable[[], None]] = {
    "doubt is redone": _doubt_is_redone,
    "contained reuse": _contained_reuse,
    "no guard": _no_guard,
    "decision twice": _decision_twice,
    "no window": _no_window,
    "old answer read again": _old_is_read_again,
    "max_age ignored": _max_age_ignored,
    "not performed is final": _not_performed_is_final,
    "not asked first": _not_asked_first,
    "parked goes on": _parked_goes_on,
    "savepoint past doubt": _savepoint_past_doubt,
    "restart inherits": _restart_inherits,
    "model asked again": _model_asked_again,
}
