"""One unit of work and what is checked on reading: the part that every store has in common."""

from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType

from attrs import frozen

from ._digest import SIZE, Domain, seal
from ._errors import Corrupt, Usage
from ._store import Kind, Row, Space, row_digest


class Unit:
    """A `Transaction` that only collects. The last word on a row counts."""

    __slots__ = ("expected", "objects", "rows", "sync")

    def __init__(self, *, sync: bool) -> None:
        self.sync = sync
        self.objects: dict[bytes, tuple[bytes, int, bytes]] = {}
        """name -> name, kind, body; each once, however often it is put"""
        self.rows: dict[tuple[str, bytes], tuple[bytes, bytes] | None] = {}
        """space, key -> body, digest; `None`: deleted"""
        self.expected: list[tuple[Space, bytes, bytes | None]] = []
        """space, key, digest"""

    def put(self, name: bytes, body: bytes, kind: Kind = Kind.OBJECT) -> None:
        if len(name) != SIZE or (kind is Kind.SEGMENT and len(body) < SIZE):
            raise Usage(f"object {name.hex()} has no name of {SIZE} bytes, or is a segment without the root before it")
        self.objects[name] = name, int(kind), body

    def write(self, space: Space, key: bytes, body: bytes) -> bytes:
        if not key:
            raise Usage(f"a row of {space} needs a key of at least one byte")
        digest = row_digest(space, key, body)
        self.rows[space, key] = body, digest
        return digest

    def delete(self, space: Space, key: bytes) -> None:
        self.rows[space, key] = None

    def expect(self, space: Space, key: bytes, digest: bytes | None) -> None:
        self.expected.append((space, key, digest))

    def __bool__(self) -> bool:
        return bool(self.objects or self.rows or self.expected)


class Commit:
    """The block around a unit of work. A class, not a generator: it stands around every durable write."""

    __slots__ = ("_apply", "_unit")

    def __init__(self, apply: Callable[[Unit], Awaitable[None]], *, sync: bool) -> None:
        self._apply = apply
        self._unit = Unit(sync=sync)

    async def __aenter__(self) -> Unit:
        return self._unit

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._unit:
            await self._apply(self._unit)


def checked_row(space: Space, key: bytes, body: bytes, digest: bytes, *, place: str) -> Row:
    """Raises `Corrupt` where the row is not what was written at (`space`, `key`)."""
    whole = isinstance(key, bytes) and isinstance(body, bytes)  # damage may change a column's type as well
    if not whole or row_digest(space, key, body) != digest:
        raise Corrupt(f"row {space.value} {shown(key)} in {place} is damaged")
    return Row(key=key, body=body, digest=digest)


def checked_object(name: bytes, kind: int, body: bytes, *, place: str) -> bytes:
    """Raises `Corrupt` where the bytes do not have this name. A segment's root is checked by who reads the log."""
    whole = isinstance(body, bytes) and kind in _KINDS
    if not whole or (kind == _OBJECT and seal(Domain.OBJECT, body) != name):
        raise Corrupt(f"object {shown(name)} in {place} is damaged")
    return body


def shown(name: object) -> str:
    """A name or key for people; damage may have made it something else than bytes."""
    return name.hex() if isinstance(name, bytes) else repr(name)


_KINDS = frozenset(int(kind) for kind in Kind)
_OBJECT = int(Kind.OBJECT)
"""A member of an IntEnum compares slowly, and this is asked of every object that is read."""


@frozen(kw_only=True)
class Damage:
    """One thing that is not as it was written."""

    what: str
    """`object`, `row` or `file`"""
    name: str
    """hexadecimal name; space and hexadecimal key; or the file"""
    cause: str


@frozen(kw_only=True)
class Verified:
    """What a full reading of the store found."""

    objects: int
    rows: int
    damage: Sequence[Damage]
