"""Any portable value comes back equal and of the same type, from one encoding; anything else is refused with its path."""

import math
import os
import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal, localcontext
from enum import Enum, Flag, IntEnum, StrEnum
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import attrs
import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoint import _strategies
from savepoint._codec import decode, digest, dumps, encode, loads
from savepoint._errors import NotPortable
from savepoint._log import Log
from savepoint._portable import Blob, normalise, portable, same
from savepoint._types import Types
from savepoint._walk import DEPTH


@portable("test/colour")
class Colour(Enum):
    RED = 1
    ROSSO = 1  # noqa: PIE796  an alias, on purpose
    BLUE = 2


@portable("test/level", version=3)
class Level(IntEnum):
    LOW = 1
    HIGH = 2


@portable("test/point")
@attrs.frozen
class Point:
    x: Any
    _hidden: Any = 0
    made: Any = attrs.field(init=False, default=None)


@portable("test/note")
@dataclass
class Note:
    text: Any
    tags: Any = field(default_factory=list)


TYPES = Types([Colour, Level]) | Types([Point, Note])
MEMBERS = st.sampled_from([*Colour, *Level])
RECORDS = MEMBERS | st.builds(Point, _strategies.scalars(), _strategies.scalars())
VALUES = _strategies.values(
    RECORDS | st.builds(Note, _strategies.scalars(), st.lists(RECORDS, max_size=2)), extra_keys=RECORDS
)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
"""What standard CBOR has, with text keys: there cbor2's canonical order and ours are the same."""


def alike(a: Any, b: Any) -> bool:
    """The reference: equal and of the same types at every depth, written without the codec."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, Decimal):
        return a.as_tuple() == b.as_tuple()
    if isinstance(a, datetime | time):
        bare = a.replace(tzinfo=None) == b.replace(tzinfo=None) and a.fold == b.fold
        return bare and zone(a.tzinfo) == zone(b.tzinfo)
    if isinstance(a, list | tuple | Log):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, set | frozenset):
        return len(a) == len(b) and all(any(alike(x, y) for y in b) for x in a)
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            any(alike(k, other) and alike(item, b[other]) for other in b) for k, item in a.items()
        )
    if isinstance(a, Point):
        return alike((a.x, a._hidden, a.made), (b.x, b._hidden, b.made))
    if isinstance(a, Note):
        return alike((a.text, a.tags), (b.text, b.tags))
    return a == b


def zone(info: Any) -> Any:
    return info.key if isinstance(info, ZoneInfo) else info and (type(info), info.__getinitargs__())


def logs_in(value: Any) -> dict[bytes, Log[Any]]:
    return {log.root: log for log in encode(value).logs}


@given(VALUES)
def test_whole_bytes_give_the_same_value_and_the_same_bytes(value):
    data = dumps(value)
    back = loads(data, types=TYPES)
    assert alike(back, value)
    assert same(back, value)
    assert dumps(back) == data


@given(VALUES)
def test_linked_bytes_give_the_same_value_and_the_same_digest(value):
    encoded = encode(value)
    back = decode(encoded.body, types=TYPES, logs=logs_in(value))
    assert alike(back, value)
    assert alike(encoded.value, value)
    assert digest(back) == encoded.digest == digest(value)


@given(VALUES)
def test_normal_form_is_a_fixed_point_that_a_reader_shares(value):
    normal = normalise(value)
    assert alike(normal, value)
    back = loads(dumps(value), types=TYPES)
    assert walk_order(normal) == walk_order(back) == walk_order(normalise(normal))


def walk_order(value: Any) -> Any:
    """A value's shape with dicts in their own order."""
    if isinstance(value, dict):
        return [(dumps(k), walk_order(v)) for k, v in value.items()]
    if isinstance(value, list | tuple | Log):
        return [walk_order(v) for v in value]
    return dumps(value)


@given(VALUES, VALUES)
def test_same_agrees_with_the_reference(a, b):
    assert same(a, b) == alike(a, b)


@given(st.dictionaries(_strategies.keys(RECORDS), _strategies.scalars(), max_size=6), st.randoms())
def test_insertion_order_is_no_content(value, random):
    entries = list(value.items())
    random.shuffle(entries)
    assert dumps(dict(entries)) == dumps(value)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ((1,), [1]),
        ({1}, frozenset({1})),
        ("a", b"a"),
        (Decimal("1.0"), Decimal("1.00")),
    ],
)
def test_equal_values_of_other_types_or_forms_differ(a, b):
    assert not same(a, b)
    assert digest(a) != digest(b)


HARD = {
    "s": {(1, 2), (3, 4)},
    "fs": frozenset({(1,)}),
    "k": {1: "i", "1": "s", None: "n", "None": "t", 2.5: "f", "2.5": "g"},
    "tk": {(1, 2): "x"},
    "t": (1, [2, (3,)]),
    "e": set(),
    "b": b"\x00\xff",
    "nest": {"a": {"b": ()}},
    "zones": [datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Rome"), fold=f) for f in (0, 1)],
    "clock": time(1, 2, 3, 4, timezone(timedelta(hours=-3, minutes=-30))),
    "named": datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1), "X")),
    "numbers": [
        -0.0,
        math.inf,
        -math.inf,
        Decimal("-0"),
        Decimal("NaN"),
        Decimal("sNaN3"),
        Decimal("1E+400"),
        Fraction(-7, 3),
    ],
    "big": [1 << 64, -(1 << 64), -(1 << 64) - 1, (1 << 64) - 1, 7**5000],
    "strings": {str(n) for n in range(10)},
    "nested": frozenset({frozenset({"a", "b"}), frozenset({"c", "d"}), frozenset()}),
    "rest": [date(1, 1, 1), timedelta.min, PurePosixPath("//a/../b"), Blob(bytes(32), 5), Colour.BLUE, Level.HIGH],
}


def test_containers_and_keys_keep_their_type_at_every_depth():  # C07
    back = loads(dumps(HARD), types=TYPES)
    assert alike(back, HARD)
    assert len(back["k"]) == 6
    with pytest.raises(NotPortable, match=r"^state\.dd: defaultdict is not portable \(a subclass of dict\)$"):
        normalise(HARD | {"dd": defaultdict(list)}, "state")


PROGRAM = """
import sys
from savepoint._codec import digest, dumps, loads
value = loads(sys.stdin.buffer.read())
again = {"k": {k: v for k, v in reversed(value["k"].items())}} | {k: v for k, v in reversed(value.items()) if k != "k"}
fresh = again | {"strings": {str(n) for n in range(9, -1, -1)}, "nested": frozenset(
    {frozenset({"d", "c"}), frozenset(), frozenset({"b", "a"})})}
print(digest(value).hex(), digest(fresh).hex())
sys.stdout.buffer.flush()
"""


def test_one_digest_in_processes_with_other_hash_seeds():  # C10
    value = {key: item for key, item in HARD.items() if key != "rest"}
    found = {digest(value).hex()}
    for seed in ("0", "1", "2", "random"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], input=dumps(value), capture_output=True, check=True, env=environment
        )
        found |= set(done.stdout.decode().split())
    assert found == {digest(value).hex()}
    assert digest(value | {"e": {0}}) != digest(value)


def test_envelopes_of_the_codec_are_plain_data():  # C40 (1)
    envelope = {"tag": 47121, "value": ["test/point", 1, {"x": 1}], "__portable__": "test/point"}
    for value in (envelope, dumps(Point(1)), [47121, ["test/point", 1, {"x": 1}]], {47121: ("test/point", 1)}):
        assert alike(loads(dumps(value), types=TYPES), value)


class Rank(IntEnum):
    A = 1


class Word(StrEnum):
    A = "a"


@portable("test/bits")
class Bits(Flag):
    A = 1
    B = 2


@attrs.frozen
class Unnamed:
    x: int = 0


class Child(Point):
    pass


class Pair(NamedTuple):
    a: int
    b: int


class Zone(tzinfo):
    def utcoffset(self, when: Any) -> timedelta:
        return timedelta(0)


class Text(str):
    __slots__ = ()


STRANGERS = [
    object(), Rank.A, Word.A, Bits.A | Bits.B, Unnamed(), Child(1), Text("a"), OrderedDict(), Counter(), defaultdict(int),
    Pair(1, 2), Path("/tmp"), bytearray(b""), memoryview(b""), range(3), 1j, "\ud800", len, Point,
    iter(()), datetime(2026, 1, 1, tzinfo=Zone()), PurePosixPath("\udcff"),
    Fraction(1, 1 << 9000),
]  # fmt: skip


@given(st.sampled_from(STRANGERS), st.lists(st.sampled_from(["list", "tuple", "dict", "record", "item"]), max_size=6))
def test_anything_else_is_refused_with_its_path(stranger, around):
    value, path = stranger, ""
    for kind in around:
        value, step = {
            "list": ([0, value], "[1]"),
            "tuple": ((value,), "[0]"),
            "dict": ({"key": value, "z": 1}, ".key"),
            "item": ({(1,): 0, "no id": value}, "['no id']"),
            "record": (Point(value), ".x"),
        }[kind]
        path = step + path
    with pytest.raises(NotPortable) as caught:
        encode(value, "state")
    assert caught.value.path == "state" + path
    assert type(stranger).__name__ in caught.value.message or isinstance(
        stranger, str | PurePosixPath | datetime | Fraction | Flag
    )


@pytest.mark.parametrize("value", [{object(): 1}, {("\ud800",): 1}, {"\ud800": 1}, {object()}, {1: {2: {object()}}}])
def test_keys_are_refused_too(value):
    with pytest.raises(NotPortable):
        dumps(value)


def test_two_nans_as_keys_are_refused_because_one_would_be_lost():
    with pytest.raises(NotPortable, match="one encoding"):
        dumps({float("nan"): 1, float("nan"): 2})


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_depth_is_bounded_and_cycles_are_refused():
    assert alike(loads(dumps(nested(DEPTH))), nested(DEPTH))
    with pytest.raises(NotPortable, match="deeper than 128"):
        dumps(nested(DEPTH + 1))
    loop: dict[str, Any] = {}
    loop["self"] = [loop, loop]
    with pytest.raises(NotPortable, match="holds itself"):
        dumps(loop)


def test_scalars_stand_at_the_deepest_place():
    value: Any = HARD["zones"][0]
    for _ in range(DEPTH):
        value = (value,)
    assert alike(loads(dumps(value)), value)


def test_aliasing_is_not_kept_and_immutable_values_are_not_copied():
    shared: list[int] = []
    normal = normalise([shared, shared])
    assert normal[0] is not normal[1] is not shared
    record = Point((1, "a", frozenset({2})))
    assert normalise(Point(1)) is not record
    plain = Point((1, "a"))
    assert normalise(plain) is plain


def test_the_context_of_decimal_changes_nothing():
    value = Decimal("1E+5")
    data = dumps(value)
    with localcontext() as context:
        context.capitals, context.prec = 0, 1
        assert dumps(value) == data
        assert loads(data) == value


def test_attributes_that_are_no_fields_are_refused():
    note = Note("a")
    note.extra = 1  # type: ignore[attr-defined]
    with pytest.raises(NotPortable, match="'extra' is no field of Note"):
        dumps(note)


def test_errors_survive_their_own_reduction():
    with pytest.raises(NotPortable) as caught:
        normalise({"a": [object()]})
    build, arguments = caught.value.__reduce__()[:2]
    again = build(*arguments)
    assert isinstance(again, NotPortable)
    assert (again.path, str(again)) == ("value.a[0]", str(caught.value))


@given(PLAIN)
def test_plain_values_agree_with_another_codec(value):
    data = dumps(value)
    assert data == cbor2.dumps(value, canonical=True)
    assert alike(cbor2.loads(data), value)
