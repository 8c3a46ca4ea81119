"""The bytes of a pack: a magic, then records of kind, length, digest, header check and body, only ever appended.

The file alone is enough to read it back; a cut tail is told from damage by the check of each header.
"""

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO

from attrs import define, frozen

from ._digest import SIZE, Domain, seal
from ._errors import Corrupt

MAGIC = b"SVPTPK01"
_HEAD = struct.Struct(f">BQ{SIZE}s8s")
_PLAIN = struct.Struct(f">BQ{SIZE}s")


class RecordKind(IntEnum):
    CONTENT = 1
    """the body is the content, the digest its name"""
    NOTE = 2
    """the body is the 32 bytes of the subject, then the remark; the digest is that of the body"""


@frozen(kw_only=True)
class Record:
    """Where one body lies in its pack."""

    kind: RecordKind
    digest: bytes
    offset: int
    length: int


@define(kw_only=True, eq=False)
class Pack:
    """What this process knows of one file."""

    path: Path
    end: int = 0
    """bytes read so far; records behind it are not known yet"""
    synced: int = 0
    """bytes known to be on stable storage"""
    fault: str = ""
    """why nothing after `end` can be read, where it is damage"""
    torn: frozenset[bytes] = frozenset()
    """the digest of a last record whose body is cut"""


def frame(kind: RecordKind, digest: bytes, body: bytes) -> tuple[bytes, bytes]:
    """A record as header and body."""
    plain = _PLAIN.pack(kind, len(body), digest)
    return plain + _check(plain), body


def place(start: int, bodies: Iterable[tuple[RecordKind, bytes, bytes]]) -> list[Record]:
    """Where these records (kind, digest, body) lie when they are written one after the other from `start`."""
    records: list[Record] = []
    for kind, digest, body in bodies:
        records.append(Record(kind=kind, digest=digest, offset=start + _HEAD.size, length=len(body)))
        start += _HEAD.size + len(body)
    return records


def advance(pack: Pack) -> Sequence[Record]:
    """Reads the headers after `pack.end` and moves it on; a cut tail stays to be read again later."""
    if pack.fault:
        return []
    with pack.path.open("rb") as file:
        size = file.seek(0, 2)
        if size == pack.end or not _begin(pack, file):
            return []
        return _records(pack, file, size)


def read(pack: Pack, record: Record, file: BinaryIO) -> bytes:
    """The body of `record`. Raises `Corrupt` naming digest and file."""
    file.seek(record.offset)
    body = file.read(record.length)
    if len(body) != record.length or seal(Domain.CONTENT, body) != record.digest:
        raise damaged(record.digest, pack.path, f"its {record.length} bytes at offset {record.offset} differ")
    return body


def damaged(digest: bytes, path: Path, why: str) -> Corrupt:
    return Corrupt(
        f"content {digest.hex()} in {path}: {why}", next="restore the file from a copy, or use an earlier savepoint"
    )


def _begin(pack: Pack, file: BinaryIO) -> bool:
    if pack.end:
        return True
    file.seek(0)
    magic = file.read(len(MAGIC))
    if magic == MAGIC:
        pack.end = len(MAGIC)
    elif not MAGIC.startswith(magic):
        pack.fault = "it does not start as a pack does"
    return pack.end > 0


def _records(pack: Pack, file: BinaryIO, size: int) -> list[Record]:
    found: list[Record] = []
    pack.torn = frozenset()
    while pack.end + _HEAD.size <= size:
        file.seek(pack.end)
        head = file.read(_HEAD.size)
        kind, length, digest, check = _HEAD.unpack(head)
        if check != _check(head[: _PLAIN.size]) or kind not in iter(RecordKind):
            pack.fault = f"the record header at offset {pack.end} is damaged"
            break
        if pack.end + _HEAD.size + length > size:
            pack.torn = frozenset((digest,))
            break
        found.append(Record(kind=RecordKind(kind), digest=digest, offset=pack.end + _HEAD.size, length=length))
        pack.end += _HEAD.size + length
    return found


def _check(plain: bytes) -> bytes:
    return seal(Domain.ROW, plain)[:8]
