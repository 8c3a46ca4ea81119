"""Values that are written in one piece: heads, numbers and texts of CBOR, and the scalars that get a tag of our own.

Every function here gives the one canonical encoding of its value. Normative: `design/format.md`.
"""

from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from enum import IntEnum
from fractions import Fraction
from pathlib import PurePosixPath
from struct import pack, unpack
from typing import Any, cast
from uuid import UUID
from zoneinfo import ZoneInfo

from attrs import frozen

from ._digest import SIZE

UNSIGNED, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG, SIMPLE = range(8)
"""CBOR's major types"""

FALSE, TRUE, NONE = b"\xf4", b"\xf5", b"\xf6"
NAN = b"\xf9\x7e\x00"
FRACTION_BYTES = 1024
"""Bytes of a fraction's terms: reducing one is quadratic, and whoever wrote the bytes chose its length."""


class Tag(IntEnum):
    """CBOR tags; ours are from the first-come-first-served range."""

    BIG = 2
    BIG_NEGATIVE = 3
    ITEM = 24
    TUPLE = 47110
    SET = 47111
    FROZENSET = 47112
    DATETIME = 47113
    DATE = 47114
    TIME = 47115
    TIMEDELTA = 47116
    DECIMAL = 47117
    FRACTION = 47118
    UUID = 47119
    PATH = 47120
    RECORD = 47121
    MEMBER = 47122
    BLOB = 47123
    LOG = 47124
    """linked profile: count and root"""
    LOG_WHOLE = 47125
    """whole profile: the elements"""


class Unfit(Exception):
    """A value of a portable type that is not portable itself. The walk catches it: it knows the path."""


@frozen
class Blob:
    """A reference to an object of a store: its digest and its size in bytes."""

    digest: bytes
    size: int

    def __attrs_post_init__(self) -> None:
        if type(self.digest) is not bytes or len(self.digest) != SIZE:
            raise TypeError(f"a digest is {SIZE} bytes")
        if type(self.size) is not int or self.size < 0:
            raise TypeError("a size is a number of bytes")


def _head(major: int, argument: int) -> bytes:
    top = major << 5
    if argument < 24:
        return bytes((top | argument,))
    if argument < 1 << 8:
        return pack(">BB", top | 24, argument)
    if argument < 1 << 16:
        return pack(">BH", top | 25, argument)
    if argument < 1 << 32:
        return pack(">BI", top | 26, argument)
    return pack(">BQ", top | 27, argument)


_SHORT = [[_head(major, argument) for argument in range(256)] for major in range(8)]


def head(major: int, argument: int) -> bytes:
    """An item's first bytes, in the shortest form."""
    return _SHORT[major][argument] if argument < 256 else _head(major, argument)


def tagged(tag: Tag) -> bytes:
    return _head(TAG, tag)


def text(value: str) -> bytes:
    try:
        data = value.encode()
    except UnicodeEncodeError as error:
        raise Unfit(f"text with a lone surrogate at {error.start} is not portable") from None
    return head(TEXT, len(data)) + data


def octets(value: bytes) -> bytes:
    return head(BYTES, len(value)) + value


def integer(value: int) -> bytes:
    if 0 <= value < 1 << 64:
        return head(UNSIGNED, value)
    if -(1 << 64) <= value < 0:
        return head(NEGATIVE, -1 - value)
    magnitude, tag = (value, Tag.BIG) if value > 0 else (-1 - value, Tag.BIG_NEGATIVE)
    return _head(TAG, tag) + octets(magnitude.to_bytes(byte_size(magnitude), "big"))


def byte_size(value: int) -> int:
    """Bytes of an int's magnitude."""
    return (value.bit_length() + 7) // 8


def real(value: float) -> bytes:
    """The shortest of the three forms that keeps the value; every NaN is one NaN."""
    if value != value:  # noqa: PLR0124  NaN, whatever its type
        return NAN
    for lead, form in ((b"\xf9", ">e"), (b"\xfa", ">f")):
        try:
            data = pack(form, value)
        except OverflowError:
            continue
        if unpack(form, data)[0] == value:
            return lead + data
    return b"\xfb" + pack(">d", value)


EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, capitals=1, clamp=0, traps=[])
"""Decimal's text must not depend on the context of the thread that writes it."""

Payload = Any
"""What stands behind a scalar's tag: texts, ints, bytes, None, and tuples of them."""


def _zone(zone: tzinfo | None) -> Payload:
    if zone is None:
        return None
    if type(zone) is timezone:
        offset, *name = cast("Any", zone).__getinitargs__()
        microseconds = offset // timedelta(microseconds=1)
        return (microseconds, *name) if name else microseconds
    if type(zone) is ZoneInfo and zone.key is not None:  # pyright: ignore[reportUnnecessaryComparison]
        return zone.key
    raise Unfit(f"time zone of type {type(zone).__name__} is not portable (fixed offsets and ZoneInfo by key are)")


def _zone_back(payload: Payload) -> tzinfo | None:
    if payload is None:
        return None
    if isinstance(payload, str):
        return ZoneInfo(payload)
    if isinstance(payload, int):
        return timezone(timedelta(microseconds=payload))
    microseconds, name = payload
    return timezone(timedelta(microseconds=microseconds), name)


def _moment(value: datetime) -> Payload:
    clock = (value.hour, value.minute, value.second, value.microsecond, value.fold, _zone(value.tzinfo))
    return (value.year, value.month, value.day, *clock)


def _moment_back(payload: Payload) -> datetime:
    *numbers, fold, zone = payload
    year, month, day, hour, minute, second, microsecond = numbers
    return datetime(year, month, day, hour, minute, second, microsecond, _zone_back(zone), fold=fold)


def _clock(value: time) -> Payload:
    return (value.hour, value.minute, value.second, value.microsecond, value.fold, _zone(value.tzinfo))


def _clock_back(payload: Payload) -> time:
    hour, minute, second, microsecond, fold, zone = payload
    return time(hour, minute, second, microsecond, _zone_back(zone), fold=fold)


def _span(value: timedelta) -> Payload:
    return (value.days, value.seconds, value.microseconds)


def _span_back(payload: Payload) -> timedelta:
    days, seconds, microseconds = payload
    return timedelta(days, seconds, microseconds)


def _ratio(value: Fraction) -> Payload:
    terms = (value.numerator, value.denominator)
    if max(map(byte_size, terms)) > FRACTION_BYTES:
        raise Unfit(f"a fraction with a term of more than {FRACTION_BYTES} bytes is not portable")
    return terms


def _ratio_back(payload: Payload) -> Fraction:
    numerator, denominator = payload
    if max(byte_size(numerator), byte_size(denominator)) > FRACTION_BYTES:
        raise ValueError("fraction too long")
    return Fraction(numerator, denominator)


def _number_back(payload: Payload) -> Decimal:
    if not isinstance(payload, str):  # from an int it would be a quadratic conversion
        raise TypeError("a decimal is stored as text")
    return Decimal(payload, EXACT)


Atom = tuple[Tag, Callable[[Any], Payload], Callable[[Payload], object]]
ATOMS: dict[type, Atom] = {
    datetime: (Tag.DATETIME, _moment, _moment_back),
    date: (Tag.DATE, lambda v: (v.year, v.month, v.day), lambda p: date(*p)),
    time: (Tag.TIME, _clock, _clock_back),
    timedelta: (Tag.TIMEDELTA, _span, _span_back),
    Decimal: (Tag.DECIMAL, EXACT.to_sci_string, _number_back),
    Fraction: (Tag.FRACTION, _ratio, _ratio_back),
    UUID: (Tag.UUID, lambda v: v.bytes, lambda p: UUID(bytes=p)),
    PurePosixPath: (Tag.PATH, str, PurePosixPath),
    Blob: (Tag.BLOB, lambda v: (v.digest, v.size), lambda p: Blob(*p)),
}
BUILD: dict[int, Callable[[Payload], object]] = {tag: back for tag, _, back in ATOMS.values()}


def atom(value: object) -> bytes:
    """A scalar of `ATOMS` as bytes. Raises `Unfit`."""
    tag, payload, _ = ATOMS[type(value)]
    return _head(TAG, tag) + _payload(payload(value))


def _payload(value: Payload) -> bytes:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, tuple):
        items = cast("tuple[Payload, ...]", value)
        return head(ARRAY, len(items)) + b"".join(map(_payload, items))
    if isinstance(value, bytes):
        return octets(value)
    return NONE if value is None else integer(value)
