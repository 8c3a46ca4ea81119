"""The files of an outside: what it did and what it was asked, one JSON line each, synced before any answer.

A line without its end was never finished, so it did not happen; whoever writes next cuts it off and says so.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from savepoint._errors import Corrupt

LEDGER = "ledger"
RECEIVED = "received"
HELD = "held"
REPAIRED = "repaired"


@frozen(kw_only=True)
class Act:
    """One change of the outside."""

    kind: str
    """the idempotency class"""
    tag: str
    """the logical place in the program: equal for the same call of every attempt, whatever its arguments"""
    arguments: Sequence[object]
    key: str
    """idempotency key"""
    value: str
    """what the call returns"""
    epoch: int = 0
    """of the attempt that did it"""
    digest: str = ""
    """of the arguments, as the caller stated it"""
    at_s: float = 0.0
    """by the clock that came with the request"""


@frozen(kw_only=True)
class Received:
    """One request, whatever came of it."""

    number: int
    """within the ledger directory, from 1"""
    operation: str
    kind: str
    tag: str
    key: str
    digest: str
    epoch: int
    fault: str | None
    """how it went wrong (`OutsideFault`)"""


@frozen(kw_only=True)
class Repaired:
    """One torn last line that was cut off."""

    file: str
    offset: int
    """where it began, in bytes"""
    torn: str
    """what there was of it"""


def ledger(place: Path) -> list[Act]:
    """Every act of a ledger directory, in order. Raises `Corrupt`."""
    return [Act(**line) for line in read_lines(place / LEDGER)]


def received(place: Path) -> list[Received]:
    """Every request that reached the outside, in order. Raises `Corrupt`."""
    return [Received(**line) for line in read_lines(place / RECEIVED)]


def repaired(place: Path) -> list[Repaired]:
    """Every repair of a ledger directory, in order. Raises `Corrupt`."""
    return [Repaired(**line) for line in read_lines(place / REPAIRED)]


def held(place: Path) -> list[int]:
    """The numbers of the requests that were performed and whose answer was held back. Raises `Corrupt`."""
    return [line["number"] for line in read_lines(place / HELD)]


def read_lines(path: Path) -> list[Any]:
    """The finished lines of a file; none where it is missing. Raises `Corrupt`."""
    found: list[Any] = []
    for number, line in enumerate(_bytes(path).rpartition(b"\n")[0].splitlines(), 1):
        try:
            found.append(json.loads(line))
        except ValueError as error:
            raise Corrupt(
                f"line {number} of {path} is not what an outside writes: {error}",
                next="somebody else wrote into it: begin with an empty ledger directory",
            ) from error
    return found


def append(path: Path, line: Mapping[str, object]) -> None:
    """Adds a line that lasts when this returns."""
    append_bytes(path, json.dumps(line).encode() + b"\n")


def append_bytes(path: Path, line: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        while line:
            line = line[os.write(handle, line) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def mend(place: Path) -> None:
    """Cuts off torn last lines of the files that an outside appends to; says so first, in the file `repaired`."""
    for name in (LEDGER, RECEIVED, HELD):
        whole, end, torn = _bytes(place / name).rpartition(b"\n")
        if torn:
            repair = Repaired(file=name, offset=len(whole) + len(end), torn=torn.decode(errors="replace"))
            append(place / REPAIRED, asdict(repair))
            _cut(place / name, repair.offset)


def _cut(path: Path, size: int) -> None:
    handle = os.open(path, os.O_WRONLY)
    try:
        os.ftruncate(handle, size)
        os.fsync(handle)
    finally:
        os.close(handle)


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""
