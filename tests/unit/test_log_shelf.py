"""What was loaded from a store is shared by its next readers: nothing is read, decoded or written twice."""

from typing import Any

import pytest
from attrs import frozen

from savepoint._codec import encode
from savepoint._log import EMPTY_ROOT, Log
from savepoint._memory import MemoryStore
from savepoint._portable import portable, same
from savepoint._shelf import BYTES, LOGS, shelf_of
from savepoint._stored import get_value, put_value
from savepoint._types import Types

NO_TYPES = Types()


class CountingStore(MemoryStore):
    """Counts how often a log is read from it."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def segments(self, root: bytes, *, until: bytes) -> Any:
        self.reads += 1
        return await super().segments(root, until=until)


async def saved(store: MemoryStore, value: object) -> bytes:
    """Stores a value; returns its name."""
    encoded = encode(value)
    async with store.commit() as tx:
        durable = put_value(tx, encoded, store)
    durable()
    return encoded.digest


async def grown(store: MemoryStore, turns: int, first: Log[Any] | None = None) -> tuple[list[bytes], Log[Any]]:
    """A log that is stored after each of its turns: the names of its versions, and the last of them."""
    log: Log[Any] = Log() if first is None else first
    names: list[bytes] = []
    for turn in range(turns):
        log = log.extend([f"reply {turn}" * 20, [turn]])
        names.append(await saved(store, log))
    return names, log


async def test_a_log_is_loaded_once_for_all_its_readers() -> None:
    store = CountingStore()
    names, log = await grown(store, 5)
    read = [await get_value(store, names[-1], NO_TYPES) for _ in range(100)]
    assert store.reads == 1
    assert all(each == log and same(list(each), list(log)) for each in read)


async def test_every_beginning_of_a_kept_log_is_kept_with_it() -> None:
    store = CountingStore()
    names, log = await grown(store, 5)
    await get_value(store, names[-1], NO_TYPES)
    for turn, name in enumerate(names, 1):
        early = await get_value(store, name, NO_TYPES)
        assert same(list(early), log[: 2 * turn])
    assert store.reads == 1


async def test_readers_see_nothing_of_each_other() -> None:
    store = CountingStore()
    names, log = await grown(store, 3)
    one, other = [await get_value(store, names[-1], NO_TYPES) for _ in range(2)]
    one[1].append("scribble")
    forks = [one.append("one"), other.append("other"), one.append("one more")]
    assert [list(fork)[-1] for fork in forks] == ["one", "other", "one more"]
    assert same(list(await get_value(store, names[-1], NO_TYPES)), list(log))


async def test_a_fork_at_any_turn_writes_what_it_adds_only() -> None:
    store = CountingStore()
    names, log = await grown(store, 5)
    await get_value(store, names[-1], NO_TYPES)
    for turn, name in enumerate(names, 1):
        early = await get_value(store, name, NO_TYPES)
        assert early.stored(store) == 2 * turn
        fork = early.append(f"fork {turn}")
        await saved(store, fork)
        (added,) = await store.segments(fork.root, until=early.root)
        assert added.startswith(early.root)
    assert await get_value(store, names[-1], NO_TYPES) == log


@portable("shelf/one")
@frozen
class One:
    x: int


@portable("shelf/one")
@frozen
class Other:
    x: int


async def test_a_log_is_shared_by_readers_with_equal_types_only() -> None:
    store = CountingStore()
    name = await saved(store, Log([One(1)]))
    assert type((await get_value(store, name, Types([One])))[0]) is One
    assert type((await get_value(store, name, Types([Other])))[0]) is Other
    assert type((await get_value(store, name, Types([One])))[0]) is One
    assert store.reads == 2
    assert Types([One]) != Types([Other])
    assert Types([One]) | Types([]) == Types([One])


async def test_stores_share_nothing() -> None:
    stores = [CountingStore(), CountingStore()]
    for store in stores:
        names, _ = await grown(store, 2)
        await get_value(store, names[-1], NO_TYPES)
    assert [store.reads for store in stores] == [1, 1]


async def test_what_is_kept_is_bounded_and_the_latest_stays() -> None:
    store = CountingStore()
    names = [await saved(store, Log([f"log {number}" * 20])) for number in range(LOGS + 1)]
    for name in names:
        await get_value(store, name, NO_TYPES)
    await get_value(store, names[-1], NO_TYPES)
    assert store.reads == LOGS + 1
    await get_value(store, names[0], NO_TYPES)
    assert store.reads == LOGS + 2


def test_bytes_are_bounded_too() -> None:
    shelf = shelf_of(MemoryStore())
    large, small, empty = Log(["large"]), Log(["small"]), Log[Any]()
    shelf.keep(NO_TYPES, large, BYTES + 1)
    assert shelf.find(NO_TYPES, large.root, 1) is None
    shelf.keep(NO_TYPES, large, BYTES)
    assert shelf.find(NO_TYPES, large.root, 1) == large
    shelf.keep(NO_TYPES, empty, 0)
    shelf.keep(NO_TYPES, small, 1)
    assert shelf.find(NO_TYPES, large.root, 1) is None
    assert shelf.find(NO_TYPES, small.root, 1) == small
    assert shelf.find(NO_TYPES, EMPTY_ROOT, 1) is None
    assert shelf.find(NO_TYPES, small.root, 0) is None


async def test_a_log_of_changeable_elements_hands_out_copies_after_loading() -> None:
    store = MemoryStore()
    name = await saved(store, Log([{"a": [1]}, ("x", 2), {3}, "text", One(1)]))
    read = await get_value(store, name, Types([One]))
    read[0]["a"].append(2)
    read[2].add(4)
    assert same(list(read), [{"a": [1]}, ("x", 2), {3}, "text", One(1)])
    assert read[1] is read[1]
    assert read[4] is read[4]
    assert read[0] is not read[0]


def test_the_beginning_of_a_log_ends_at_its_end() -> None:
    log = Log([1, 2, 3])
    assert [list(log.first(n)) for n in range(4)] == [[], [1], [1, 2], [1, 2, 3]]
    for wrong in (-1, 4):
        with pytest.raises(IndexError):
            log.first(wrong)
