"""What a resume starts from: the newest good savepoint, and the receipts after it, verified.

Reading only: nothing is claimed or written here.
"""

import contextlib
from collections.abc import Sequence

from attrs import frozen

from ._digest import SIZE
from ._errors import Corrupt, Missing
from ._events import Event, Head, Mark, Past, check_chain, event_key, fold, read_events, read_head, read_mark
from ._form import Savepoint, read_form
from ._gap import point_key
from ._nested import nested_in
from ._resumable import Registry
from ._shelf import shelf_of
from ._store import Row, Space, Store


@frozen(kw_only=True)
class Standing:
    """Where a lineage stands."""

    lineage: bytes
    head: Head
    digest: bytes
    """of the head row, for the next compare-and-set"""
    step: int
    """of the savepoint"""
    savepoint: Savepoint
    past: Past
    warnings: tuple[str, ...] = ()
    """newer savepoints that are damaged, and why"""
    damage: str = ""
    """what is wrong with the receipts after the savepoint; empty where all are there"""


async def read_standing(store: Store, lineage: bytes, registry: Registry) -> Standing:
    """Reads and verifies. Raises `Corrupt` (the head, or every savepoint), `Missing`, `Foreign`, `Newer`."""
    head, digest = await read_lineage(store, lineage)
    step, mark, savepoint, warnings = await _newest(store, lineage, head, registry)
    events, damage = await _events(store, lineage, mark, head)
    if (damage or warnings) and (await read_lineage(store, lineage))[1] != digest:
        # An owner wrote meanwhile, so that what was read first does not fit what was read next.
        return await read_standing(store, lineage, registry)
    return Standing(
        lineage=lineage,
        head=head,
        digest=digest,
        step=step,
        savepoint=savepoint,
        past=fold(events, start=mark.count),
        warnings=tuple(warnings),
        damage=damage,
    )


async def read_lineage(store: Store, lineage: bytes) -> tuple[Head, bytes]:
    """A lineage's head and the digest of its row. Raises `Corrupt`."""
    row = await store.read(Space.HEAD, lineage)
    if row is None:
        raise Corrupt(f"lineage {lineage.hex()} has no head")
    return read_head(row), row.digest


async def read_marks(store: Store, lineage: bytes) -> dict[int, Row]:
    """Step -> the row of the savepoint persisted there."""
    rows = await store.scan(Space.POINT, lineage)
    return {int.from_bytes(row.key[-8:], "big"): row for row in rows}


async def find_mark(store: Store, lineage: bytes, step: int) -> Mark | None:
    """The savepoint persisted at this step, if one was. Raises `Corrupt`."""
    row = await store.read(Space.POINT, point_key(lineage, step))
    return None if row is None else read_mark(row)


async def _newest(
    store: Store, lineage: bytes, head: Head, registry: Registry
) -> tuple[int, Mark, Savepoint, list[str]]:
    """The newest savepoint whose every byte is what was written; damaged ones are named, never removed."""
    warnings: list[str] = []
    for step in range(head.point_step, -1, -1):  # one row, where nothing is damaged
        try:
            mark = await find_mark(store, lineage, step)
            if mark is not None:
                return step, mark, await read_form(store, mark.point, registry), warnings
            if step in {head.point_step, 0}:  # between them, a step without one had none
                warnings.append(f"savepoint {step} is missing")
        except (Corrupt, Missing) as error:
            warnings.append(f"savepoint {step} cannot be used: {error.message}")
    what = "; ".join(warnings) or "no savepoint was ever stored"
    raise Corrupt(f"there is no good savepoint to resume from: {what}")


async def may_repeat(store: Store, lineage: bytes, step: int, mark: Mark) -> tuple[str, ...]:
    """The effects of the `ONCE` and `KEYED` calls after the savepoint `step`, those of nested runs among them, as far as
    their events can be read.
    """
    head, digest = await read_lineage(store, lineage)
    shelf = shelf_of(store)
    found = shelf.repeats(digest, step)
    if found is None:
        events, _ = await _events(store, lineage, mark, head)
        receipts = fold(events, start=mark.count).receipts.values()
        effects = {each.effect for each in receipts if each.idempotency.doubtful and each.step >= step}
        for nested in await nested_in(store, lineage, since=step):
            first = await find_mark(store, nested.lineage, 0)
            effects |= set(() if first is None else await may_repeat(store, nested.lineage, 0, first))
        found = tuple(sorted(effects))
        shelf.keep_repeats(digest, step, found)
    return found


async def _events(store: Store, lineage: bytes, mark: Mark, head: Head) -> tuple[list[tuple[int, Event]], str]:
    """The events after a savepoint by number, and what is wrong with them: a gap is never taken for "no receipt"."""
    try:
        rows = await store.scan(Space.EVENT, lineage, after=event_key(lineage, mark.count - 1))
        check_chain(rows, start=mark.count, chain=mark.chain, head=head)
        events = [event for row in rows for event in read_events(row)]
        return list(enumerate(events, mark.count)), ""
    except Corrupt as error:
        return await _readable(store, lineage, mark.count, head.count), error.message


async def whole_events(store: Store, lineage: bytes) -> Sequence[Row]:
    """All event rows of a lineage, none missing. Raises `Corrupt`."""
    head, digest = await read_lineage(store, lineage)
    rows = await store.scan(Space.EVENT, lineage)
    try:
        check_chain(rows, start=0, chain=bytes(SIZE), head=head)
    except Corrupt:
        if (await read_lineage(store, lineage))[1] == digest:
            raise
        return await whole_events(store, lineage)  # an owner wrote meanwhile
    return rows


async def _readable(store: Store, lineage: bytes, first: int, end: int) -> list[tuple[int, Event]]:
    """The events before and behind the damage: what an attempt did after it was told to go on counts too."""
    found: list[tuple[int, Event]] = []
    number = first
    while number < end:
        events: list[Event] = []
        with contextlib.suppress(Corrupt):
            row = await store.read(Space.EVENT, event_key(lineage, number))
            events = [] if row is None else read_events(row)
        found += enumerate(events, number)
        number += max(1, len(events))
    return found
