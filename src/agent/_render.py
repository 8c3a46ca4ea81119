"""How an outcome is told to a model: text as it is, everything else as JSON that any reader understands, bounded."""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from math import isfinite
from pathlib import PurePosixPath
from typing import Any, cast
from uuid import UUID

import attrs

from effects._failure import Failure
from savepoint._types import UnknownFields, portable


@portable("agent/denied", version=1, keeps="unknown")
@attrs.frozen(kw_only=True)
class Denied:
    """The outcome of a call that somebody, or a rule, did not allow; nothing was performed."""

    reason: str
    unknown: UnknownFields = attrs.field(default=(), repr=False)
    """fields that a newer version wrote: kept as they are, and ignored"""


@portable("agent/lost", version=1, keeps="unknown")
@attrs.frozen(kw_only=True)
class Lost:
    """The outcome of a call that was performed, but whose result or world changes nobody has any more."""

    note: str
    unknown: UnknownFields = attrs.field(default=(), repr=False)
    """fields that a newer version wrote: kept as they are, and ignored"""


@portable("agent/trimmed", version=1)
@attrs.frozen(kw_only=True)
class Trimmed:
    """What a session keeps of an old outcome: the beginning of its text, for a model. The value itself is gone from it."""

    text: str
    length: int
    """characters of the whole text"""
    ref: str
    """what `recall_tool_result` finds the whole by; empty where it was not archived"""


def render(outcome: object, limit: int) -> str:
    """The text of `outcome` for a model, at most `limit` characters of it, then a line that says what was cut."""
    return _bounded(whole_text(outcome), limit)


def whole_text(outcome: object) -> str:
    """All of it: what `render` bounds."""
    match outcome:
        case str():
            return outcome
        case Failure(kind=kind, message=message):
            return f"Failed: {kind}: {message}"
        case Denied(reason=reason):
            return f"Denied: {reason or 'no reason was given'}"
        case Lost(note=note):
            return f"Lost: {note}"
        case Trimmed():
            return _trimmed(outcome)
        case _:
            return json.dumps(_plain(outcome), ensure_ascii=False)


def _trimmed(outcome: Trimmed) -> str:
    rest = f"call recall_tool_result with ref {outcome.ref} for all of it" if outcome.ref else "they were not kept"
    note = f"[{outcome.length - len(outcome.text)} of {outcome.length} characters cut here; {rest}]"
    return f"{outcome.text}\n{note}"


def _bounded(text: str, limit: int) -> str:
    """Head and tail of `text`: the beginning says what it is, the end of an output says how it went."""
    if len(text) <= limit:
        return text
    tail = limit // 4
    head = limit - tail
    note = f"[{len(text) - limit} of {len(text)} characters cut here; the full result is stored]"
    return f"{text[:head]}\n{note}\n{text[len(text) - tail :]}"


_BIG = 10**4000
"""Python refuses to write longer integers in decimal."""

_AS_TEXT: tuple[tuple[type | tuple[type, ...], Callable[[Any], str]], ...] = (
    ((datetime, date, time), lambda value: value.isoformat()),
    (timedelta, lambda value: f"{value.total_seconds()} s"),
    (bytes, lambda value: f"hex:{value.hex()}"),
    ((Decimal, Fraction, UUID, PurePosixPath), str),
)


def _plain(value: object) -> object:
    """`value` as JSON types. Not reversible and needs not be: the receipt holds the value itself."""
    match value:
        case None | bool() | str():
            return value
        case Enum():
            return _plain(value.value)
        case int():
            return value if -_BIG < value < _BIG else hex(value)
        case float():
            return value if isfinite(value) else str(value)
        case Mapping():
            return _plain_mapping(cast("Mapping[object, object]", value))
        case set() | frozenset():
            return sorted((_plain(item) for item in cast("frozenset[object]", value)), key=_sort_key)
        case _:
            return _plain_rest(value)


def _plain_mapping(mapping: Mapping[object, object]) -> object:
    """An object where the keys' texts stay different ({1: .., "1": ..} do not), else a list of pairs."""
    pairs = [(_plain(key), _plain(item)) for key, item in mapping.items()]
    named = {key if isinstance(key, str) else json.dumps(key, ensure_ascii=False): item for key, item in pairs}
    return named if len(named) == len(pairs) else pairs


def _plain_rest(value: object) -> object:
    for kind, text in _AS_TEXT:
        if isinstance(value, kind):
            return text(value)
    names = _field_names(value)
    if names is not None:
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, Iterable):
        return [_plain(item) for item in cast("Iterable[object]", value)]
    return f"({type(value).__name__})"


def _field_names(value: object) -> list[str] | None:
    if attrs.has(type(value)):
        return [field.name for field in attrs.fields(type(value))]
    fields: dict[str, object] | None = getattr(type(value), "__dataclass_fields__", None)
    return None if fields is None else list(fields)


def _sort_key(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
