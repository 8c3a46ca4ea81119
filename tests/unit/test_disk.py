"""What a run takes: its rows and the objects that they name, each once, whoever shares them; nothing else is read."""

from typing import Any

import pytest

from effects import Idempotency, effect
from savepoint import (
    Cell,
    Log,
    MemoryStore,
    Registry,
    RunStatus,
    World,
    fork_program,
    resumable,
    run_program,
    savepoint,
)
from savepoint._disk import disk_of
from savepoint._run import RunRecord
from savepoint._run_result import get_run

ENTRIES: Cell[Log[Any]] = Cell("entries", Log, default=Log())
LONG = "x" * 2000


@effect("disk/read", idempotency=Idempotency.READ)
async def read(number: int) -> str:
    return f"{number}: {LONG}"


@resumable("disk/work")
async def work(world: World, step: int, end: int) -> int:
    while step < end:
        world[ENTRIES] = world[ENTRIES].extend([await read(step), Log([step, Log([LONG[:step]])])])
        step += 1
        await savepoint("disk/step", key=step, resume=work.at(step, end), state=[ENTRIES])
    return step


REGISTRY = Registry([work])


async def done(store: MemoryStore, end: int, **options: Any) -> RunRecord:
    result = await run_program(work.at(0, end), store=store, run_id="r", registry=REGISTRY, **options)
    assert (result.status, result.value) == (RunStatus.COMPLETED, end)
    return await get_run(store, "r")


def stored(store: MemoryStore) -> tuple[int, int]:
    return len(store._objects), sum(len(name) + len(body) for name, (_, body) in store._objects.items())


async def test_it_names_every_object_of_a_store_with_one_run():
    store = MemoryStore()
    disk = await disk_of(store, await done(store, 7))
    assert (disk.objects, disk.object_bytes) == stored(store)
    assert disk.rows == len(store._rows)
    assert disk.bytes == disk.row_bytes + disk.object_bytes


async def test_a_fork_counts_what_it_shares_and_a_restart_its_past():
    store = MemoryStore()
    alone = await disk_of(store, await done(store, 4))
    await fork_program("r", store=store, registry=REGISTRY, at=2, fork_id="f", enter=False)
    fork = await disk_of(store, await get_run(store, "f"))
    assert fork.object_bytes >= 2 * len(LONG), "the transcript up to there, though it wrote none of it"
    assert await disk_of(store, await get_run(store, "r")) == alone, "another run is not counted"
    again = await disk_of(store, await done(store, 4, if_run_exists="restart"))
    assert again.rows == 2 * alone.rows
    assert again.object_bytes < 2 * alone.object_bytes, "what both lineages name counts once"


@pytest.mark.parametrize("left", [0, 1, 5])
async def test_what_is_missing_counts_as_nothing(left: int):
    store = MemoryStore()
    record = await done(store, 7)
    whole = await disk_of(store, record)
    for name in list(store._objects)[left:]:
        del store._objects[name]
    found = await disk_of(store, record)
    assert found.rows == whole.rows
    assert found.objects <= left
