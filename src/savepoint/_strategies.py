"""Hypothesis strategies for portable values, for our own tests and users'. The only importer of hypothesis."""

from datetime import UTC, timedelta, timezone
from decimal import Decimal
from math import nan
from pathlib import PurePosixPath
from typing import Any

from hypothesis import strategies as st

from ._log import Log
from ._portable import Blob

Values = st.SearchStrategy[Any]

NO_VALUES: Values = st.nothing()
# One object each: a set may hold a NaN once, and Python tells NaNs apart by identity.
_NANS = st.sampled_from([nan, Decimal("NaN"), Decimal("-NaN"), Decimal("NaN7")])
_HUGE: Values = st.integers(0, 2000).map(lambda bits: 3 << bits) | st.integers(0, 2000).map(lambda bits: -1 << bits)


def _minutes(count: int) -> timedelta:
    return timedelta(minutes=count)


def zones() -> Values:
    """Time zones that are portable, and none."""
    minutes: Values = st.integers(-1439, 1439).map(_minutes)
    fixed = st.builds(timezone, minutes) | st.builds(timezone, minutes, st.sampled_from(["X", "", "Zoé"]))
    return st.none() | st.just(UTC) | fixed | st.timezones()


def _fold(value: Any, fold: int) -> Any:
    return value.replace(fold=fold)


def scalars() -> Values:
    """Values that hold no others, and may be keys."""
    numbers: Values = (
        st.integers() | _HUGE | st.floats(allow_nan=False) | st.decimals(allow_nan=False) | st.fractions() | _NANS
    )
    moments = st.builds(_fold, st.datetimes(timezones=zones()), st.integers(0, 1))
    clocks = st.builds(_fold, st.times(timezones=zones()), st.integers(0, 1))
    calendar = moments | clocks | st.dates() | st.timedeltas()
    paths = st.lists(st.text(max_size=5), max_size=3).map(lambda parts: PurePosixPath(*parts))
    blobs = st.builds(Blob, st.binary(min_size=32, max_size=32), st.integers(0, 1 << 70))
    simple = st.none() | st.booleans() | st.text(max_size=30) | st.binary(max_size=30)
    return simple | numbers | calendar | st.uuids() | paths | blobs


def keys(extra: Values = NO_VALUES) -> Values:
    """Values that may be a key of a dict or an element of a set. `extra`: hashable values of registered classes."""
    return st.recursive(
        scalars() | extra,
        lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
        max_leaves=4,
    )


def values(extra: Values = NO_VALUES, *, extra_keys: Values = NO_VALUES) -> Values:
    """Any portable value. `extra`: values of registered classes; `extra_keys`: the hashable ones of them."""
    return st.recursive(
        scalars() | keys(extra_keys) | extra, lambda inner: _containers(inner, extra_keys), max_leaves=12
    )


def _containers(inner: Values, extra_keys: Values) -> Values:
    items = st.lists(inner, max_size=4)
    some_keys = keys(extra_keys)
    return (
        items
        | items.map(tuple)
        | items.map(Log)
        | st.sets(some_keys, max_size=4)
        | st.frozensets(some_keys, max_size=4)
        | st.dictionaries(st.text(max_size=8) | some_keys, inner, max_size=4)
    )
