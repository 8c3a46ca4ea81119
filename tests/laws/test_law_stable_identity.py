"""Law 9: the same content has the same id everywhere, whatever ran it; any change of content changes it."""

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from savepoint import (
    CURRENT_RUN,
    Cell,
    KeyValue,
    MemoryStore,
    Point,
    Registry,
    World,
    at_savepoint,
    hydrate,
    resumable,
    run_program,
    same,
    savepoint,
    using_world,
)
from savepoint._events import read_mark
from savepoint._run_result import get_run
from savepoint._store import Space
from savepoint._strategies import values

HELD = Cell("held", object, default=None)


@resumable("law/again")
async def again(world: World, argument: Any, name: str, key: Any) -> None:
    """Publishes the point that it was resumed from."""
    await savepoint(name, key=key, resume=again.at(argument, name, key), state=[HELD])


@resumable("law/again", version=2)
async def newer(world: World, argument: Any, name: str, key: Any) -> None: ...


@resumable("law/other")
async def other(world: World, argument: Any, name: str, key: Any) -> None: ...


class Persist:
    """A handler that persists every point."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.ids: list[bytes] = []

    async def __call__(self, point: Point) -> None:
        if point.end is None:
            self.ids.append(await point.persist(self.store))


async def id_of(
    argument: Any = 1, name: str = "gap", key: Any = None, held: Any = 2, kv: Any = 3, resume: Any = again
) -> bytes:
    persist = Persist(MemoryStore())
    world = World({"kv": KeyValue({"k": kv})})
    world[HELD] = held
    with using_world(world), at_savepoint(persist):
        await savepoint(name, key=key, resume=resume.at(argument, name, key), state=[HELD])
    return persist.ids[0]


@settings(max_examples=50)
@given(values(), values(), values())
async def test_law_9_identity_is_a_fixed_point_of_hydrating_and_persisting(argument: Any, key: Any, held: Any) -> None:
    persist = Persist(MemoryStore())
    world = World({"kv": KeyValue({"k": 1})})
    world[HELD] = held
    with using_world(world), at_savepoint(persist):
        await again.function(world, argument, "gap", key)
        for _ in range(2):
            host = World({"kv": KeyValue({})})
            async with hydrate(persist.ids[-1], store=persist.store, host=host, registry=Registry([again])) as revived:
                await revived.enter()
    assert len(persist.ids) == 3
    assert len(set(persist.ids)) == 1


@settings(max_examples=50)
@given(values(), values(), st.sampled_from(["argument", "key", "held"]))
async def test_law_9_identity_is_another_one_for_another_value_anywhere(one: Any, two: Any, where: str) -> None:
    assert await id_of(**{where: one}) == await id_of(**{where: one})
    assume(not same(one, two))
    assert await id_of(**{where: one}) != await id_of(**{where: two})


async def test_every_part_that_is_content_counts() -> None:
    ids = [
        await id_of(),
        await id_of(argument=True),
        await id_of(name="gap "),
        await id_of(key="k"),
        await id_of(held=2.0),
        await id_of(kv=4),
        await id_of(resume=newer),
        await id_of(resume=other),
    ]
    assert len(set(ids)) == len(ids)


@resumable("law/two-steps")
async def two_steps(world: World, run: Any, step: int) -> str:
    while step < 2:
        world[HELD] = [step]
        step += 1
        await savepoint("step", key=step, resume=two_steps.at(CURRENT_RUN, step), state=[HELD])
    return run


async def test_the_run_its_lineage_its_attempts_and_the_time_do_not_count() -> None:
    store, seen = MemoryStore(), list[list[bytes]]()
    for run_id in ("first", "second"):
        result = await run_program(two_steps.at(CURRENT_RUN, 0), store=store, run_id=run_id)
        assert result.value == run_id
        lineage = (await get_run(store, run_id)).lineage
        seen.append([read_mark(row).point for row in await store.scan(Space.POINT, lineage)])
    assert len(seen[0]) == 3
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 3
