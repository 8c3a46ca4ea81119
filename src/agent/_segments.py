"""Reading the rows of a session: they are several, so what was read is either of one state of it or read again.

Segments follow one another without a gap, so where one is, is found in O(log n) reads.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import NoReturn, TypeVar

from savepoint._errors import Conflict, Corrupt, Stale
from savepoint._store import Space, Store

from ._session_rows import Head, Member, Part, below, part_key, read_head, read_member, read_part, run_row_key
from ._session_rows import session_key as key_of

T = TypeVar("T")

TRIES = 200
"""How often a change that others are faster than is tried. Of those who try at once one succeeds, each time."""


async def retried(session_id: str, once: Callable[[], Awaitable[T]]) -> T:
    """What `once` gives, called again where the session was changed meanwhile. Raises `Conflict` after `TRIES`."""
    for _ in range(TRIES):
        try:
            return await once()
        except Stale:
            continue
    raise Conflict(f"session {session_id!r} was changed by others {TRIES} times in a row", next="try again")


async def head_of(store: Store, session_id: str) -> Head:
    """The head, also of a session that holds nothing. Raises `Corrupt`, `Newer`.

    A head that is gone while its segments are there is damage, and never an empty session.
    """
    key = key_of(session_id)
    row = await store.read(Space.SESSION, key)
    if row is None and await store.read(Space.SEGMENT, part_key(session_id, 0)) is not None:
        row = await store.read(Space.SESSION, key)  # again: the first segment may have come in between
        if row is None:
            raise Corrupt(f"session {session_id!r} has segments, and its head is gone")
    return read_head(row, session_id)


async def member_of(store: Store, session_id: str, run_id: str) -> Member | None:
    """What became of a run's part; None where nothing is known of it. Raises `Corrupt`, `Newer`."""
    row = await store.read(Space.MEMBER, run_row_key(session_id, run_id))
    return read_member(row, session_id, run_id)


async def parts_of(store: Store, session_id: str, head: Head, first: int = 0) -> list[Part]:
    """The rows of the segments from number `first` on. Raises `Stale`, `Corrupt`, `Newer`."""
    after = part_key(session_id, first - 1) if first else b""
    rows = await store.scan(Space.SEGMENT, below(session_id), after=after)
    parts = [read_part(row, session_id) for row in rows]
    if not _fit(parts, head, first):
        await wrong(store, session_id, head, f"its segments from {first} on are not those that its head counts")
    return parts


def _fit(parts: Sequence[Part], head: Head, first: int) -> bool:
    if [part.number for part in parts] != list(range(first, head.segments)):
        return False
    if not parts:
        return first > 0 or head.entries == 0
    chained = all(one.end == other.start for one, other in pairwise(parts))
    last = parts[-1]
    whole = chained and all(part.count for part in parts) and (first > 0 or parts[0].start == 0)
    return whole and (last.end, last.root, last.mark) == (head.entries, head.root, head.mark)


async def part_of(store: Store, session_id: str, head: Head, number: int) -> Part:
    """The row of one segment. Raises `Stale`, `Corrupt`, `Newer`."""
    row = await store.read(Space.SEGMENT, part_key(session_id, number))
    if row is None:
        await wrong(store, session_id, head, f"segment {number} of {head.segments} is not there")
    return read_part(row, session_id)


async def part_with(store: Store, session_id: str, head: Head, place: int) -> Part:
    """The row of the segment that holds the entry at `place`. Raises `Stale`, `Corrupt`, `Newer`."""
    low, high = 0, head.segments
    while low < high:
        part = await part_of(store, session_id, head, (low + high) // 2)
        if place < part.start:
            high = part.number
        elif place >= part.end:
            low = part.number + 1
        else:
            return part
    await wrong(store, session_id, head, f"no segment of it holds entry {place} of {head.entries}")


async def stands(store: Store, session_id: str, head: Head, count: int, mark: bytes) -> bool:
    """Whether the session still begins with the `count` entries whose last segment has this mark."""
    if count <= 0:
        return count == 0 and mark == b""
    if count >= head.entries:
        return count == head.entries and mark == head.mark
    part = await part_with(store, session_id, head, count - 1)
    return part.end == count and part.mark == mark


async def wrong(store: Store, session_id: str, head: Head, what: str) -> NoReturn:
    """Rows that do not fit together: damage, unless the session was changed between two reads."""
    now = await head_of(store, session_id)
    if now.digest != head.digest:
        raise Stale(f"session {session_id!r} was changed by somebody else", next="read it again, then decide anew")
    raise Corrupt(f"session {session_id!r}: {what}")
