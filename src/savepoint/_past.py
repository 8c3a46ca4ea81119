"""What a resume starts from: the newest good savepoint, and the receipts after it, verified.

Reading only: nothing is claimed or written here.
"""

from collections.abc import Sequence

from attrs import field, frozen

from ._errors import Corrupt, Missing
from ._events import Event, Head, Mark, Past, check_chain, event_key, fold, read_events, read_head, read_mark
from ._form import Savepoint, read_form
from ._resumable import Registry
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
    marks: Sequence[int] = field(factory=tuple[int, ...])
    """steps that can be resumed or forked from, as far as their rows tell"""


async def read_standing(store: Store, lineage: bytes, registry: Registry) -> Standing:
    """Reads and verifies. Raises `Corrupt` (the head, or every savepoint), `Missing`, `Foreign`, `Newer`."""
    row = await store.read(Space.HEAD, lineage)
    if row is None:
        raise Corrupt(f"lineage {lineage.hex()} has no head", next="savepoint verify")
    head = read_head(row)
    marks = await read_marks(store, lineage)
    step, mark, savepoint, warnings = await _newest(store, marks, registry)
    events, damage = await _events(store, lineage, mark, head)
    return Standing(
        lineage=lineage,
        head=head,
        digest=row.digest,
        step=step,
        savepoint=savepoint,
        past=fold(events, start=mark.count),
        warnings=tuple(warnings),
        damage=damage,
        marks=tuple(sorted(marks)),
    )


async def read_marks(store: Store, lineage: bytes) -> dict[int, Row]:
    """Step -> the row of the savepoint persisted there."""
    rows = await store.scan(Space.POINT, lineage)
    return {int.from_bytes(row.key[-8:], "big"): row for row in rows}


async def _newest(
    store: Store, marks: dict[int, Row], registry: Registry
) -> tuple[int, Mark, Savepoint, list[str]]:
    """The newest savepoint whose every byte is what was written; damaged ones are named, never removed."""
    warnings: list[str] = []
    for step in sorted(marks, reverse=True):
        try:
            mark = read_mark(marks[step])
            return step, mark, await read_form(store, mark.point, registry), warnings
        except (Corrupt, Missing) as error:
            warnings.append(f"savepoint {step} cannot be used: {error.message}")
    what = "; ".join(warnings) or "no savepoint was ever stored"
    raise Corrupt(f"there is no good savepoint to resume from: {what}", next="savepoint verify")


async def _events(store: Store, lineage: bytes, mark: Mark, head: Head) -> tuple[list[Event], str]:
    """The events after a savepoint, and what is wrong with them: a gap is never taken for "no receipt"."""
    after = event_key(lineage, mark.count - 1)
    try:
        rows = await store.scan(Space.EVENT, lineage, after=after)
        check_chain(rows, start=mark.count, chain=mark.chain, head=head)
        return [event for row in rows for event in read_events(row)], ""
    except Corrupt as error:
        return await _readable(store, lineage, after), error.message


async def _readable(store: Store, lineage: bytes, after: bytes) -> list[Event]:
    """The events up to the damage."""
    events: list[Event] = []
    while True:
        try:
            rows = await store.scan(Space.EVENT, lineage, after=after, limit=1)
            if not rows:
                return events
            events += read_events(rows[0])
        except Corrupt:
            return events
        after = rows[0].key
