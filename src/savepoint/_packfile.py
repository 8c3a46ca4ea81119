"""The bytes of a pack: a magic, then records of kind, length, digest, header check and body, only ever appended.

The file alone is enough to read it back. After each sync its writer appends a seal, a note that says how far the file
is on stable storage: what is bad before the last seal is damage, what is bad behind it was never acknowledged (a power
cut keeps any part of what was not synced).
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


_SEAL = b"synced up to".ljust(SIZE, b"\0")
"""The subject of a seal; its remark is an offset of 8 bytes."""
_SEAL_LENGTH = SIZE + 8


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
    """bytes that this process synced"""
    sealed: int = 0
    """bytes that its writer synced, by its own word"""
    judged: int = 0
    """the file's size when what lies behind `end` was found bad and no damage; nothing new can be there until it grows"""
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


def seal_at(offset: int) -> tuple[bytes, bytes]:
    """The record that says: all before `offset` is on stable storage."""
    body = _SEAL + offset.to_bytes(8, "big")
    return frame(RecordKind.NOTE, seal(Domain.CONTENT, body), body)


def advance(pack: Pack) -> Sequence[Record]:
    """Reads the headers after `pack.end` and moves it on; a bad tail that no seal covers stays to be read again later.

    What no seal covers may have any bytes in its bodies: see `whole`.
    """
    if pack.fault:
        return []
    with pack.path.open("rb") as file:
        size = file.seek(0, 2)
        if size in (pack.end, pack.judged) or not _begin(pack, file):
            return []
        found = _records(pack, file, size)
        pack.judged = size
        return found


def read(pack: Pack, record: Record, file: BinaryIO) -> bytes:
    """The body of `record`. Raises `Corrupt` naming digest and file."""
    file.seek(record.offset)
    body = file.read(record.length)
    if len(body) != record.length or seal(Domain.CONTENT, body) != record.digest:
        raise damaged(record.digest, pack.path, f"its {record.length} bytes at offset {record.offset} differ")
    return body


def whole(pack: Pack, record: Record, file: BinaryIO) -> bool:
    """Whether the record can be built upon: a seal covers it, or its body is as its digest says."""
    if record.offset + record.length <= pack.sealed:
        return True
    try:
        read(pack, record, file)
    except Corrupt:
        return False
    return True


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
    elif not MAGIC.startswith(magic) and _last_seal(file) > 0:
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
            if pack.end < max(pack.sealed, _last_seal(file)):
                pack.fault = f"the record header at offset {pack.end} is damaged"
            break
        if pack.end + _HEAD.size + length > size:
            pack.torn = frozenset((digest,))
            break
        record = Record(kind=RecordKind(kind), digest=digest, offset=pack.end + _HEAD.size, length=length)
        if record.kind is RecordKind.NOTE and length == _SEAL_LENGTH:
            pack.sealed = max(pack.sealed, _sealed_by(record, file))
        found.append(record)
        pack.end += _HEAD.size + length
    return found


def _sealed_by(record: Record, file: BinaryIO) -> int:
    """The offset that a seal says; 0 where this note is none, or a bad one."""
    file.seek(record.offset)
    body = file.read(_SEAL_LENGTH)
    if not body.startswith(_SEAL) or seal(Domain.CONTENT, body) != record.digest:
        return 0
    offset = int.from_bytes(body[SIZE:], "big")
    return offset if offset <= record.offset else 0


def _last_seal(file: BinaryIO) -> int:
    """The furthest offset that any seal says, found from the end, whatever lies before it. Only where something is bad."""
    file.seek(0)
    data = file.read()
    at = data.rfind(_SEAL)
    while at >= 0:
        head = data[max(0, at - _HEAD.size) : at]
        if len(head) == _HEAD.size and head[_PLAIN.size :] == _check(head[: _PLAIN.size]):
            digest = _HEAD.unpack(head)[2]
            record = Record(kind=RecordKind.NOTE, digest=digest, offset=at, length=_SEAL_LENGTH)
            if offset := _sealed_by(record, file):
                return offset
        at = data.rfind(_SEAL, 0, at)
    return 0


def _check(plain: bytes) -> bytes:
    return seal(Domain.ROW, plain)[:8]
