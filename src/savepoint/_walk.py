"""One walk over a value: refuses what is not portable, copies into normal form and writes the canonical bytes.

Normative: `design/format.md`. `_reader.py` is the way back.
"""

from collections import Counter
from collections.abc import Callable
from enum import Enum
from itertools import pairwise
from operator import is_, itemgetter
from typing import TYPE_CHECKING, Any, cast

from ._atoms import (
    ARRAY,
    ATOMS,
    BYTES,
    FALSE,
    MAP,
    NONE,
    TEXT,
    TRUE,
    Blob,
    Tag,
    Unfit,
    atom,
    byte_size,
    head,
    integer,
    real,
    tagged,
    text,
)
from ._errors import Foreign, NotPortable
from ._types import Plan, plan_of, stem

if TYPE_CHECKING:
    from ._log import Log

DEPTH = 128
"""Containers in one another, at most."""
KEY_INT_BYTES = 1024
"""Bytes of an int inside a key: comparing keys of mixed number types is quadratic in it."""
KEY_SETS = 4
"""Sets in one another inside a key: comparing them is exponential in it."""
CROWD, CROWDED = 8, 1024
"""Keys of one container that may share a hash; keys beyond that, in one value. Attackers choose such keys: each costs
a comparison with all before it."""


class Offence(Exception):
    """Something not portable; never leaves this module. The containers around it add the way to it, from the inside out."""

    def __init__(self, what: str, next: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.next = next
        self.trail: list[str] = []


class Walk:
    """One walk over one value; `out` grows by its bytes."""

    __slots__ = ("blobs", "crowded", "keys", "logs", "out", "sets", "whole")

    def __init__(self, *, whole: bool = False) -> None:
        self.out = bytearray()
        self.logs: list[Log[Any]] = []
        self.blobs: list[Blob] = []
        self.whole = whole
        self.keys = 0  # how many keys we are inside of
        self.sets = 0  # sets around us, counted inside keys
        self.crowded = 0

    def run(self, value: object, path: str = "value") -> Any:
        """Writes `value`, returns its normal form. Raises `NotPortable`."""
        try:
            return self.put(value, 0)
        except Offence as offence:
            place = "".join((path, *reversed(offence.trail)))
            raise NotPortable(place, offence.what, next=offence.next) from None

    def put(self, value: Any, depth: int) -> Any:
        kind = cast("type[Any]", type(value))
        write = WRITE.get(kind)
        if write is not None:
            return write(self, value, depth)
        plan = plan_of(kind)
        if plan is None:
            raise Offence(*_unknown(value))
        return _member(self, value, plan) if plan.enum else _record(self, value, plan, depth)

    def key(self, value: Any, depth: int) -> tuple[bytes, Any]:
        """The bytes and the normal form of a key or an element of a set, which its container has to order first."""
        start = len(self.out)
        self.keys += 1
        normal = self.put(value, depth)
        self.keys -= 1
        data = bytes(self.out[start:])
        del self.out[start:]
        return data, normal

    def check_keys(self, entries: list[tuple[bytes, Any, Any]]) -> None:
        """Refuses what a reader would: two keys of one encoding (NaN), too many keys of one hash."""
        for (one, *_), (other, *_) in pairwise(entries):
            if one == other:
                raise Offence("two keys (NaN, or of a class without ==) have one encoding")
        self.crowded += crowd([key for _, key, _ in entries])
        if self.crowded > CROWDED:
            raise Offence("too many keys share their hash")


def crowd(keys: list[Any]) -> int:
    """How many keys share their hash with more than `CROWD` others."""
    if len(keys) <= CROWD:
        return 0
    return sum(count - CROWD for count in Counter(map(hash, keys)).values() if count > CROWD)


Write = Callable[[Walk, Any, int], Any]


def _text(walk: Walk, value: str, _: int) -> str:
    try:
        data = value.encode()
    except UnicodeEncodeError as error:
        raise Offence(f"text with a lone surrogate at {error.start} is not portable") from None
    size = len(data)
    out = walk.out
    if size < 24:  # into one byte with its head
        out.append(TEXT << 5 | size)
    else:
        out += head(TEXT, size)
    out += data
    return value


def _bytes(walk: Walk, value: bytes, _: int) -> bytes:
    walk.out += head(BYTES, len(value))
    walk.out += value
    return value


def _int(walk: Walk, value: int, _: int) -> int:
    if 0 <= value < 24:  # a head without anything behind it
        walk.out.append(value)
        return value
    if walk.keys and byte_size(value) > KEY_INT_BYTES:
        raise Offence(f"an int of more than {KEY_INT_BYTES} bytes is not portable inside a key")
    walk.out += integer(value)
    return value


def _bool(walk: Walk, value: bool, _: int) -> bool:
    walk.out += TRUE if value else FALSE
    return value


def _none(walk: Walk, _: None, __: int) -> None:
    walk.out += NONE


def _float(walk: Walk, value: float, _: int) -> float:
    walk.out += real(value)
    return value


def _atom(walk: Walk, value: object, _: int) -> object:
    try:
        walk.out += atom(value)
    except Unfit as unfit:
        raise Offence(str(unfit)) from None
    return value


def _blob(walk: Walk, value: Blob, depth: int) -> object:
    walk.blobs.append(value)
    return _atom(walk, value, depth)


def _items(walk: Walk, items: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
    if depth >= DEPTH:
        raise Offence(f"nested deeper than {DEPTH} (or it holds itself)")
    normal: list[Any] = []
    walk.out += head(ARRAY, len(items))
    try:
        for item in items:
            normal.append(walk.put(item, depth + 1))  # noqa: PERF401  how far it came is the offender's place
    except Offence as offence:
        offence.trail.append(f"[{len(normal)}]")
        raise
    return normal


_TUPLE = tagged(Tag.TUPLE)


def _tuple(walk: Walk, value: tuple[Any, ...], depth: int) -> tuple[Any, ...]:
    walk.out += _TUPLE
    normal = _items(walk, value, depth)
    unchanged = all(map(is_, normal, value))
    return value if unchanged else tuple(normal)


def _set(walk: Walk, value: set[Any] | frozenset[Any], depth: int) -> set[Any] | frozenset[Any]:
    kind = cast("type[Any]", type(value))
    if depth >= DEPTH:
        raise Offence(f"nested deeper than {DEPTH}")
    walk.sets += walk.keys > 0
    if walk.sets > KEY_SETS:
        raise Offence(f"sets nested deeper than {KEY_SETS} inside a key")
    try:
        entries = [(*walk.key(item, depth + 1), None) for item in value]
        entries.sort(key=itemgetter(0))
        walk.check_keys(entries)
    except Offence as offence:
        offence.trail.append("{*}")
        raise
    walk.sets -= walk.keys > 0
    walk.out += tagged(Tag.SET if kind is set else Tag.FROZENSET) + head(ARRAY, len(entries))
    walk.out += b"".join([data for data, _, _ in entries])
    return cast("set[Any] | frozenset[Any]", kind([normal for _, normal, _ in entries]))


def _dict(walk: Walk, value: dict[Any, Any], depth: int) -> dict[Any, Any]:
    if depth >= DEPTH:
        raise Offence(f"nested deeper than {DEPTH} (or it holds itself)")
    entries, plain = _keyed(walk, value, depth + 1)
    entries.sort(key=itemgetter(0))
    if not plain:
        walk.check_keys(entries)
    normal: dict[Any, Any] = {}
    key = None
    out = walk.out
    out += head(MAP, len(entries))
    try:
        for data, key, item in entries:
            out += data
            normal[key] = walk.put(item, depth + 1)
    except Offence as offence:
        offence.trail.append(f".{key}" if type(key) is str and key.isidentifier() else f"[{_brief(key)}]")
        raise
    return normal


def _keyed(walk: Walk, value: dict[Any, Any], depth: int) -> tuple[list[tuple[bytes, Any, Any]], bool]:
    """(key's bytes, key, item) of each entry, and whether all keys are texts."""
    entries: list[tuple[bytes, Any, Any]] = []
    plain = True
    key = None
    try:
        for key, item in value.items():
            if type(key) is str:
                entries.append((text(key), key, item))
            else:
                plain = False
                entries.append((*walk.key(key, depth), item))
    except Unfit as unfit:
        raise Offence(f"{unfit} (as a key)") from None
    except Offence as offence:
        offence.trail.append(f"<key {_brief(key)}>")
        raise
    return entries, plain


BRIEF, INT_BYTES = 40, 8


def _brief(key: object) -> str:
    """A key in an error; `repr` only of what is small and no code of a user."""
    if type(key) in (str, bytes, bool, float, type(None)) or (type(key) is int and byte_size(key) <= INT_BYTES):
        shown = repr(key)
        return shown if len(shown) <= BRIEF else shown[:BRIEF] + "..."
    return type(key).__name__


def _record(walk: Walk, value: object, plan: Plan, depth: int) -> object:
    if depth >= DEPTH:
        raise Offence(f"nested deeper than {DEPTH} (or it holds itself)")
    surplus = plan.surplus(value)
    if surplus is not None:
        raise Offence(f"attribute {surplus!r} is no field of {plan.cls.__name__} and would be lost")
    if plan.keeps and (unknown := getattr(value, plan.keeps, ())):
        return _record_with(walk, value, plan, unknown, depth)
    out = walk.out
    out += plan.start
    name, changed = "", False
    normal: dict[str, Any] = {}
    try:
        for name, data in plan.keys:
            item = getattr(value, name)
            out += data
            normal[name] = kept = walk.put(item, depth + 1)
            changed |= kept is not item
    except (Offence, AttributeError) as error:
        offence = error if isinstance(error, Offence) else Offence("is not set")
        offence.trail.append(f".{name}")
        raise offence from None
    return _rebuilt(plan, normal) if changed or not plan.immutable else value


def _record_with(walk: Walk, value: object, plan: Plan, unknown: object, depth: int) -> object:
    """An instance that keeps fields which its class does not know: all stand in one map, in canonical order."""
    keys = _known(plan, value) | _kept(plan, unknown)
    out = walk.out
    out += stem(Tag.RECORD, plan.name, plan.version) + head(MAP, len(keys))
    name, changed = "", False
    normal: dict[str, Any] = {}
    try:
        for name, (data, item) in sorted(keys.items(), key=lambda entry: entry[1][0]):
            out += data
            normal[name] = kept = walk.put(item, depth + 1)
            changed |= kept is not item
    except Offence as offence:
        offence.trail.append(f".{name}")
        raise
    return _rebuilt(plan, normal) if changed or not plan.immutable else value


def _known(plan: Plan, value: object) -> dict[str, tuple[bytes, Any]]:
    """Name -> key and value of the fields that the class knows."""
    name = ""
    try:
        return {(name := each): (data, getattr(value, each)) for each, data in plan.keys}
    except AttributeError:
        offence = Offence("is not set")
        offence.trail.append(f".{name}")
        raise offence from None


def _kept(plan: Plan, unknown: object) -> dict[str, tuple[bytes, Any]]:
    """Name -> key and value of what an instance keeps. It must be what a reader would have put there."""
    pairs = cast("tuple[object, ...]", unknown) if type(unknown) is tuple else (None,)
    kept: dict[str, tuple[bytes, Any]] = {}
    try:
        for pair in pairs:
            name, item = cast("tuple[Any, Any]", pair) if type(pair) is tuple else (None, None)
            if type(name) is str and name not in plan.arguments:
                kept[name] = (text(name), item)
    except (ValueError, Unfit):
        kept = {}
    data = [data for data, _ in kept.values()]
    if len(data) < len(pairs) or data != sorted(data):
        offence = Offence("is no tuple of (name, value), with names that are no fields, in canonical order")
        offence.trail.append(f".{plan.keeps}")
        raise offence
    return kept


def _rebuilt(plan: Plan, fields: dict[str, Any]) -> object:
    try:
        return plan.build(fields)
    except Foreign as foreign:
        raise Offence(foreign.message, foreign.next) from foreign


def _member(walk: Walk, value: Enum, plan: Plan) -> Enum:
    if type(value).__members__.get(value.name) is not value:
        raise Offence("a combination of flags is not portable")
    walk.out += plan.start
    walk.out += text(value.name)
    return value


WRITE: dict[type, Write] = {
    str: _text,
    bytes: _bytes,
    int: _int,
    bool: _bool,
    type(None): _none,
    float: _float,
    list: _items,
    tuple: _tuple,
    dict: _dict,
    set: _set,
    frozenset: _set,
    **dict.fromkeys(ATOMS, _atom),
    Blob: _blob,
}
"""By exact type: a subclass holds more than its base, which would be lost. `_log.py` adds `Log`."""


def _unknown(value: object) -> tuple[str, str]:
    """What is wrong with a value of no portable type, and what to do."""
    kind = type(value)
    what = f"{kind.__name__} is not portable"
    base = next((base for base in kind.__mro__ if base in WRITE), None)
    if issubclass(kind, Enum) or hasattr(kind, "__attrs_attrs__") or hasattr(kind, "__dataclass_fields__"):
        return what, "give this very class a stable name: @portable(...)"
    if base is not None and base is not kind:
        return f"{what} (a subclass of {base.__name__})", f"convert it: {base.__name__}(...)"
    return what, ""
