"""Events as bytes, their fold against a naive replay, and the chain that proves that none is missing."""

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from effects import Idempotency
from effects._receipt import Receipt, Status
from savepoint import Corrupt, Foreign
from savepoint._codec import dumps
from savepoint._events import (
    Called,
    Claimed,
    Event,
    Gap,
    Head,
    Mark,
    Snapshotted,
    check_chain,
    event_key,
    fold,
    link,
    read_events,
    read_head,
    read_mark,
    write_events,
    write_head,
    write_mark,
)
from savepoint._store import Row, Space, row_digest

LINEAGE = b"l" * 16
digests = st.binary(min_size=32, max_size=32)
keys = st.lists(st.sampled_from([b"a" * 16, b"b" * 16]), min_size=1, max_size=3).map(b"".join)
receipts = st.builds(
    Receipt,
    key=keys,
    step=st.integers(0, 3),
    effect=st.text(max_size=5),
    version=st.integers(1, 300),
    idempotency=st.sampled_from(Idempotency),
    status=st.sampled_from(Status),
    writes_world=st.booleans(),
    arguments=st.none() | st.binary(max_size=40),
    arguments_object=st.none() | digests,
    outcome=st.none() | digests,
    tried=st.integers(0, 9),
    at=st.floats(0, 2e9),
    world=st.none() | digests,
    note=st.none() | digests,
)
events = st.one_of(
    receipts.map(lambda receipt: Called(receipt=receipt)),
    st.builds(Claimed, epoch=st.integers(1, 9), forked=st.integers(0, 20)),
    st.builds(Snapshotted, world=digests),
    st.builds(Gap, step=st.integers(0, 4), point=st.none() | digests, why=st.text(max_size=5)),
)


def row(number: int, some: list[Event]) -> Row:
    key, body = event_key(LINEAGE, number), write_events(some)
    return Row(key=key, body=body, digest=row_digest(Space.EVENT, key, body))


def numbered(event: Event, number: int) -> Event:
    return Called(receipt=evolve(event.receipt, number=number)) if isinstance(event, Called) else event


@given(some=st.lists(events, max_size=6), first=st.integers(0, 2**40))
def test_events_come_back_as_they_were_written_and_receipts_know_their_number(some: list[Event], first: int) -> None:
    assert read_events(row(first, some)) == [numbered(event, first + index) for index, event in enumerate(some)]


@given(some=st.lists(events, max_size=6))
def test_bytes_depend_on_the_events_alone(some: list[Event]) -> None:
    assert write_events(some) == write_events([numbered(event, 7) for event in some])


@given(
    head=st.builds(Head, count=st.integers(0, 2**40), chain=digests, step=st.integers(0, 99), epoch=st.integers(0, 9))
)
def test_a_head_comes_back(head: Head) -> None:
    assert read_head(Row(key=LINEAGE, body=write_head(head), digest=b"")) == head


@given(mark=st.builds(Mark, point=digests, name=st.text(max_size=9), count=st.integers(1, 999), chain=digests))
def test_a_mark_comes_back(mark: Mark) -> None:
    assert read_mark(Row(key=LINEAGE, body=write_mark(mark), digest=b"")) == mark


@pytest.mark.parametrize("body", [b"", b"\xff", dumps(1), dumps([[1]]), dumps([[2, "x", 1]]), dumps([[]]), dumps([7])])
def test_bytes_that_are_no_events_are_damage(body: bytes) -> None:
    with pytest.raises(Corrupt):
        read_events(Row(key=event_key(LINEAGE, 3), body=body, digest=b""))


def test_an_unknown_kind_of_event_is_refused_and_not_skipped() -> None:
    with pytest.raises(Foreign):
        read_events(Row(key=event_key(LINEAGE, 3), body=dumps([[9, 1]]), digest=b""))


# -- the fold ---------------------------------------------------------------------------------------------------------


def replay(some: list[tuple[int, Event]], start: int) -> tuple[dict[tuple[int, bytes], Receipt], int, bytes | None]:
    """Every receipt is looked up anew in the whole history: slow, and as the rule is told."""
    snapshots: list[tuple[int, bytes | None]] = [(start - 1, None)]
    snapshots += [(n, event.world) for n, event in some if isinstance(event, Snapshotted)]
    found: dict[tuple[int, bytes], Receipt] = {}
    for number, event in some:
        if not isinstance(event, Called):
            continue
        receipt = event.receipt
        later_forks = [e.forked for n, e in some if isinstance(e, Claimed) and n > number]
        # Stale: some later claim started from a fork that is older than this change of the world.
        stale = receipt.touches_world and any(number > forked for forked in later_forks)
        found[receipt.step, receipt.key] = evolve(receipt, stale=stale)
    forked, world = snapshots[-1]
    return found, forked, world


@given(some=st.lists(events, max_size=14), start=st.integers(1, 6), gaps=st.sets(st.integers(0, 20), max_size=3))
def test_the_fold_is_the_naive_replay_also_where_numbers_are_missing(
    some: list[Event], start: int, gaps: set[int]
) -> None:
    numbers = [number for number in range(start, start + len(some) + len(gaps)) if number - start not in gaps]
    history = [(number, numbered(event, number)) for number, event in zip(numbers, some, strict=False)]
    past = fold(history, start=start)
    receipts, forked, world = replay(history, start)
    assert past.receipts == receipts
    assert (past.forked, past.world) == (forked, world)


# -- the chain --------------------------------------------------------------------------------------------------------


def chained(groups: list[list[Event]], start: int, chain: bytes) -> tuple[list[Row], Head]:
    rows: list[Row] = []
    number = start
    for group in groups:
        rows.append(row(number, group))
        chain = link(chain, rows[-1].digest)
        number += len(group)
    return rows, Head(count=number, chain=chain)


groups = st.lists(st.lists(events, min_size=1, max_size=3), min_size=1, max_size=5)


@given(groups=groups, start=st.integers(0, 9), chain=digests)
def test_whole_rows_in_order_prove_themselves(groups: list[list[Event]], start: int, chain: bytes) -> None:
    rows, head = chained(groups, start, chain)
    check_chain(rows, start=start, chain=chain, head=head)


@given(groups=groups, start=st.integers(0, 9), chain=digests, some=st.data())
def test_a_row_that_is_missing_is_damage(
    groups: list[list[Event]], start: int, chain: bytes, some: st.DataObject
) -> None:
    rows, head = chained(groups, start, chain)
    del rows[some.draw(st.integers(0, len(rows) - 1))]
    with pytest.raises(Corrupt):
        check_chain(rows, start=start, chain=chain, head=head)


@given(
    groups=groups,
    start=st.integers(0, 9),
    chain=digests,
    other=st.lists(events, min_size=1, max_size=3),
    some=st.data(),
)
def test_a_row_that_was_exchanged_is_damage(
    groups: list[list[Event]], start: int, chain: bytes, other: list[Event], some: st.DataObject
) -> None:
    rows, head = chained(groups, start, chain)
    place = some.draw(st.integers(0, len(rows) - 1))
    number = int.from_bytes(rows[place].key[-8:], "big")
    exchanged = row(number, other)
    if exchanged == rows[place]:
        return
    rows[place] = exchanged
    with pytest.raises(Corrupt):
        check_chain(rows, start=start, chain=chain, head=head)
