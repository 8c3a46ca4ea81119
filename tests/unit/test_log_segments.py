"""A log on its way to a store and back: segments chain up, every root is verified, nothing durable is written again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoint import _strategies
from savepoint._codec import decode, encode, named_logs
from savepoint._digest import SIZE, Domain, seal
from savepoint._errors import Corrupt
from savepoint._log import EMPTY_ROOT, INLINE, SEGMENT, Log, read_segments, segments, segments_after, verify_segment
from savepoint._portable import is_immutable, same


class Kept:
    """A store with the two maps that matter here."""

    def __init__(self) -> None:
        self.objects: dict[bytes, bytes] = {}
        self.segments: dict[bytes, bytes] = {}

    def save(self, log: Log[Any]) -> int:
        """Returns how many elements were written."""
        written = 0
        for segment in segments(log, log.stored(self)):
            for element in segment.elements:
                for inner in element.logs:
                    self.save(inner)
            self.objects.update(segment.objects)
            self.segments.setdefault(segment.root, segment.body)
            assert verify_segment(segment.root, segment.body)
            written += len(segment.elements)
        log.mark_stored(self, len(log))
        return written

    def newest_first(self, root: bytes) -> list[bytes]:
        bodies = []
        while root != EMPTY_ROOT:
            bodies.append(self.segments[root])
            root = bodies[-1][:SIZE]
        return bodies

    def load(self, root: bytes, count: int) -> Log[Any]:
        read = read_segments(root, count, self.newest_first(root))
        bodies = [self.objects[part.digest] if part.body is None else part.body for part in read.parts]
        values = [self.value(body) for body in bodies]
        volatile = [position for position, value in enumerate(values) if not is_immutable(value)]
        return Log.restored(values, read.roots, volatile)

    def value(self, body: bytes) -> Any:
        return decode(body, logs={root: self.load(root, count) for count, root in named_logs(body)})


@given(st.lists(st.lists(_strategies.values(), max_size=3), max_size=5))
def test_what_is_stored_turn_by_turn_is_read_back(turns):
    store, log = Kept(), Log()
    for turn in turns:
        log = log.extend(turn)
        assert store.save(log) == len(turn)
        assert store.save(log) == 0
    back = store.load(log.root, len(log))
    assert back == log
    assert same(list(back), list(log))
    assert back.append(1).root == log.append(1).root
    assert [back.root_at(n) for n in range(len(log) + 1)] == [log.root_at(n) for n in range(len(log) + 1)]


def test_a_turn_costs_what_it_adds_whatever_came_before():
    store, log, sizes = Kept(), Log(), []
    for turn in range(50):
        log = log.extend(["x" * 1000 + str(turn), turn])
        before = sum(map(len, store.segments.values()))
        store.save(log)
        sizes.append(sum(map(len, store.segments.values())) - before)
    assert max(sizes) - min(sizes) <= 2
    assert max(sizes) < 80


def test_a_version_inside_a_stored_segment_gets_a_segment_of_its_own():
    store = Kept()
    old = Log([1, 2, 3])
    new = old.extend([4, 5])
    assert store.save(new) == 5
    assert old.stored(store) == 0
    assert store.save(old) == 3
    assert store.load(old.root, 3) == old
    branch = old.append("branch")  # the copy knows what is durable of what it shares
    assert branch.stored(store) == 3
    assert new.stored(store) == 5
    assert store.save(branch) == 1
    assert store.load(branch.root, 4) == branch


def test_marks_belong_to_one_store_and_do_not_keep_it_alive():
    log, store, other = Log([1]), Kept(), Kept()
    store.save(log)
    assert (log.stored(store), log.stored(other)) == (1, 0)
    assert other.save(log) == 1
    assert len(log._buffer.stored) == 2
    del other
    assert len(log._buffer.stored) == 1


def test_long_logs_are_cut_into_segments():
    store, log = Kept(), Log(range(2 * SEGMENT + 1))
    store.save(log)
    assert len(store.segments) == 3
    assert store.load(log.root, len(log)) == log


def test_short_elements_stand_in_the_segment_long_ones_are_named_once():
    short, long = "x" * (INLINE - 2), "x" * (INLINE - 1)
    (segment,) = segments(Log([short, long, long]), 0)
    assert [len(encode(e).body) for e in (short, long)] == [INLINE, INLINE + 1]
    assert segment.objects == ((encode(long).digest, encode(long).body),)
    read = read_segments(segment.root, 3, [segment.body])
    assert [part.body is None for part in read.parts] == [False, True, True]
    assert [part.digest for part in read.parts] == [encode(e).digest for e in (short, long, long)]


def test_a_segment_names_a_digest_and_32_bytes_as_different_things():
    data = encode("x" * 100).digest
    (segment,) = segments(Log([data]), 0)
    (part,) = read_segments(segment.root, 1, [segment.body]).parts
    assert decode(part.body) == data


def test_settling_drops_bytes_and_changes_nothing():
    log = Log(["x" * 100, 1])
    before = segments(log, 0)
    longer = log.append("kept")
    log.settle_encoded()
    assert set(longer._buffer.encoded) == {2}
    assert segments(log, 0) == before


def test_every_flipped_byte_and_every_cut_of_a_segment_is_corrupt():
    log = Log(["x" * 100, 7, (1, "b")])
    (segment,) = segments(log, 0)
    body = segment.body
    changed = [body[:at] + bytes([body[at] ^ bit]) + body[at + 1 :] for at in range(len(body)) for bit in (1, 128)]
    cut = [body[:at] for at in range(len(body))]
    for bad in (*changed, *cut, body + b"\x00"):
        assert not verify_segment(segment.root, bad)
        with pytest.raises(Corrupt):
            read_segments(segment.root, 3, [bad])
    assert verify_segment(segment.root, body)


def test_missing_swapped_or_foreign_segments_are_corrupt():
    log = Log([1]).append(2)
    (first,), (second,) = segments(Log([1]), 0), segments(log, 1)
    good = [second.body, first.body]
    assert len(read_segments(log.root, 2, good).parts) == 2
    for count, bodies in (
        (2, good[:1]),
        (2, good[::-1]),
        (2, []),
        (1, good),
        (3, good),
        (2, [second.body] * 2),
        (1, good[:1]),
    ):
        with pytest.raises(Corrupt):
            read_segments(log.root, count, bodies)
    with pytest.raises(Corrupt):
        read_segments(EMPTY_ROOT, 1, [])
    with pytest.raises(Corrupt):
        read_segments(log.root, 0, [])
    assert read_segments(EMPTY_ROOT, 0, []).parts == ()


def test_the_root_is_the_chain_that_the_format_defines():
    root = seal(Domain.LOG, b"")
    for element in (1, "a", (2,)):
        root = seal(Domain.LOG, root + encode(element).digest)
    assert Log([1, "a", (2,)]).root == root


def test_a_log_of_logs_is_restored_with_its_inner_ones():
    store = Kept()
    log = Log([Log(["inner"]), {"deep": [Log(range(100))]}])
    store.save(log)
    back = store.load(log.root, 2)
    assert back == log
    assert list(back[0]) == ["inner"]
    assert same(back[1]["deep"], [Log(range(100))])


@given(st.lists(st.integers(0, 5) | st.text(min_size=100, max_size=101), min_size=1, max_size=8), st.integers(0, 8))
def test_segments_that_continue_a_log_by_its_root_are_those_of_the_log(elements: list[object], since: int) -> None:
    log = Log(elements)
    since = min(since, len(log))
    rest = [log.encoded_at(place) for place in range(since, len(log))]
    assert segments_after(log.root_at(since), rest) == segments(log, since)


def test_a_long_continuation_is_cut_into_segments() -> None:
    log = Log(range(2 * SEGMENT + 7))
    found = segments_after(log.root_at(3), [log.encoded_at(place) for place in range(3, len(log))])
    assert found == segments(log, 3)
    assert len(found) == 3
