"""Canonical bytes, in two profiles: whole (a log is its elements) and linked (a log is its count and root).

A codec of our own: see `design/format.md`. The only module that imports cbor2, for the rows where both agree.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import cbor2

from ._atoms import ARRAY, BYTES, MAP, TAG, TEXT, Blob, Tag, tagged
from ._cursor import Cursor
from ._digest import SIZE
from ._errors import Corrupt
from ._log import Log
from ._portable import Encoded, digest, encode
from ._reader import Reader
from ._types import Types
from ._walk import Walk

__all__ = [
    "Encoded",
    "decode",
    "decode_all",
    "digest",
    "dump_row",
    "dumps",
    "encode",
    "loads",
    "named_blobs",
    "named_logs",
]

NO_TYPES = Types()
_LOG = tagged(Tag.LOG)
NO_LOGS: Mapping[bytes, Log[Any]] = {}


def dumps(value: object) -> bytes:
    """Canonical bytes of `value` with everything in it. Raises `NotPortable`."""
    walk = Walk(whole=True)
    walk.run(value)
    return bytes(walk.out)


def dump_row(row: list[Any]) -> bytes:
    """Canonical bytes of a small row of our own, four times as fast as `dumps`. Raises `NotPortable`.

    `row` holds nothing but None, bool, int, float, str, bytes, lists, and dicts with text keys, each of exactly its
    type: for these alone is cbor2's canonical form ours (a test compares them).
    """
    try:
        return cbor2.dumps(row, canonical=True)
    except UnicodeEncodeError:
        return dumps(row)  # refuses it with the place


def loads(data: bytes, *, types: Types = NO_TYPES) -> Any:
    """The value of whole canonical bytes.

    Raises `Corrupt` (not canonical), `Foreign` (an unknown tag or name), `Newer`. Takes time and memory in proportion
    to the bytes, whoever wrote them.
    """
    return Reader(types, None).read(data)


def count_of(data: bytes) -> int:
    """The length of the list that canonical bytes are, from their beginning alone. Raises `Corrupt`."""
    return Cursor(data).head(ARRAY)


def decode(body: bytes, *, types: Types = NO_TYPES, logs: Mapping[bytes, Log[Any]] = NO_LOGS) -> Any:
    """The value of linked canonical bytes. `logs`: root -> log, of all that `named_logs` names.

    Raises as `loads` does, and `Missing` for a log that is not there.
    """
    return Reader(types, logs).read(body)


def decode_all(
    bodies: Iterable[bytes], *, types: Types = NO_TYPES, logs: Mapping[bytes, Log[Any]] = NO_LOGS
) -> tuple[list[Any], list[int]]:
    """The value of each, as `decode` gives it, and the positions of those that hold something that can be changed."""
    reader = Reader(types, logs)
    values: list[Any] = []
    mutable: list[int] = []
    for position, body in enumerate(bodies):
        values.append(reader.read(body))
        if reader.mutable:
            mutable.append(position)
    return values, mutable


def names_logs(body: bytes) -> bool:
    """Whether linked bytes may name a log: a quick answer, sometimes a wrong yes."""
    return _LOG in body


def named_logs(body: bytes) -> tuple[tuple[int, bytes], ...]:
    """(count, root) of every log that linked bytes name, without decoding anything else. Raises `Corrupt`."""
    return tuple(_names(body, Tag.LOG))


def named_blobs(body: bytes) -> tuple[Blob, ...]:
    """Every blob that canonical bytes name. Raises `Corrupt`."""
    return tuple(Blob(name, size) for size, name in _names(body, Tag.BLOB))


def _names(body: bytes, wanted: Tag) -> list[tuple[int, bytes]]:
    """The (number, digest) behind each tag of this kind."""
    if tagged(wanted) not in body:
        return []
    cursor = Cursor(body)
    found: list[tuple[int, bytes]] = []
    left = 1
    while left:
        left -= 1
        if cursor.skip_simple():
            continue
        major, argument = cursor.any_head()
        if major == TAG and argument == wanted:
            found.append(_pair(cursor))
        elif major == TAG:
            left += 1
        elif major in (BYTES, TEXT):
            cursor.take(argument)
        elif major in (ARRAY, MAP):
            left += argument * (major - ARRAY + 1)
    cursor.finish()
    return found


def _pair(cursor: Cursor) -> tuple[int, bytes]:
    """A log's count and root, a blob's digest and size: told apart by their types."""
    if cursor.head(ARRAY) != 2:
        raise Corrupt(f"a log or blob without its two parts at byte {cursor.pos}")
    number, name = 0, b""
    for _ in range(2):
        major, argument = cursor.any_head()
        if major == BYTES:
            name = cursor.take(argument)
        else:
            number = argument
    if len(name) != SIZE:
        raise Corrupt(f"a log or blob without a digest at byte {cursor.pos}")
    return number, name
