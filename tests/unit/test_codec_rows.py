"""Rows are written by cbor2: the same bytes as from our own writer, for all that a row may hold."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoint._codec import count_of, dump_row, dumps, loads
from savepoint._errors import Corrupt, NotPortable
from savepoint._portable import same

NUMBERS = st.integers() | st.integers(-(1 << 70), 1 << 70) | st.sampled_from([0, 23, 24, 1 << 64, -(1 << 64) - 1])
FLOATS = st.floats() | st.floats(width=16) | st.floats(width=32) | st.sampled_from([-0.0, math.nan, -math.nan, 65504.0])
ATOMS = st.none() | st.booleans() | NUMBERS | FLOATS | st.text() | st.binary()
CELLS = st.recursive(ATOMS, lambda cell: st.lists(cell) | st.dictionaries(st.text(max_size=30), cell), max_leaves=20)


@given(st.lists(CELLS))
def test_a_row_has_the_bytes_of_our_own_writer(row):
    data = dump_row(row)
    assert data == dumps(row)
    assert same(loads(data), row)
    assert count_of(data) == len(row)


@given(st.lists(st.floats(allow_nan=True)))
def test_every_float_of_a_row_has_its_shortest_form(row):
    assert dump_row(row) == dumps(row)


def test_long_parts_and_many_keys_agree_too():
    row = [{f"{'k' * (n % 40)}{n}": n for n in range(300)}, "x" * 70_000, bytes(70_000), list(range(70_000))]
    assert dump_row(row) == dumps(row)


def test_what_cannot_be_text_is_refused_with_its_place():
    with pytest.raises(NotPortable, match=r"value\[1\]"):
        dump_row(["a", "\ud800"])


def test_only_a_list_has_a_count():
    for data in (dumps({}), dumps("ab"), b""):
        with pytest.raises(Corrupt):
            count_of(data)
