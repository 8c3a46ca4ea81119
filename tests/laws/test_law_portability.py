"""Law 5: persist, move to a fresh interpreter, hydrate and enter is forking and entering in the same process.

This file is the program of the other interpreter too: `python test_law_portability.py STORE ID...`.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import frozen
from hypothesis import example, given
from hypothesis import strategies as st
from law_kills import few

from savepoint import (
    Cell,
    KeyValue,
    Log,
    MemoryStore,
    Point,
    Registry,
    Types,
    Workspace,
    World,
    at_savepoint,
    digest,
    hydrate,
    open_store,
    portable,
    resumable,
    same,
    savepoint,
    using_world,
)
from savepoint._strategies import values


@portable("law/ticket")
@frozen
class Ticket:
    number: int
    tags: frozenset[str]


STATE: Cell[Any] = Cell("state", object, default=None)
LOG: Cell[Log[Any]] = Cell("log", Log, default=Log())


@resumable("law/elsewhere")
async def elsewhere(world: World, argument: Any, value: str = "") -> list[Any]:
    """Looks at all that it was given; the order of sets and dicts shows in the text."""
    world[LOG] = world[LOG].append(value)
    files, kv = world.system("files"), world.system("kv")
    assert isinstance(files, Workspace)
    assert isinstance(kv, KeyValue)
    (files.path / "new").write_text(value)
    tree = {path.name: path.read_bytes() for path in sorted(files.path.iterdir())}
    ordered = [list(each) for each in world[STATE] if isinstance(each, dict)]
    return [argument, world[STATE], list(world[LOG]), dict(kv.items()), tree, ordered]


REGISTRY = Registry([elsewhere], types=Types([Ticket]))


async def entered(store: Any, point: bytes) -> list[Any]:
    host = World({"files": Workspace(store.place.parent / "host"), "kv": KeyValue({})})
    async with hydrate(point, store=store, host=host, registry=REGISTRY) as revived:
        return await revived.enter(value="x")


async def main(place: str, points: Iterable[str]) -> None:
    async with open_store(Path(place), create=False) as store:
        for point in points:
            sys.stdout.write(digest(await entered(store, bytes.fromhex(point))).hex() + "\n")


def contents() -> list[Any]:
    """States whose order, type or identity a careless codec loses."""
    words = [f"word {n}" for n in range(10)]
    return [
        [set(words), frozenset(words), {word: n for n, word in enumerate(words)}],
        [{word: n for n, word in reversed([*enumerate(words)])}, {1: "i", "1": "s", None: "n", 2.5: "f", "2.5": "g"}],
        [Ticket(7, frozenset(words)), {(1, 2): {(3,): {Ticket(1, frozenset())}}}],
        [{(1, 2), (3, 4)}, b"\x00\xff", (1, [2, (3,)]), -0.0, 1 << 100, {"a": {"b": ()}}],
    ]


TICKETS = st.builds(Ticket, number=st.integers(), tags=st.frozensets(st.text(max_size=5), max_size=5))
CONTENT = st.lists(values(TICKETS, extra_keys=TICKETS), max_size=4)


@example(here=contents(), seed=0)
@few(5)
@given(here=st.lists(CONTENT, min_size=1, max_size=4), seed=st.integers(0, 2**32 - 1))
async def test_law_5_portability_to_a_fresh_interpreter_with_another_order_of_hashes(here: Any, seed: int) -> None:
    with TemporaryDirectory() as place:
        await _equal_elsewhere(Path(place), here, str(seed))


async def _equal_elsewhere(place: Path, here: Any, seed: str) -> None:
    (place / "host").mkdir()
    (place / "host/kept").write_bytes(bytes(range(256)))
    found: list[tuple[bytes, list[Any]]] = []
    async with open_store(place / "store", durability="process") as store:

        async def both(point: Point) -> None:
            async with point.fork(store=store) as continuation:
                found.append((await point.persist(store), await continuation.enter(value="x")))

        for content in here:
            world = World({"files": Workspace(place / "host"), "kv": KeyValue({"k": [1, {"z": 1, "a": 2}]})})
            world[STATE] = content
            world[LOG] = Log(content)
            with using_world(world), at_savepoint(both, name="gap"):
                await savepoint("gap", key=content[:1], resume=elsewhere.at(content), state=[STATE, LOG])
        for point, result in found:
            assert same(await entered(store, point), result)
    printed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, __file__, str(place / "store"), *(point.hex() for point, _ in found)],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert printed.stdout.split() == [digest(result).hex() for _, result in found], printed.stderr
    assert [path.name for path in (place / "host").iterdir()] == ["kept"]


async def test_the_id_does_not_depend_on_the_store_or_the_order_of_insertion() -> None:
    ids: list[bytes] = []
    words = contents()[0][0]

    async def persist(point: Point) -> None:
        ids.append(await point.persist(MemoryStore()))

    for order in (sorted(words), sorted(words, reverse=True)):
        with at_savepoint(persist):
            await savepoint("gap", key=dict.fromkeys(order), resume=elsewhere.at(set(order)))
    assert ids[0] == ids[1]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
