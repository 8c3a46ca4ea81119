"""Laws 1 and 2: without a handler a savepoint is not there; resuming is the rest of the program from its state."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from savepoint import Cell, Log, MemoryStore, Point, Registry, World, at_savepoint, hydrate, resumable, same, savepoint
from savepoint._point import using_world
from savepoint._strategies import values

SEEN: Cell[Log[Any]] = Cell("seen", Log, default=Log())
LAST = Cell("last", object, default=None)


@resumable("law/walk")
async def walk(world: World, items: list[Any], place: int, saves: frozenset[int]) -> list[Any]:
    while place < len(items):
        world[SEEN] = world[SEEN].append([place, items[place]])
        world[LAST] = items[place]
        place += 1
        if place in saves:
            await savepoint("item", key=place, resume=walk.at(items, place, saves), state=[SEEN, LAST])
    return [list(world[SEEN]), world[LAST]]


ITEMS = st.lists(values(), max_size=5)
SAVES = st.frozensets(st.integers(1, 5))


async def run(items: list[Any], saves: frozenset[int]) -> list[Any]:
    world = World()
    with using_world(world):
        return await walk.function(world, items, 0, saves)


@settings(max_examples=50)
@given(ITEMS, SAVES)
async def test_law_1_identity_of_a_program_with_savepoints_and_the_one_without_them(items: Any, saves: Any) -> None:
    assert same(await run(items, saves), await run(items, frozenset()))


@settings(max_examples=50)
@given(ITEMS, SAVES)
async def test_law_2_continuation_from_every_savepoint_is_the_rest_of_the_program(items: Any, saves: Any) -> None:
    store, ids = MemoryStore(), list[bytes]()

    async def persist(point: Point) -> None:
        if point.end is None:
            ids.append(await point.persist(store))

    with at_savepoint(persist):
        whole = await run(items, saves)
    assert len(ids) == len([place for place in saves if place <= len(items)])
    for point in ids:
        async with hydrate(point, store=store, registry=Registry([walk])) as revived:
            assert same(await revived.enter(), whole)
