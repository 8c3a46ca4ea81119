"""Laws 3 and 4: continuations see none of each other's writes, and a publication is consumed at most once.

Races of several processes for one run are in `tests/unit/test_run_transitions.py` and in the crash suite.
"""

from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from savepoint import (
    Cell,
    KeyValue,
    MemoryStore,
    Point,
    Registry,
    Workspace,
    World,
    at_savepoint,
    hydrate,
    resumable,
    savepoint,
    using_world,
)

NESTED = Cell("nested", dict, default={})
WRITE = st.tuples(st.sampled_from(["cell", "inside", "key", "argument"]), st.sampled_from("abc"), st.integers(0, 9))
WRITES = st.lists(WRITE, max_size=6)


def write(world: World, argument: list[int], what: str, where: str, n: int) -> None:
    match what:
        case "cell":
            world[NESTED] = {**world[NESTED], where: [n]}
        case "inside":
            world[NESTED].setdefault(where, []).append(n)
        case "key":
            world.system("kv")[where] = n  # type: ignore[index]
        case _:
            argument.append(n)


def state(world: World, argument: list[int]) -> list[Any]:
    return [world[NESTED], dict(world.system("kv").items()), argument]  # type: ignore[attr-defined]


@resumable("law/scribble")
async def scribble(world: World, argument: list[int], writes: list[Any] | None = None) -> list[Any]:
    for each in writes or []:
        write(world, argument, *each)
    return state(world, argument)


def host() -> World:
    return World({"kv": KeyValue({"a": 0})})


def expected(before: list[Any], writes: list[Any]) -> list[Any]:
    """What one continuation alone makes of the state at the point."""
    world, argument = host(), list[int]()
    for each in [*before, *writes]:
        write(world, argument, *each)
    return state(world, argument)


@settings(max_examples=50)
@given(WRITES, st.lists(WRITES, min_size=2, max_size=4), WRITES)
async def test_continuations_are_independent_of_each_other_and_of_their_source(
    before: Any, branches: Any, after: Any
) -> None:
    store, source, argument, ids = MemoryStore(), host(), list[int](), list[bytes]()
    forked: list[Any] = []

    async def branch(point: Point) -> None:
        ids.append(await point.persist(store))
        for writes in branches:
            async with point.fork(store=store) as continuation:
                forked.append(await continuation.enter(writes=writes))

    with using_world(source):
        for each in before:
            write(source, argument, *each)
        with at_savepoint(branch, name="gap"):
            await savepoint("gap", resume=scribble.at(argument), state=[NESTED])
        for each in after:
            write(source, argument, *each)
    assert forked == [expected(before, writes) for writes in branches]
    assert state(source, argument) == expected(before, after), "the source saw a write of its forks"
    for writes in branches:  # a content id is never consumed, and what came after it does not show
        other = host()
        async with hydrate(ids[0], store=store, host=other, registry=Registry([scribble])) as revived:
            assert await revived.enter(writes=writes) == expected(before, writes)
        assert state(other, []) == [{}, {"a": 0}, []]


@resumable("law/files")
async def write_file(world: World, name: str = "fork") -> list[str]:
    files = world.system("files")
    assert isinstance(files, Workspace)
    (files.path / name).write_text(name)
    return sorted(path.name for path in files.path.iterdir())


def children(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


async def test_forks_of_a_directory_are_independent(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    source = World({"files": Workspace(tmp_path)})
    store, found = MemoryStore(), list[Any]()

    async def branch(point: Point) -> None:
        for name in "ab":
            async with point.fork(store=store) as continuation:
                found.append(await continuation.enter(name=name))

    with using_world(source), at_savepoint(branch, name="gap"):
        await savepoint("gap", resume=write_file.at())
    assert found == [["a", "kept"], ["b", "kept"]]
    assert children(tmp_path) == ["kept"]
    assert children(store.forks) == [], "a fork was left behind"


async def test_a_publication_is_resumed_or_abandoned_once_and_forked_at_will() -> None:
    store, entered = MemoryStore(), list[str]()

    @resumable("law/once")
    async def once(world: World) -> None:
        entered.append("continuation")

    async def fork_and_go_on(point: Point) -> str:
        for _ in range(3):
            async with point.fork(store=store) as continuation:
                await continuation.enter()
        return "gone on"

    with at_savepoint(fork_and_go_on, name="gap"):
        entered.append(await savepoint("gap", resume=once.at()))
    assert entered == ["continuation"] * 3 + ["gone on"]
