"""Law 5: persist, move to a fresh interpreter, hydrate and enter is forking and entering in the same process.

This file is the program of the other interpreter too: `python test_law_portability.py STORE ID...`.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attrs import frozen

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


async def test_another_interpreter_goes_on_as_a_fork_in_this_one_does(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host/kept").write_bytes(bytes(range(256)))
    here: list[tuple[bytes, list[Any]]] = []
    async with open_store(tmp_path / "store") as store:

        async def both(point: Point) -> None:
            async with point.fork(store=store) as continuation:
                here.append((await point.persist(store), await continuation.enter(value="x")))

        for content in contents():
            world = World({"files": Workspace(tmp_path / "host"), "kv": KeyValue({"k": [1, {"z": 1, "a": 2}]})})
            world[STATE] = content
            world[LOG] = Log(content)
            with using_world(world), at_savepoint(both, name="gap"):
                await savepoint("gap", key=content[0], resume=elsewhere.at(content), state=[STATE, LOG])
        for point, result in here:
            assert same(await entered(store, point), result)
    for seed in ("0", "1", "random"):
        printed = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, __file__, str(tmp_path / "store"), *(point.hex() for point, _ in here)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert printed.stdout.split() == [digest(result).hex() for _, result in here], printed.stderr
    assert [path.name for path in (tmp_path / "host").iterdir()] == ["kept"]


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
