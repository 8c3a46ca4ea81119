"""A lineage's events, their bytes, and the pure fold over them.

Each durable boundary of a run appends one row of events; the head row says how many there are and chains their
digests. `fold` turns the events after a savepoint into what recovery works with. See `design/0002-recovery.md`.
"""

from collections.abc import Iterable
from typing import cast

from attrs import evolve, field, frozen, mutable

from effects._idempotency import Idempotency
from effects._receipt import Receipt, Status

from ._codec import count_of, dump_row, loads
from ._digest import SIZE, Domain, seal
from ._errors import Corrupt, Foreign
from ._store import Row

LINEAGE_SIZE = 16


@frozen(kw_only=True)
class Called:
    """A call's receipt changed."""

    receipt: Receipt


@frozen(kw_only=True)
class Claimed:
    """A new attempt took the run; its world was forked from what event `forked` holds."""

    epoch: int
    forked: int


@frozen(kw_only=True)
class Snapshotted:
    """The world was snapshotted within a step; a later recovery forks it here."""

    world: bytes
    """the snapshot ids' object"""


@frozen(kw_only=True)
class Gap:
    """A savepoint was published: `step` starts. `point` is None where it could not be persisted, and `why` says so."""

    step: int
    point: bytes | None
    why: str = ""


Event = Called | Claimed | Snapshotted | Gap


@frozen(kw_only=True)
class Head:
    """Where a lineage stands; compared and set by every commit."""

    count: int = 0
    """events so far"""
    chain: bytes = bytes(SIZE)
    step: int = 0
    """savepoints published so far, refused ones included; the initial one is step 0"""
    epoch: int = 0
    point_step: int = 0
    """step of the newest savepoint that was persisted"""


@frozen(kw_only=True)
class Mark:
    """A persisted savepoint's row: which form, and where the events after it start."""

    point: bytes
    name: str
    count: int
    chain: bytes


def link(chain: bytes, row_digest: bytes) -> bytes:
    """The chain after one more row."""
    return seal(Domain.CHAIN, chain + row_digest)


def event_key(lineage: bytes, number: int) -> bytes:
    """The row key of the events from `number` on; keys of one lineage sort by number."""
    return lineage + number.to_bytes(8, "big")


# -- bytes --------------------------------------------------------------------------------------------------------

_CALLED, _CLAIMED, _SNAPSHOTTED, _GAP = 1, 2, 3, 4
_STATUSES = tuple(Status)
_CLASSES = tuple(Idempotency)


def write_events(events: Iterable[Event]) -> bytes:
    """Canonical bytes of one row of events."""
    return dump_row([_plain(event) for event in events])


def _plain(event: Event) -> list[object]:
    match event:
        case Called(receipt=receipt):
            return [_CALLED, *_plain_receipt(receipt)]
        case Claimed():
            return [_CLAIMED, event.epoch, event.forked]
        case Snapshotted():
            return [_SNAPSHOTTED, event.world]
        case Gap():
            return [_GAP, event.step, event.point, event.why]


def _plain_receipt(receipt: Receipt) -> list[object]:
    plain: list[object] = [
        receipt.key,
        receipt.step,
        receipt.effect,
        receipt.version,
        _CLASSES.index(receipt.idempotency),
        _STATUSES.index(receipt.status),
        receipt.arguments,
        receipt.outcome,
        receipt.at,
        receipt.tried,
    ]
    # What most receipts do not have is only written where they have it.
    rare = {
        "a": receipt.arguments_object,
        "n": receipt.note,
        "p": receipt.world,
        "w": receipt.writes_world or None,
    }
    present = {name: value for name, value in rare.items() if value is not None}
    return [*plain, present] if present else plain


def read_events(row: Row) -> list[Event]:
    """The events of one row, receipts numbered by their place. Raises `Corrupt`, `Foreign` (an unknown kind)."""
    first = int.from_bytes(row.key[-8:], "big")
    try:
        plain = cast("list[list[object]]", loads(row.body))
        return [_event(fields, first + index) for index, fields in enumerate(plain)]
    except (TypeError, ValueError, IndexError, AttributeError, KeyError) as error:
        raise Corrupt(f"events {first}: {error}") from error


def _event(fields: list[object], number: int) -> Event:
    match fields:
        case [1, *rest]:
            return Called(receipt=_receipt(rest, number))
        case [2, int(epoch), int(forked), *_]:
            return Claimed(epoch=epoch, forked=forked)
        case [3, bytes(world), *_]:
            return Snapshotted(world=world)
        case [4, int(step), (bytes() | None) as point, str(why), *_]:
            return Gap(step=step, point=point, why=why)
        case [int(kind), *_] if kind not in {_CALLED, _CLAIMED, _SNAPSHOTTED, _GAP}:
            raise Foreign(f"event {number} is of the unknown kind {kind}", next="upgrade portable-savepoints")
        case _:
            raise ValueError(f"event {number} is malformed")


def _receipt(fields: list[object], number: int) -> Receipt:
    key, step, effect, version, idempotency, status, arguments, outcome, at, tried, *more = fields
    rare = cast("dict[str, object]", more[0]) if more else {}
    return Receipt(
        key=cast("bytes", key),
        step=cast("int", step),
        effect=cast("str", effect),
        version=cast("int", version),
        idempotency=_CLASSES[cast("int", idempotency)],
        status=_STATUSES[cast("int", status)],
        arguments=cast("bytes | None", arguments),
        outcome=cast("bytes | None", outcome),
        at=cast("float", at),
        tried=cast("int", tried),
        number=number,
        arguments_object=cast("bytes | None", rare.get("a")),
        writes_world=bool(rare.get("w")),
        world=cast("bytes | None", rare.get("p")),
        note=cast("bytes | None", rare.get("n")),
    )


def write_head(head: Head) -> bytes:
    return dump_row([head.count, head.chain, head.step, head.epoch, head.point_step])


def read_head(row: Row) -> Head:
    try:
        count, chain, step, epoch, point_step, *_ = cast("list[object]", loads(row.body))
    except (TypeError, ValueError) as error:
        raise Corrupt(f"the head of lineage {row.key.hex()}: {error}") from error
    return Head(
        count=cast("int", count),
        chain=cast("bytes", chain),
        step=cast("int", step),
        epoch=cast("int", epoch),
        point_step=cast("int", point_step),
    )


def write_mark(mark: Mark) -> bytes:
    return dump_row([mark.point, mark.name, mark.count, mark.chain])


def read_mark(row: Row) -> Mark:
    try:
        point, name, count, chain, *_ = cast("list[object]", loads(row.body))
    except (TypeError, ValueError) as error:
        raise Corrupt(f"the savepoint row {row.key.hex()}: {error}") from error
    return Mark(
        point=cast("bytes", point), name=cast("str", name), count=cast("int", count), chain=cast("bytes", chain)
    )


# -- the fold -----------------------------------------------------------------------------------------------------


@mutable(kw_only=True)
class Past:
    """What the events after a savepoint say."""

    receipts: dict[tuple[int, bytes], Receipt] = field(factory=dict[tuple[int, bytes], Receipt])
    """(step, call key) -> newest receipt"""
    forked: int = 0
    """the event that holds the newest snapshot of the world: of the savepoint, or of a later one"""
    world: bytes | None = None
    """that later snapshot's ids object; None: the savepoint's own"""


def fold(events: Iterable[tuple[int, Event]], *, start: int) -> Past:
    """Receipts and world after the savepoint whose events start at number `start` (its own gap is `start - 1`).

    The events come with their numbers: where some are damaged, those behind them still count.
    """
    past = Past(forked=start - 1)
    for number, event in events:
        match event:
            case Called(receipt=receipt):
                past.receipts[receipt.step, receipt.key] = receipt
            case Claimed(forked=forked):
                _mark_stale(past.receipts, forked)
            case Snapshotted(world=world):
                past.forked, past.world = number, world
            case Gap():
                pass  # the head counts the steps
    return past


def _mark_stale(receipts: dict[tuple[int, bytes], Receipt], forked: int) -> None:
    """A claim forked the world at event `forked`: later changes of the world are not in that fork."""
    for place, receipt in receipts.items():
        if receipt.touches_world and receipt.number > forked:
            receipts[place] = evolve(receipt, stale=True)


def check_chain(rows: Iterable[Row], *, start: int, chain: bytes, head: Head) -> None:
    """Proves that `rows` are all events from `start` to the head, unaltered and in order. Raises `Corrupt`."""
    number = start
    for row in rows:
        if int.from_bytes(row.key[-8:], "big") != number:
            raise Corrupt(f"event {number} of lineage {row.key[:-8].hex()} is missing")
        chain = link(chain, row.digest)
        number += count_of(row.body)
    if number != head.count or chain != head.chain:
        raise Corrupt(f"the events end at {number}, the head says {head.count}")
