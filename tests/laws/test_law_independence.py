"""Law 3: continuations see none of each other's writes, nor does their source."""

from pathlib import Path
from tempfile import TemporaryDirectory
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
async def test_law_3_independence_of_continuations_and_of_their_source(before: Any, branches: Any, after: Any) -> None:
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


NAMES = st.lists(st.sampled_from(["a", "b", "kept"]), min_size=2, max_size=4)


@settings(max_examples=20)
@given(NAMES)
async def test_law_3_independence_of_forks_of_a_directory(names: Any) -> None:
    store, found = MemoryStore(), list[Any]()

    async def branch(point: Point) -> None:
        for name in names:
            async with point.fork(store=store) as continuation:
                found.append(await continuation.enter(name=name))

    with TemporaryDirectory() as place:
        host = Path(place)
        (host / "kept").write_text("the host's")
        with using_world(World({"files": Workspace(host)})), at_savepoint(branch, name="gap"):
            await savepoint("gap", resume=write_file.at())
        assert children(host) == ["kept"]
        assert (host / "kept").read_text() == "the host's"
    assert found == [sorted({"kept", name}) for name in names]
    assert children(store.forks) == [], "a fork was left behind"
