"""Whether every session of a store is whole: its rows fit together, and all that they name is there. Decodes no entry."""

from collections.abc import AsyncIterator, Iterator

from savepoint._errors import SavepointError
from savepoint._log import EMPTY_ROOT, read_segments
from savepoint._store import Row, Space, Store
from savepoint._unit import Damage

from ._segments import head_of, member_of, parts_of, retried
from ._session_rows import Head, Part, Standing


async def verify_sessions(store: Store) -> list[Damage]:
    """Damage is listed, never raised; what the reading of all rows and objects finds is not named again."""
    try:
        rows = [row for space in (Space.SESSION, Space.SEGMENT) for row in await store.scan(space)]
    except SavepointError:
        return []  # a bad row; the reading of all rows has named it
    found: list[Damage] = []
    for session_id in dict.fromkeys(_names(rows)):
        try:
            found += await retried(session_id, lambda name=session_id: _session(store, name))
        except SavepointError as error:
            found.append(Damage(what="session", name=session_id, cause=error.message))
    return found


def _names(rows: list[Row]) -> Iterator[str]:
    """Also of a session whose head is gone."""
    return (row.key.partition(b"\0")[0].decode(errors="backslashreplace") for row in rows)


async def _session(store: Store, session_id: str) -> list[Damage]:
    """Raises `Corrupt`, `Missing`, `Newer` for what ends the reading, `Stale` where it was changed meanwhile."""
    head = await head_of(store, session_id)
    parts = await parts_of(store, session_id, head)
    wrong = [*await _log(store, head, parts), *[each async for each in _strangers(store, session_id, parts)]]
    return [Damage(what="session", name=session_id, cause=cause) for cause in wrong]


async def _log(store: Store, head: Head, parts: list[Part]) -> list[str]:
    if not head.entries:
        return []
    read = read_segments(head.root, head.entries, await store.segments(head.root, until=EMPTY_ROOT))
    await store.objects(list(dict.fromkeys(digest for digest, body in read.parts if body is None)))
    ends = (part for part in parts if read.roots[part.end] != part.root)
    return [f"segment {part.number} names other entries than it holds" for part in ends]


async def _strangers(store: Store, session_id: str, parts: list[Part]) -> AsyncIterator[str]:
    """Segments of which their runs know nothing: a repeat would append them again."""
    for part in parts:
        member = None if part.run_id is None else await member_of(store, session_id, part.run_id)
        known = member is not None and (member.standing, member.number) == (Standing.LANDED, part.number)
        if part.run_id is not None and not known:
            yield f"segment {part.number} is of run {part.run_id}, of which the session does not know that it landed"
