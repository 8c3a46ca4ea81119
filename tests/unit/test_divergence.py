"""The divergence rules against a naive reading: trees of calls are walked, not prefixes compared."""

from collections.abc import Sequence

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from effects import Idempotency
from effects._divergence import changes_decisions, covered, guarded_levels, may_depend, unasked
from effects._key import ROOT, WIDTH, ancestors, at_or_below, below, parent
from effects._receipt import Receipt, Status

Path = tuple[int, ...]
"""A call's place: the component of every level."""

DOUBTFUL = (Idempotency.KEYED, Idempotency.ONCE)
OUTSIDE = (Idempotency.IDEMPOTENT, *DOUBTFUL)
MAYBE_DONE = (Status.INTENDED, Status.IN_DOUBT, Status.PERFORMED)


def key(path: Path) -> bytes:
    return b"".join(bytes([part]) * WIDTH for part in path)


def path_of(key_: bytes) -> Path:
    return tuple(key_[start] for start in range(0, len(key_), WIDTH))


paths = st.lists(st.integers(1, 3), min_size=1, max_size=4).map(tuple)


@st.composite
def receipts(draw: st.DrawFn) -> list[Receipt]:
    """Receipts of two steps, each call once, numbered in the order in which they were written."""
    places = draw(st.lists(st.tuples(st.integers(0, 1), paths), unique=True, max_size=8))
    return [
        Receipt(
            key=key(path),
            step=step,
            effect="e",
            version=1,
            idempotency=draw(st.sampled_from(Idempotency)),
            status=draw(st.sampled_from(Status)),
            number=number if draw(st.integers(0, 9)) else 0,
            stale=draw(st.booleans()),
            world=draw(st.sampled_from([None, None, b"w" * 32])),
        )
        for number, (step, path) in enumerate(places, 1)
    ]


def keys_of(known: Sequence[Receipt], some: st.DataObject) -> set[bytes]:
    return (
        set(some.draw(st.lists(st.sampled_from(known), max_size=3).map(lambda found: [r.key for r in found])))
        if known
        else set()
    )


@given(known=receipts(), levels=st.lists(paths | st.just(()), max_size=3), some=st.data())
def test_unasked_is_what_stands_below_a_level_and_nobody_asked_for(
    known: list[Receipt], levels: list[Path], some: st.DataObject
) -> None:
    asked, reused = keys_of(known, some), keys_of(known, some)
    excused = {(receipt.step, receipt.key) for receipt in known if receipt.key in keys_of(known, some)}

    def wanted(receipt: Receipt) -> bool:
        path = path_of(receipt.key)
        # A level's calls, at any depth, without the level itself.
        guarded = any(len(path) > len(level) and path[: len(level)] == level for level in levels)
        # All below a call that was answered from its receipt counts as asked.
        answered = any(key(path[:depth]) in reused for depth in range(1, len(path)))
        return (
            receipt.idempotency in DOUBTFUL
            and receipt.status in MAYBE_DONE
            and guarded
            and not answered
            and receipt.key not in asked
            and (receipt.step, receipt.key) not in excused
        )

    found = unasked(known, [key(level) for level in levels], asked=asked, reused=reused, excused=excused)
    assert found == [receipt for receipt in known if wanted(receipt)]


@given(path=paths)
def test_a_call_is_guarded_by_every_level_above_it(path: Path) -> None:
    above = [key(path[:depth]) for depth in range(len(path))]
    assert list(guarded_levels(key(path), recorded=False)) == above
    # The calls of a recorded reply are facts: they cannot diverge, what they did inside can.
    assert list(guarded_levels(key(path), recorded=True)) == above[1:]


@given(known=receipts(), some=st.data())
def test_a_changed_result_matters_to_later_calls_of_its_body_and_of_later_steps(
    known: list[Receipt], some: st.DataObject
) -> None:
    if not known:
        return
    redone = some.draw(st.sampled_from(known))
    excused = {(receipt.step, receipt.key) for receipt in known if receipt.key in keys_of(known, some)}

    def rests_on_it(later: Receipt) -> bool:
        same_body = path_of(later.key)[:-1] == path_of(redone.key)[:-1]
        return (
            later.number > redone.number
            and later.idempotency in DOUBTFUL
            and later.status in MAYBE_DONE
            and (later.step, later.key) not in excused
            and (later.step > redone.step or (later.step == redone.step and same_body))
        )

    assert changes_decisions(redone, known, excused) == [receipt for receipt in known if rests_on_it(receipt)]


@given(known=receipts(), path=paths, forked=st.integers(0, 9))
def test_a_call_is_covered_where_the_fork_holds_all_that_it_and_its_parts_wrote(
    known: list[Receipt], path: Path, forked: int
) -> None:
    missing = [
        receipt
        for receipt in known
        if path_of(receipt.key)[: len(path)] == path
        and (receipt.idempotency is Idempotency.CONTAINED or receipt.world is not None)
        and (receipt.stale or receipt.number == 0 or receipt.number > forked)
    ]
    assert covered(key(path), known, forked) is (not missing)


@given(known=receipts(), some=st.data())
def test_an_answer_is_depended_on_once_something_outside_came_after_it(
    known: list[Receipt], some: st.DataObject
) -> None:
    if not known:
        return
    read = evolve(some.draw(st.sampled_from(known)), idempotency=Idempotency.READ)
    after = [r for r in known if r.number > read.number and r.idempotency in OUTSIDE]
    assert may_depend(read, known) is bool(after)


@given(path=paths, other=paths | st.just(()))
def test_keys_are_paths(path: Path, other: Path) -> None:
    assert parent(key(path)) == key(path[:-1])
    assert below(key(path), key(other)) is (len(path) > len(other) and path[: len(other)] == other)
    assert at_or_below(key(path), key(other)) is (path[: len(other)] == other)
    assert ancestors(key(path)) == tuple(key(path[:depth]) for depth in range(len(path)))
    assert ancestors(key(path), top=1) == tuple(key(path[:depth]) for depth in range(1, len(path)))
    assert below(key(path), ROOT)
