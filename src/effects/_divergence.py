"""Divergence: a redone body that no longer asks for what the receipts say was done. Pure, over the set of calls.

Nothing outside may change, and no body may end, while a ONCE or KEYED receipt below any of its ancestors has not been
asked for again: the redone program could be about to do *almost* the same thing twice.
"""

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet

from ._key import ancestors, below, parent
from ._receipt import Receipt, Status

COUNTED = frozenset({Status.INTENDED, Status.IN_DOUBT, Status.PERFORMED})


def unasked(
    receipts: Iterable[Receipt],
    levels: Collection[bytes],
    *,
    asked: AbstractSet[bytes],
    reused: AbstractSet[bytes],
    excused: AbstractSet[tuple[int, bytes]],
) -> list[Receipt]:
    """The ONCE and KEYED receipts below one of `levels` that the redone program has not asked for again.

    `asked`: keys asked for in this attempt; `reused`: keys answered from their receipt, so that all below them counts
    as asked; all of one step. `excused`: step and key of calls that a decision lets stand.
    """
    return [
        receipt
        for receipt in receipts
        if receipt.idempotency.doubtful
        and receipt.status in COUNTED
        and receipt.key not in asked
        and (receipt.step, receipt.key) not in excused
        and any(below(receipt.key, level) for level in levels)
        and not any(above in reused for above in ancestors(receipt.key, top=1))
    ]


def guarded_levels(key: bytes, *, recorded: bool) -> tuple[bytes, ...]:
    """The ancestors whose calls must all have been asked for before the call `key` may change anything outside.

    `recorded`: the outermost component is a call of a recorded reply, whose siblings cannot diverge.
    """
    return ancestors(key, top=1 if recorded else 0)


def changes_decisions(
    redone: Receipt, receipts: Iterable[Receipt], excused: AbstractSet[tuple[int, bytes]]
) -> list[Receipt]:
    """The receipts that may rest on the old result of a redone CONTAINED call whose result now differs.

    Later ONCE and KEYED calls of the same body, and whatever later replies did; not its siblings in one recorded reply.
    """
    body = parent(redone.key)
    return [
        later
        for later in receipts
        if later.number > redone.number
        and later.idempotency.doubtful
        and later.status in COUNTED
        and (later.step, later.key) not in excused
        and (later.step > redone.step or (later.step == redone.step and parent(later.key) == body))
    ]


def may_depend(read: Receipt, receipts: Iterable[Receipt]) -> bool:
    """Whether something outside happened after this READ, so that its answer must stay what it was."""
    return any(later.idempotency.outside and later.number > read.number for later in receipts)


def covered(key: bytes, receipts: Iterable[Receipt], forked: int) -> bool:
    """Whether every world change at or below `key` is in the fork taken at event number `forked`."""
    return all(
        0 < receipt.number <= forked and not receipt.stale
        for receipt in receipts
        if receipt.touches_world and receipt.key.startswith(key)
    )
