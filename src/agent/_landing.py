"""How a run's part comes into a session: one commit, by compare-and-set on the head, once for each run id.

Nothing that is in the session already is read, and nothing of what the run has stored is written again.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from attrs import evolve, field, frozen

from savepoint._ambient import fresh_bytes, wall_clock_s
from savepoint._codec import dumps, loads
from savepoint._crashpoint import CrashPoint, reach
from savepoint._digest import Domain, chained
from savepoint._errors import Foreign, Usage
from savepoint._log import EMPTY_ROOT, Log
from savepoint._portable import Encoded, encode, normalise
from savepoint._run import run_key
from savepoint._store import Space, Store, Transaction
from savepoint._stored import put_elements, put_log

from ._dangling import drop_dangling_tool_calls
from ._entries import paired
from ._segments import head_of, member_of, part_of, retried, stands, wrong
from ._session_rows import (
    Head,
    Member,
    Part,
    Standing,
    part_key,
    run_row_key,
    session_key,
    write_head,
    write_member,
    write_part,
)

MARK = 8
"""Bytes of a mark."""


@frozen(kw_only=True)
class Footing:
    """What a run begins with, and stands on until it lands."""

    session_id: str
    history: Log[Any] = field(factory=Log[Any])
    mark: bytes = b""
    """of the last segment; empty where there is none"""


@frozen(kw_only=True)
class Addition:
    """What is to be added, encoded once however often the commit is tried."""

    session_id: str
    run_id: str | None
    elements: tuple[Encoded, ...]
    meta: dict[str, object]

    @property
    def content(self) -> bytes:
        return content_of(self.elements)

    @property
    def name(self) -> str:
        return f"run {self.run_id!r}"


def content_of(elements: Sequence[Encoded]) -> bytes:
    """The root of a log of these elements alone."""
    return chained(Domain.LOG, EMPTY_ROOT, [element.digest for element in elements])[-1]


def addition(
    session_id: str, entries: Sequence[object], *, run_id: str | None, meta: Mapping[str, object] | None
) -> Addition:
    """Checks all that can be checked without the session. Raises `Usage`, `NotPortable`, `Foreign`."""
    session_key(session_id)
    if run_id is not None:
        run_key(run_id)
    elements = tuple(
        entry if isinstance(entry, Encoded) else encode(entry, f"entries[{place}]")
        for place, entry in enumerate(entries)
    )
    values = [element.value for element in elements]
    if problems := paired(values):
        mended = paired(drop_dangling_tool_calls(values)) == []
        move = "drop_dangling_tool_calls(entries)" if mended else "give each call its own id, `step.index`"
        raise Usage(f"session {session_id!r}: {problems[0]}", next=move)
    return Addition(session_id=session_id, run_id=run_id, elements=elements, meta=_checked(meta))


def _checked(meta: Mapping[str, object] | None) -> dict[str, object]:
    """Listing reads it without knowing any class, so it must not need one."""
    plain = cast("dict[object, object]", normalise(dict(meta or {}), "meta"))
    if not all(type(name) is str for name in plain):
        raise Usage("meta: a name that is not text", next="use text as names")
    try:
        loads(dumps(plain))
    except Foreign as error:
        raise Foreign(f"meta: {error.message}", next="keep plain values in it, no classes of your own") from None
    return cast("dict[str, object]", plain)


async def append(store: Store, added: Addition) -> str:
    """Adds a part at the end, whatever stands there. Raises `Conflict`, `Corrupt`, `Newer`."""

    async def once() -> str:
        head = await head_of(store, added.session_id)
        member = None if added.run_id is None else await member_of(store, added.session_id, added.run_id)
        if member is not None:
            return await _repeated(store, head, member, added)
        if added.elements:
            async with store.commit() as tx:
                root = put_elements(tx, head.root, added.elements, store)
                _add(tx, head, member, added, root)
        return ""

    return await retried(added.session_id, once)


async def land(store: Store, added: Addition, transcript: Log[Any], *, history: int, mark: bytes) -> str:
    """Adds a run's part behind what it stood on, and takes the run off the pending ones. Raises as `append` does."""
    session_id, run_id = added.session_id, added.run_id or ""
    pending = run_row_key(session_id, run_id)

    async def once() -> str:
        head, member = await head_of(store, session_id), await member_of(store, session_id, run_id)
        if member is not None:
            warning = await _repeated(store, head, member, added)
            if await store.read(Space.PENDING, pending) is not None:
                async with store.commit() as tx:
                    tx.delete(Space.PENDING, pending)
            return warning
        standing = await stands(store, session_id, head, history, mark)
        durable = None
        reach(CrashPoint.LAND_BEFORE)
        async with store.commit() as tx:
            tx.delete(Space.PENDING, pending)
            if not standing:
                _refuse(tx, head, added)
            elif added.elements:
                if (head.entries, head.root) == (history, transcript.root_at(history)):
                    durable = put_log(tx, transcript, store)
                    _add(tx, head, member, added, transcript.root)
                else:
                    _add(tx, head, member, added, put_elements(tx, head.root, added.elements, store))
        if durable is not None:
            durable()
        reach(CrashPoint.LAND_AFTER)
        return "" if standing else _refusal(added)

    return await retried(session_id, once)


def _add(tx: Transaction, head: Head, member: Member | None, added: Addition, root: bytes) -> None:
    """The rows of one more segment, whose log ends at `root`."""
    now, count = wall_clock_s(), len(added.elements)
    part = Part(
        number=head.segments,
        run_id=added.run_id,
        start=head.entries,
        count=count,
        root=root,
        mark=fresh_bytes(MARK),
        content=added.content,
        meta=added.meta,
        at=now,
    )
    tx.write(Space.SEGMENT, part_key(added.session_id, part.number), write_part(part))
    write_change(
        tx,
        added.session_id,
        head,
        evolve(head, segments=part.number + 1, entries=part.end, root=root, mark=part.mark, changed_at=now),
    )
    if added.run_id is not None:
        _write_member(tx, added, Member(number=part.number))


def write_change(tx: Transaction, session_id: str, head: Head, changed: Head) -> None:
    """Sets the head, if it is still the one that was read."""
    key = session_key(session_id)
    tx.expect(Space.SESSION, key, head.digest)
    tx.write(Space.SESSION, key, write_head(evolve(changed, changes=head.changes + 1)))


def _refuse(tx: Transaction, head: Head, added: Addition) -> None:
    tx.expect(Space.SESSION, session_key(added.session_id), head.digest)
    _write_member(tx, added, Member(standing=Standing.REFUSED))


def _write_member(tx: Transaction, added: Addition, member: Member) -> None:
    key = run_row_key(added.session_id, added.run_id or "")
    # Not by the head alone: one that was cleared has none, as before its first segment.
    tx.expect(Space.MEMBER, key, None)
    tx.write(Space.MEMBER, key, write_member(member))


async def _repeated(store: Store, head: Head, member: Member, added: Addition) -> str:
    """What is to be said of a run id that is known: nothing is added."""
    match member.standing:
        case Standing.REFUSED:
            return _refusal(added)
        case Standing.REWOUND:
            return f"{added.name} was rewound in session {added.session_id!r}: its part was not appended again"
        case Standing.LANDED:
            part = await part_of(store, added.session_id, head, member.number or 0)
            if part.run_id != added.run_id:
                await wrong(store, added.session_id, head, f"segment {part.number} is not that of {added.name}")
            if part.content == added.content:
                return ""
            return f"session {added.session_id!r} holds another part of {added.name}: the new one was not appended"


def _refusal(added: Addition) -> str:
    return (
        f"session {added.session_id!r} changed (rewound or cleared) since {added.name} began: its part was not appended"
    )
