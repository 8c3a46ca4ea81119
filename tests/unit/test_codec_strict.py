"""Strict reading: any bytes are either the one encoding of a value or refused, quickly, whoever wrote them."""

import pickle
import time
from decimal import Decimal
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoint import _strategies
from savepoint._atoms import Tag, atom, head, octets, real, tagged, text
from savepoint._codec import decode, digest, dumps, encode, loads, named_blobs, named_logs
from savepoint._errors import Corrupt, Foreign, Missing, NotPortable
from savepoint._log import Log
from savepoint._portable import Blob, same
from savepoint._walk import KEY_INT_BYTES

MERSENNE = (1 << 61) - 1
"""Python's hash of a number is its remainder by this: multiples of it all have the hash 0."""


def read_or_refused(data: bytes) -> Any:
    try:
        return loads(data)
    except (Corrupt, Foreign) as error:
        return error


@given(st.binary(max_size=60))
def test_any_bytes_are_canonical_or_refused(data):
    value = read_or_refused(data)
    assert isinstance(value, Corrupt | Foreign) or dumps(value) == data


@given(_strategies.values(), st.data())
def test_changed_bytes_are_canonical_or_refused(value, data):
    changed = bytearray(dumps(value))
    at = data.draw(st.integers(0, len(changed)))
    changed[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    back = read_or_refused(bytes(changed))
    assert isinstance(back, Corrupt | Foreign) or dumps(back) == bytes(changed)


@given(_strategies.values(), st.data())
def test_linked_bytes_are_canonical_or_refused(value, data):
    encoded = encode(value)
    body = bytearray(encoded.body)
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        back = decode(bytes(body), logs={log.root: log for log in encoded.logs})
    except (Corrupt, Foreign, Missing):
        return
    assert encode(back).body == bytes(body)


@given(_strategies.values())
def test_every_cut_is_refused(value):
    data = dumps(value)
    for end in range(len(data)):
        with pytest.raises((Corrupt, Foreign)):
            loads(data[:end])


TUPLE, SET, DECIMAL = (tagged(tag).hex() for tag in (Tag.TUPLE, Tag.SET, Tag.DECIMAL))
REFUSED = {
    "empty": "",
    "trailing byte": "0000",
    "int in two bytes": "1817",
    "int in three bytes": "1900ff",
    "negative int in two bytes": "3800",
    "long length": "580161",
    "long text head": "780161",
    "long array head": "980100",
    "big int that fits": "c2480123456789abcdef",
    "big int with a leading zero": "c249000123456789abcdef01",
    "indefinite list": "9fff",
    "indefinite text": "7f6161ff",
    "indefinite map": "bfff",
    "stray break": "ff",
    "undefined": "f7",
    "simple value": "e0",
    "simple value in two bytes": "f814",
    "long true": "f815",
    "reserved head": "1c",
    "double that is a half": "fb3ff8000000000000",
    "single that is a half": "fa3fc00000",
    "another NaN": "f97e01",
    "a long NaN": "fb7ff8000000000000",
    "not UTF-8": "61ff",
    "surrogate in UTF-8": "63eda080",
    "overlong UTF-8": "62c080",
    "keys out of order": "a2616200616100",
    "a key twice": "a2616100616100",
    "1 and True": "a20100f500",
    "0.0 and -0.0": "a2f9000000f9800000",
    "a list as a key": "a18000",
    "set out of order": SET + "820201",
    "set element twice": SET + "820101",
    "set with 1 and True": SET + "8201f5",
    "set with a list in it": SET + "8180",
    "tuple of text": TUPLE + "6161",
    "decimal with spaces": DECIMAL + text(" 1").hex(),
    "decimal in small letters": DECIMAL + text("1e+5").hex(),
    "no decimal": DECIMAL + text("one").hex(),
    "decimal of an int": DECIMAL + "05",
    "fraction that can be reduced": tagged(Tag.FRACTION).hex() + "820204",
    "fraction by zero": tagged(Tag.FRACTION).hex() + "820100",
    "a 30th of February": tagged(Tag.DATE).hex() + "831907ea02181e",
    "a zone's fold of 2": tagged(Tag.TIME).hex() + "860000000002f6",
    "a zone outside the database": tagged(Tag.TIME).hex() + "860000000000" + text("../../etc/passwd").hex(),
    "a path not in its own form": tagged(Tag.PATH).hex() + text("a//b").hex(),
    "a payload in a payload": tagged(Tag.PATH).hex() * 1000 + text("a").hex(),
    "a short digest": tagged(Tag.BLOB).hex() + "82410005",
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_forms_are_corrupt(name):
    with pytest.raises(Corrupt):
        loads(bytes.fromhex(REFUSED[name]))


@pytest.mark.parametrize("tag", [0, 1, 4, 5, 24, 28, 29, 30, 35, 258, 55799, 47109, 1 << 60])
def test_unknown_tags_are_foreign(tag):
    with pytest.raises(Foreign, match=f"tag {tag} is unknown"):
        loads(head(6, tag) + b"\x81\x00")


def test_a_zone_that_this_machine_does_not_know_is_foreign():
    with pytest.raises(Foreign, match="No time zone found"):
        loads(tagged(Tag.TIME) + bytes.fromhex("860000000000") + text("Nowhere/Land"))


def test_pickles_are_refused():  # C40 (3)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises((Corrupt, Foreign)):
            loads(pickle.dumps({"a": [1, 2.5, "x", {3}]}, protocol))


def set_of(items: list[bytes], tag: Tag = Tag.SET) -> bytes:
    return tagged(tag) + head(4, len(items)) + b"".join(sorted(items))


def crowd(count: int) -> list[bytes]:
    return [dumps(MERSENNE * n) for n in range(1, count + 1)]


def crowds_in_crowds(level: int, last: int) -> frozenset[Any]:
    """Frozensets whose hashes, and whose elements' hashes, are all equal: comparing two is exponential in `level`."""
    element = (lambda n: crowds_in_crowds(level - 1, n)) if level else (lambda n: MERSENNE * (n + 1))
    return frozenset([element(n) for n in (*range(7), 7 + last)])


BOMBS = {
    "nested lists": b"\x81" * 100_000 + b"\x80",
    "nested maps": b"\xa1\x00" * 100_000 + b"\x00",
    "nested tuples": tagged(Tag.TUPLE) * 50_000,
    "tags alone": b"\xc2" * 100_000,
    "long list": b"\x9b" + pack(">Q", 1 << 60),
    "long text": b"\x7b" + pack(">Q", 1 << 60),
    "long bytes": b"\x5b" + pack(">Q", (1 << 64) - 1),
    "long map": b"\xbb" + pack(">Q", 1 << 60) + b"\x00" * 1000,
    "long set": tagged(Tag.SET) + b"\x9b" + pack(">Q", 1 << 60),
    "shared reference to itself": bytes.fromhex("d81c81d81d00"),
    "a set of one hash": set_of(crowd(100_000)),
    "a map of one hash": b"\xba" + pack(">I", 50_000) + b"".join(key + b"\x00" for key in sorted(crowd(50_000))),
    "sets in sets as a key": tagged(Tag.SET) + b"\x81" + (tagged(Tag.FROZENSET) + b"\x81") * 100 + b"\x00",
    "long ints as keys": set_of([dumps(MERSENNE << n * 8) for n in range(100_000, 100_008)]),
    "a long int as a fraction": tagged(Tag.FRACTION) + b"\x82" + dumps(3**600_000) + dumps(7**600_000),
    "a decimal beyond all": tagged(Tag.DECIMAL) + text("1E+" + "9" * 300_000),
    "a decimal of a long int": tagged(Tag.DECIMAL) + dumps(1 << 8_000_000),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_quickly(name):  # C40 (6)
    started = time.monotonic()
    with pytest.raises((Corrupt, Foreign)):
        loads(BOMBS[name])
    assert time.monotonic() - started < 5


LONG = {
    "int": 1 << 8_000_000,
    "negative int": -(1 << 8_000_000),
    "text": "x" * 1_000_000,
    "bytes": bytes(1_000_000),
    "sets of one hash in sets": {crowds_in_crowds(2, n) for n in range(8)},
    "decimal": Decimal("7" * 300_000 + "E+77"),
}


@pytest.mark.parametrize("name", LONG)
def test_long_values_are_read_quickly(name):
    value = LONG[name]
    started = time.monotonic()
    assert loads(dumps(value)) == value
    assert time.monotonic() - started < 5


def test_what_a_reader_refuses_is_refused_when_it_is_written():
    for value in (
        {MERSENNE * n for n in range(2000)},
        {1 << 8 * KEY_INT_BYTES},
        {(MERSENNE * n,): 0 for n in range(1, 2000)},
    ):
        with pytest.raises(NotPortable):
            dumps(value)
    deep: Any = frozenset()
    for _ in range(6):
        deep = frozenset({deep})
    with pytest.raises(NotPortable, match="sets nested deeper"):
        dumps(deep)
    powers = {1 << n for n in range(1000)}  # many of one hash, but not too many
    grid = [{(x, y) for x in range(-9, 9) for y in range(-9, 9)} for _ in range(50)]
    assert same(loads(dumps([powers, grid])), [powers, grid])


def test_profiles_are_not_mixed_up():
    log = Log([1, "a"])
    with pytest.raises(Corrupt, match="whole bytes"):
        decode(dumps(log), logs={log.root: log})
    with pytest.raises(Corrupt, match="linked bytes"):
        loads(encode(log).body)
    with pytest.raises(Missing):
        decode(encode(log).body)
    with pytest.raises(Corrupt, match="should have 2 elements"):
        decode(encode(log).body, logs={log.root: Log([1])})


def test_what_a_value_names_is_found_without_decoding_it():
    log, blob = Log([Log([1]), "x"]), Blob(bytes(range(32)), 1 << 40)
    # Bytes that look like a named log or blob, but are data.
    decoys = [encode(log).body, "\ufffd", atom(blob)]
    encoded = encode(
        {
            "log": (log, [blob]),
            log: {blob},
            "decoys": decoys,
            "other": Log(),
            "simple": [1.5, 0.1, 3.5e5, None, True, 1e300],
        }
    )
    assert set(named_logs(encoded.body)) == {(2, log.root), (0, Log().root)}
    assert set(encoded.logs) == {log, Log()}
    assert set(named_blobs(encoded.body)) == {blob} == set(encoded.blobs)
    assert named_logs(encode(decoys).body) == ()
    with pytest.raises(Corrupt):
        named_logs(encoded.body[:-1])


def test_a_log_costs_nothing_in_linked_bytes():
    assert len(encode(Log(range(10_000))).body) < 48
    assert digest(Log(range(1000))) == digest(Log(range(10)).extend(range(10, 1000)))


def test_only_bytes_are_read():
    for wrong in (5, "text", bytearray(b"\x00"), memoryview(b"\x00"), None):
        with pytest.raises(TypeError):
            loads(wrong)  # type: ignore[arg-type]


@given(st.floats())
def test_floats_have_their_shortest_form(value):
    data = real(value)
    assert len(data) in (3, 5, 9)
    assert same(loads(data), value)
    assert len(octets(data)) == len(data) + 1


def test_encoding_stays_fast():
    """A generous guard (measured: 7 us) against an encoder that became slow by orders of magnitude."""
    content = "x" * 2000
    started = time.perf_counter()
    for _ in range(1000):
        encode(content)
    assert time.perf_counter() - started < 0.5
