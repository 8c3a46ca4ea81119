"""What a snapshot of a directory tree is made of: one node a directory, entries sorted by their raw names.

The root entry's bytes name the tree. Modification times lie in a parallel node a directory, in the order of the
entries, which the identity does not cover. Normative: `design/0004-worlds.md`.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple, cast

from ._codec import dumps, loads
from ._digest import SIZE
from ._errors import Corrupt, Newer

FORMAT = 1
CHUNK = 4 << 20
"""Bytes of a piece of a large file."""
_MODE_BITS = 0o7777
_FAR = 1 << 62
"""No size or time that a kernel takes is beyond this."""


class EntryKind(IntEnum):
    FILE = 0
    DIRECTORY = 1
    LINK = 2


class Entry(NamedTuple):
    """One name in a directory. A tuple, because a scan builds one for each file and compares them all."""

    name: bytes
    kind: EntryKind
    mode: int
    """permission bits, `st_mode & 0o7777`; 0 for a link"""
    size: int
    """bytes of a file; 0 for a directory and a link"""
    ref: bytes
    """digest of a file's content (of its list of pieces, above `CHUNK`) or of a directory's node; a link's target"""

    def same(self, other: "Entry | None") -> bool:
        """Equal in itself: a directory's children do not count."""
        if other is None or self[:3] != other[:3]:
            return False
        return self.kind is EntryKind.DIRECTORY or self[3:] == other[3:]


class Times(NamedTuple):
    """The nanoseconds of a directory's entries, and the times nodes of its directories, in their order."""

    entries: tuple[int, ...]
    nodes: tuple[bytes, ...]


def encode_root(root: Entry) -> bytes:
    return dumps([FORMAT, root.mode, root.ref])


def decode_root(data: bytes) -> Entry:
    """The root as an entry without a name. Raises `Corrupt`, `Newer`."""
    match loads(data):
        case [int(version), *_] if version > FORMAT:
            raise Newer(f"workspace snapshot of format {version}", next="upgrade")
        case [int(), int(mode), bytes(ref)] if _is_mode(mode) and len(ref) == SIZE:
            return Entry(b"", EntryKind.DIRECTORY, mode, 0, ref)
        case _:
            raise _malformed("root")


def encode_node(entries: Iterable[Entry]) -> bytes:
    """`entries` must be sorted by name."""
    return dumps([[e.name, int(e.kind), e.mode, e.size, e.ref] for e in entries])


def decode_node(data: bytes) -> tuple[Entry, ...]:
    """Raises `Corrupt` for anything that no directory could hold: a manifest may come from a stranger."""
    rows = loads(data)
    if not isinstance(rows, list):
        raise _malformed("directory")
    entries = tuple(_entry(row) for row in cast("list[object]", rows))
    names = [entry.name for entry in entries]
    if any(left >= right for left, right in pairwise(names)):
        raise _malformed("directory order")
    return entries


def encode_times(times: Times) -> bytes:
    return dumps([list(times.entries), list(times.nodes)])


def decode_times(data: bytes, entries: Sequence[Entry]) -> Times:
    """The times that belong to `entries`. Raises `Corrupt` where they do not fit."""
    directories = sum(entry.kind is EntryKind.DIRECTORY for entry in entries)
    match loads(data):
        case [[*stamps], [*nodes]] if len(stamps) == len(entries) and len(nodes) == directories:
            if all(type(t) is int and abs(t) < _FAR for t in stamps) and all(isinstance(n, bytes) for n in nodes):
                return Times(tuple(cast("list[int]", stamps)), tuple(cast("list[bytes]", nodes)))
        case _:
            pass
    raise _malformed("times")


def encode_pieces(pieces: Sequence[bytes | None]) -> bytes:
    return dumps(list(pieces))


def decode_pieces(data: bytes, size: int) -> list[bytes | None]:
    """The digests of a large file's pieces; `None` is a hole. Raises `Corrupt`."""
    match loads(data):
        case [*pieces] if len(pieces) == -(-size // CHUNK) and all(p is None or isinstance(p, bytes) for p in pieces):
            return cast("list[bytes | None]", pieces)
        case _:
            raise _malformed("list of pieces")


_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127)} | {ord("\\"): "\\\\", ord("\n"): "\\n"}


def display(path: bytes) -> str:
    """A path as text for people; undecodable and control bytes are escaped, so that two paths never look the same."""
    text = path.decode("utf-8", "surrogateescape").translate(_CONTROL)
    return "".join(f"\\x{ord(c) - 0xDC00:02x}" if "\udc80" <= c <= "\udcff" else c for c in text) or "."


def join(parent: bytes, name: bytes) -> bytes:
    return parent + b"/" + name if parent else name


def _entry(row: object) -> Entry:
    match row:
        case [bytes(name), int(kind), int(mode), int(size), bytes(ref)] if 0 <= kind <= EntryKind.LINK:
            entry = Entry(name, EntryKind(kind), mode, size, ref)
            if _is_name(name) and _is_mode(mode) and _fits(entry):
                return entry
        case _:
            pass
    raise _malformed("entry")


def _fits(entry: Entry) -> bool:
    match entry.kind:
        case EntryKind.FILE:
            return 0 <= entry.size < _FAR and len(entry.ref) == SIZE
        case EntryKind.DIRECTORY:
            return entry.size == 0 and len(entry.ref) == SIZE
        case EntryKind.LINK:
            return entry.size == 0 and entry.mode == 0 and entry.ref != b"" and b"\0" not in entry.ref


def _is_name(name: bytes) -> bool:
    return name not in {b"", b".", b".."} and b"/" not in name and b"\0" not in name


def _is_mode(mode: int) -> bool:
    return 0 <= mode <= _MODE_BITS


def _malformed(what: str) -> Corrupt:
    return Corrupt(f"workspace snapshot: malformed {what}", next="use an earlier savepoint")
