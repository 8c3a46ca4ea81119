"""What the expressions in `values.json` may use."""

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePosixPath
from uuid import UUID
from zoneinfo import ZoneInfo

from attrs import frozen

from savepoint._log import Log
from savepoint._portable import Blob, portable
from savepoint._types import UnknownFields

__all__ = [
    "UUID", "Blob", "Decimal", "Fraction", "Log", "PurePosixPath", "ZoneInfo",
    "date", "datetime", "time", "timedelta", "timezone",
]  # fmt: skip
inf = float("inf")
nan = float("nan")


@portable("test/point")
@frozen
class Point:
    x: int
    y: int


@portable("test/colour", version=2)
class Colour(Enum):
    RED = 1


@portable("test/open", keeps="unknown")
@frozen
class Open:
    x: int
    yy: int = 0
    unknown: UnknownFields = ()
