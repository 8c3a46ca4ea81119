"""A session's control rows: the head, a row a segment, a row a run id that ever landed, a row a run on its way.

Small, and all that listing reads; entries are one `Log`. Design: `design/0011-sessions.md`.
"""

from enum import StrEnum
from typing import TypeVar, cast

from attrs import field, frozen

from savepoint._codec import dumps, loads
from savepoint._errors import Corrupt, Foreign, Newer, Usage
from savepoint._log import EMPTY_ROOT
from savepoint._run import ID_LENGTH, run_key
from savepoint._store import Row

T = TypeVar("T")
Plain = dict[str, object]

FORMAT = 1


class Standing(StrEnum):
    """What became of a run's part."""

    LANDED = "landed"
    REWOUND = "rewound"
    """it was in the session, and was dropped"""
    REFUSED = "refused"
    """it never was: what the run stood on was dropped"""


@frozen(kw_only=True)
class Head:
    """A session as a whole; every change compares and sets it."""

    segments: int = 0
    entries: int = 0
    root: bytes = EMPTY_ROOT
    """of the log of all entries"""
    mark: bytes = b""
    """of the last segment"""
    changes: int = 0
    """how often the session was changed: no two heads of it are equal"""
    changed_at: float = 0.0
    digest: bytes | None = None
    """of the row; None where there is none"""
    unknown: Plain = field(factory=dict[str, object])
    """fields that a newer version wrote: kept as they are, and ignored"""


@frozen(kw_only=True)
class Part:
    """One segment, without its entries."""

    number: int
    run_id: str | None
    start: int
    """entries before it"""
    count: int
    root: bytes
    """of the session's log up to its end, which is the end of a stored segment of that log"""
    mark: bytes
    """8 random bytes: what a later run stands on"""
    content: bytes
    """the root of a log of these entries alone, as they came: what a repeat is compared with"""
    meta: Plain
    at: float
    unknown: Plain = field(factory=dict[str, object])

    @property
    def end(self) -> int:
        return self.start + self.count


@frozen(kw_only=True)
class Member:
    """Where the part of a run is."""

    standing: Standing = Standing.LANDED
    number: int | None = None
    """of its segment, where it landed"""
    digest: bytes | None = None
    unknown: Plain = field(factory=dict[str, object])


def session_key(session_id: str) -> bytes:
    """The row key of a session. Raises `Usage` for text that cannot be an id."""
    try:
        return run_key(session_id)
    except Usage:
        move = f"use 1 to {ID_LENGTH} printable characters"
        raise Usage(f"{str(session_id)[:80]!r} is not a session id", next=move) from None


def below(session_id: str) -> bytes:
    """What the keys of all rows below a session begin with: an id has no NUL, so no other session's do."""
    return session_key(session_id) + b"\0"


def part_key(session_id: str, number: int) -> bytes:
    return below(session_id) + number.to_bytes(8, "big")


def run_row_key(session_id: str, run_id: str) -> bytes:
    """The key of a run's `MEMBER` and `PENDING` rows. Raises `Usage`."""
    return below(session_id) + run_key(run_id)


def write_head(head: Head) -> bytes:
    return _dumped(
        head.unknown,
        segments=head.segments,
        entries=head.entries,
        root=head.root,
        mark=head.mark,
        changes=head.changes,
        changed_at=head.changed_at,
    )


def read_head(row: Row | None, session_id: str) -> Head:
    """The head, that of an empty session where there is no row. Raises `Corrupt`, `Newer`."""
    if row is None:
        return Head()
    fields = _Fields(row, f"session {session_id!r}")
    return Head(
        segments=fields.take("segments", int),
        entries=fields.take("entries", int),
        root=fields.take("root", bytes),
        mark=fields.take("mark", bytes),
        changes=fields.take("changes", int),
        changed_at=fields.take("changed_at", float),
        digest=row.digest,
        unknown=fields.rest(),
    )


def write_part(part: Part) -> bytes:
    return _dumped(
        part.unknown,
        run_id=part.run_id,
        start=part.start,
        count=part.count,
        root=part.root,
        mark=part.mark,
        content=part.content,
        meta=part.meta,
        at=part.at,
    )


def read_part(row: Row, session_id: str) -> Part:
    """Raises `Corrupt`, `Newer`."""
    number = int.from_bytes(row.key[-8:], "big")
    fields = _Fields(row, f"segment {number} of session {session_id!r}")
    return Part(
        number=number,
        run_id=fields.optional("run_id", str),
        start=fields.take("start", int),
        count=fields.take("count", int),
        root=fields.take("root", bytes),
        mark=fields.take("mark", bytes),
        content=fields.take("content", bytes),
        meta=cast("Plain", fields.take("meta", dict)),
        at=fields.take("at", float),
        unknown=fields.rest(),
    )


def write_member(member: Member) -> bytes:
    return _dumped(member.unknown, standing=member.standing.value, number=member.number)


def read_member(row: Row | None, session_id: str, run_id: str) -> Member | None:
    """Raises `Corrupt`, `Newer`."""
    if row is None:
        return None
    fields = _Fields(row, f"run {run_id!r} in session {session_id!r}")
    standing, number = fields.take("standing", str), fields.optional("number", int)
    if standing not in set(Standing) or (number is None) == (standing == Standing.LANDED):
        raise Corrupt(f"run {run_id!r} in session {session_id!r}: {standing!r} as segment {number}")
    return Member(standing=Standing(standing), number=number, digest=row.digest, unknown=fields.rest())


def write_pending(run_id: str, at: float) -> bytes:
    return _dumped({}, run_id=run_id, at=at)


def read_pending(row: Row) -> tuple[float, str]:
    """When a run began, and its id. Raises `Corrupt`, `Newer`."""
    fields = _Fields(row, f"pending run {row.key!r}")
    return fields.take("at", float), fields.take("run_id", str)


def _dumped(unknown: Plain, **fields: object) -> bytes:
    return dumps({**unknown, **fields, "format": FORMAT})


class _Fields:
    """The fields of a row, each of exactly its type."""

    def __init__(self, row: Row, what: str) -> None:
        self._what = what
        try:
            plain = loads(row.body)
        except Foreign:
            plain = None
        if type(plain) is not dict:
            raise Corrupt(f"{what}: its row is no map")
        self._left: Plain = dict(cast("Plain", plain))
        form = self.take("format", int)
        if form > FORMAT:
            raise Newer(f"{what} has format {form}, known is {FORMAT}", next="upgrade portable-savepoints")

    def take(self, name: str, kind: type[T]) -> T:
        value = self._left.pop(name, None)
        if type(value) is not kind or (kind is int and cast("int", value) < 0):
            raise Corrupt(f"{self._what}: {name} is {str(value)[:80]!r}")
        return value

    def optional(self, name: str, kind: type[T]) -> T | None:
        if self._left.get(name) is None:
            self._left.pop(name, None)
            return None
        return self.take(name, kind)

    def rest(self) -> Plain:
        return self._left
