"""`Log`: an append-only sequence whose root is a hash chain over its elements, and the segments it is stored in.

Versions of one log share a buffer, so an append costs what it adds. Normative: `design/format.md`.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar, cast, overload
from weakref import WeakKeyDictionary

from attrs import frozen

from ._atoms import ARRAY, BYTES, Tag, head, octets, tagged
from ._cursor import Cursor
from ._digest import SIZE, Domain, chained, seal
from ._errors import Corrupt
from ._portable import Encoded, encode, is_immutable, normalise
from ._walk import WRITE, Walk

T = TypeVar("T")
EMPTY_ROOT = seal(Domain.LOG, b"")
INLINE = 64
"""Bytes of an element that still stands in its segment; a longer one is an object of its own."""
SHOWN = 8
"""Elements of a log that its `repr` shows."""
SEGMENT = 1024
"""Elements of a segment, at most."""


class _Buffer:
    """What versions of one log share. Only ever grows at its end, by whoever holds the version that ends there."""

    __slots__ = ("elements", "encoded", "lock", "roots", "stored", "volatile")

    def __init__(self, elements: list[Any], roots: list[bytes], volatile: set[int]) -> None:
        self.lock = Lock()
        self.elements = elements
        self.roots = roots  # after 0, 1, 2, ... elements
        self.volatile = volatile  # positions whose element could be changed: only copies are handed out
        self.encoded: dict[int, Encoded] = {}
        self.stored: WeakKeyDictionary[Any, list[int]] = WeakKeyDictionary()

    def add(self, encoded: Encoded) -> None:
        position = len(self.elements)
        if not is_immutable(encoded.value):
            self.volatile.add(position)
        self.encoded[position] = encoded
        self.roots.append(seal(Domain.LOG, self.roots[-1] + encoded.digest))
        self.elements.append(encoded.value)  # last: a reader without the lock sees whole entries only

    def copy(self, length: int) -> "_Buffer":
        volatile = {position for position in self.volatile if position < length}
        copied = _Buffer(self.elements[:length], self.roots[: length + 1], volatile)
        copied.encoded = {position: kept for position, kept in self.encoded.items() if position < length}
        for store, ends in self.stored.items():
            copied.stored[store] = ends[: bisect_right(ends, length)]
        return copied


class Log(Sequence[T], Generic[T]):
    """An immutable sequence of portable values; `append` gives a longer one and shares what both hold.

    Equal logs have equal elements, however they were grouped when appended. Safe to use from several threads.
    """

    __slots__ = ("_buffer", "_length")
    _buffer: _Buffer
    _length: int

    def __init__(self, elements: Iterable[T] = ()) -> None:
        self._buffer = _Buffer([], [EMPTY_ROOT], set())
        self._length = 0
        grown = self.extend(elements)
        self._buffer, self._length = grown._buffer, grown._length

    @classmethod
    def _of(cls, buffer: _Buffer, length: int) -> "Log[T]":
        log = cls.__new__(cls)
        log._buffer, log._length = buffer, length
        return log

    @classmethod
    def restored(cls, elements: Sequence[T], roots: Sequence[bytes], volatile: Collection[int]) -> "Log[T]":
        """A log of decoded elements and the roots that `read_segments` has verified (one more than elements).

        `volatile`: the positions of the elements that could be changed.
        """
        if len(roots) != len(elements) + 1:
            raise Corrupt(f"a log of {len(roots) - 1} elements, {len(elements)} were read")
        return cls._of(_Buffer(list(elements), list(roots), set(volatile)), len(elements))

    def append(self, element: "T | Encoded") -> "Log[T]":
        """A log with one more element (in normal form). Raises `NotPortable`."""
        return self._grown([_encoded(element, self._length)])

    def extend(self, elements: "Iterable[T | Encoded]") -> "Log[T]":
        """A log with more elements; all or none are appended. Raises `NotPortable`."""
        added = [_encoded(element, position) for position, element in enumerate(elements, self._length)]
        return self._grown(added) if added else self

    def _grown(self, added: list[Encoded]) -> "Log[T]":
        buffer = self._buffer
        with buffer.lock:
            if len(buffer.elements) > self._length:  # another version went on from here: the first one keeps the buffer
                buffer = buffer.copy(self._length)
            for encoded in added:
                buffer.add(encoded)
        return self._of(buffer, self._length + len(added))

    @property
    def root(self) -> bytes:
        """32 bytes that depend on the sequence of elements only."""
        return self._buffer.roots[self._length]

    def root_at(self, length: int) -> bytes:
        """The root of the first `length` elements."""
        if not 0 <= length <= self._length:
            raise IndexError(f"a log of {self._length} elements has no root at {length}")
        return self._buffer.roots[length]

    def first(self, length: int) -> "Log[T]":
        """The log of the first `length` elements; nothing is copied."""
        self.root_at(length)
        return self._of(self._buffer, length)

    def stored(self, store: object) -> int:
        """How many elements, up to the end of a segment, are durable in this store."""
        ends = self._buffer.stored.get(store, [])
        position = bisect_right(ends, self._length)
        return ends[position - 1] if position else 0

    def mark_stored(self, store: object, *lengths: int) -> None:
        """Notes that segments that end at these lengths, and all before them, are durable in this store."""
        with self._buffer.lock:
            ends = self._buffer.stored.setdefault(store, [])
            if not ends:
                ends += lengths
                return
            for length in lengths:
                if length > ends[-1]:
                    ends.append(length)
                elif ends[bisect_left(ends, length)] != length:
                    insort(ends, length)

    def settle_encoded(self) -> None:
        """Drops the kept bytes of this log's elements; what needs them later encodes them again."""
        with self._buffer.lock:
            for position in [position for position in self._buffer.encoded if position < self._length]:
                del self._buffer.encoded[position]

    def encoded_at(self, position: int) -> Encoded:
        """The element at this place with its bytes."""
        return self._buffer.encoded.get(position) or encode(self._buffer.elements[position])

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._get(position) for position in range(*index.indices(self._length))]
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"a log of {self._length} elements has none at {index}")
        return self._get(position)

    def _get(self, position: int) -> T:
        element = self._buffer.elements[position]
        return cast("T", normalise(element) if position in self._buffer.volatile else element)

    def __iter__(self) -> Iterator[T]:
        if not self._buffer.volatile:
            return islice(self._buffer.elements, self._length)
        return map(self._get, range(self._length))

    def __eq__(self, other: object) -> bool:
        return self._length == other._length and self.root == other.root if isinstance(other, Log) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.root)

    def __repr__(self) -> str:
        return (
            f"Log({self[:]!r})" if self._length <= SHOWN else f"Log(<{self._length} elements, {self.root.hex()[:12]}>)"
        )


def _encoded(element: object, position: int) -> Encoded:
    return element if isinstance(element, Encoded) else encode(element, f"log[{position}]")


@frozen(kw_only=True)
class Segment:
    """A run of a log's elements, ready to be stored."""

    root: bytes
    """its name: the root after its last element"""
    body: bytes
    objects: tuple[tuple[bytes, bytes], ...]
    """(digest, bytes) of the elements that `body` only names"""
    elements: tuple[Encoded, ...]
    """all of them; what they name themselves (logs, blobs) has to be stored as well"""


def segments(log: Log[Any], since: int) -> list[Segment]:
    """The elements from `since` on, in segments that follow one another."""
    return [_segment_of(log, start, min(start + SEGMENT, len(log))) for start in range(since, len(log), SEGMENT)]


def segments_after(root: bytes, elements: Sequence[Encoded]) -> list[Segment]:
    """What continues the log that ends at `root`, which needs not be loaded, in segments that follow one another."""
    roots = chained(Domain.LOG, root, [element.digest for element in elements])
    cuts = [(start, min(start + SEGMENT, len(elements))) for start in range(0, len(elements), SEGMENT)]
    return [_segment(roots[start], elements[start:end], roots[end]) for start, end in cuts]


def _segment_of(log: Log[Any], start: int, end: int) -> Segment:
    elements = [log.encoded_at(position) for position in range(start, end)]
    return _segment(log.root_at(start), elements, log.root_at(end))


def _segment(before: bytes, elements: Sequence[Encoded], root: bytes) -> Segment:
    parts = [_tagged_item(e.body) if len(e.body) <= INLINE else octets(e.digest) for e in elements]
    return Segment(
        root=root,
        body=before + head(ARRAY, len(elements)) + b"".join(parts),
        objects=tuple({e.digest: e.body for e in elements if len(e.body) > INLINE}.items()),
        elements=tuple(elements),
    )


_ITEM = tagged(Tag.ITEM)


def _tagged_item(body: bytes) -> bytes:
    return _ITEM + octets(body)


class Part(NamedTuple):
    """One element of a stored segment."""

    digest: bytes
    body: bytes | None
    """its bytes; `None` where they are the object of that digest"""


@frozen(kw_only=True)
class Parts:
    """A stored log's elements in order, verified against its root."""

    parts: tuple[Part, ...]
    roots: tuple[bytes, ...]
    """after 0, 1, 2, ... elements"""
    ends: tuple[int, ...]
    """how many elements there are at the end of each segment"""


def read_segments(root: bytes, count: int, newest_first: Iterable[bytes]) -> Parts:
    """The elements of the log (`count`, `root`) from its segments. Raises `Corrupt`, also where one is missing."""
    chunks: list[tuple[list[Part], list[bytes]]] = []
    ends: list[int] = []
    wanted, left = root, count
    for body in newest_first:
        if left <= 0:
            break
        parts, roots = _parse(body)
        if roots[-1] != wanted:
            raise Corrupt(f"a segment of log {root.hex()[:12]} is damaged or not the one that belongs here")
        chunks.append((parts, roots))
        ends.append(left)
        wanted, left = roots[0], left - len(parts)
    if left or wanted != EMPTY_ROOT:
        raise Corrupt(f"log {root.hex()[:12]} should have {count} elements: {left} too few in its segments")
    chunks.reverse()
    ends.reverse()
    after = [after for _, roots in chunks for after in roots[1:]]
    return Parts(
        parts=tuple([part for parts, _ in chunks for part in parts]), roots=(EMPTY_ROOT, *after), ends=tuple(ends)
    )


def verify_segment(root: bytes, body: bytes) -> bool:
    """Whether these bytes are a segment that ends at `root`; not whether its chain begins at an empty log."""
    try:
        return _parse(body)[1][-1] == root
    except Corrupt:
        return False


def parts_of(body: bytes) -> Sequence[Part]:
    """The elements of one segment. Raises `Corrupt`."""
    return _parse(body)[0]


def _parse(body: bytes) -> tuple[list[Part], list[bytes]]:
    """A segment's elements, and the roots before, between and after them."""
    cursor = Cursor(body, SIZE)
    count = cursor.head(ARRAY)
    if not 1 <= count <= SEGMENT:
        raise Corrupt(f"a log segment of {count} elements")
    parts: list[Part] = []
    for _ in range(count):
        start = cursor.pos
        if body.startswith(_NAMED, start):
            cursor.pos = stop = start + len(_NAMED) + SIZE
            parts.append(Part(body[stop - SIZE : stop], None))
        else:
            parts.append(_inline(cursor))
    cursor.finish()
    return parts, chained(Domain.LOG, body[:SIZE], [digest for digest, _ in parts])


_NAMED = head(BYTES, SIZE)


def _inline(cursor: Cursor) -> Part:
    start = cursor.pos
    if not cursor.skip(_ITEM):
        raise Corrupt(f"no element of a log segment at byte {start}")
    data = cursor.take(cursor.head(BYTES))
    if len(data) > INLINE:
        raise Corrupt(f"an element that should be an object of its own at byte {start}")
    return Part(seal(Domain.OBJECT, data), data)


def _write(walk: Walk, log: Log[Any], depth: int) -> Log[Any]:
    if walk.whole:
        walk.out += tagged(Tag.LOG_WHOLE)
        WRITE[list](walk, log._buffer.elements[: len(log)], depth)
        return log
    walk.logs.append(log)
    walk.out += tagged(Tag.LOG) + head(ARRAY, 2) + head(0, len(log)) + octets(log.root)
    return log


WRITE[Log] = _write
