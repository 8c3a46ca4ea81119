"""How a session loses its end: whole runs by their rows alone, the one that the cut lands inside by its entries too.

The mark of what goes, goes; so no run that stood on it lands any more. Nor does a repeat of what was dropped: the run
ids stay, as rewound.
"""

from collections.abc import Sequence

from attrs import evolve, frozen

from savepoint._ambient import fresh_bytes, wall_clock_s
from savepoint._errors import Usage
from savepoint._log import EMPTY_ROOT
from savepoint._portable import Encoded
from savepoint._store import Space, Store, Transaction
from savepoint._stored import load_log, put_elements
from savepoint._types import Types

from ._entries import whole_turns
from ._landing import MARK, content_of, write_change
from ._segments import head_of, member_of, part_of, part_with, parts_of, retried, wrong
from ._session_rows import (
    Head,
    Member,
    Part,
    Standing,
    part_key,
    run_row_key,
    session_key,
    write_member,
    write_part,
)


@frozen(kw_only=True)
class _Cut:
    """What a rewind leaves and what it removes."""

    head: Head
    before: Part | None
    """the last segment that stays as it is"""
    dropped: Sequence[Part]
    """the segments from the cut on, the cut one too"""
    kept: Sequence[Encoded]
    """what stays of the first of them"""
    members: Sequence[tuple[str, Member | None]]
    """of the runs that go"""


async def rewind(store: Store, types: Types, session_id: str, keep: int) -> int:
    """Drops the entries from `keep` on; returns how many. Raises `Usage`, `Conflict`, `Corrupt`, `Newer`, `Foreign`."""
    session_key(session_id)
    if type(keep) is not int or keep < 0:
        raise Usage(f"keep_entries={keep!r}: a number of entries from 0 on is needed", next="count over load()")

    async def once() -> int:
        head = await head_of(store, session_id)
        if keep >= head.entries:
            return 0
        cut = await _cut(store, types, session_id, head, keep)
        async with store.commit() as tx:
            left = _write(tx, store, session_id, cut)
        return head.entries - left

    return await retried(session_id, once)


async def clear(store: Store, session_id: str) -> None:
    """Drops all entries and the head. Raises `Usage`, `Conflict`, `Corrupt`, `Newer`."""
    key = session_key(session_id)

    async def once() -> None:
        head = await head_of(store, session_id)
        if head.digest is None:
            return
        parts = await parts_of(store, session_id, head)
        members = await _members(store, session_id, parts)
        async with store.commit() as tx:
            tx.expect(Space.SESSION, key, head.digest)
            tx.delete(Space.SESSION, key)
            _drop(tx, session_id, parts, members)

    await retried(session_id, once)


async def _cut(store: Store, types: Types, session_id: str, head: Head, keep: int) -> _Cut:
    hit = await part_with(store, session_id, head, keep)
    before = await part_of(store, session_id, head, hit.number - 1) if hit.number else None
    dropped = await parts_of(store, session_id, head, hit.number)
    if dropped[0] != hit or (before is not None and before.end != hit.start):
        await wrong(store, session_id, head, f"segment {hit.number} does not begin where the one before it ends")
    kept: Sequence[Encoded] = ()
    if keep > hit.start:
        log = await load_log(store, hit.root, hit.end, types)
        stop = hit.start + whole_turns(log[hit.start : keep])
        kept = [log.encoded_at(place) for place in range(hit.start, stop)]
    members = await _members(store, session_id, dropped[1:] if kept else dropped)
    return _Cut(head=head, before=before, dropped=dropped, kept=kept, members=members)


async def _members(store: Store, session_id: str, parts: Sequence[Part]) -> list[tuple[str, Member | None]]:
    ids = [part.run_id for part in parts if part.run_id is not None]
    return [(run_id, await member_of(store, session_id, run_id)) for run_id in ids]


def _write(tx: Transaction, store: Store, session_id: str, cut: _Cut) -> int:
    """Returns how many entries are left."""
    last, now = cut.before, wall_clock_s()
    first, root = (0, EMPTY_ROOT) if last is None else (last.number + 1, last.root)
    dropped = cut.dropped
    if cut.kept:
        last = evolve(
            dropped[0],
            count=len(cut.kept),
            root=put_elements(tx, root, cut.kept, store),
            mark=fresh_bytes(MARK),
            content=content_of(cut.kept),
            meta={},
            at=now,
        )
        tx.write(Space.SEGMENT, part_key(session_id, first), write_part(last))
        first, dropped = first + 1, dropped[1:]
    _drop(tx, session_id, dropped, cut.members)
    left = (0, EMPTY_ROOT, b"") if last is None else (last.end, last.root, last.mark)
    entries, root, mark = left
    changed = evolve(cut.head, segments=first, entries=entries, root=root, mark=mark, changed_at=now)
    write_change(tx, session_id, cut.head, changed)
    return entries


def _drop(
    tx: Transaction, session_id: str, parts: Sequence[Part], members: Sequence[tuple[str, Member | None]]
) -> None:
    for part in parts:
        tx.delete(Space.SEGMENT, part_key(session_id, part.number))
    for run_id, member in members:
        rewound = evolve(member or Member(), standing=Standing.REWOUND, number=None)
        tx.write(Space.MEMBER, run_row_key(session_id, run_id), write_member(rewound))
