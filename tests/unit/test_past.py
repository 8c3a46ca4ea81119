"""What a resume and a fork start from, read from one row each: damage is stepped over and named, nothing is missed."""

import sqlite3
from pathlib import Path

import pytest

from effects import Idempotency, effect
from savepoint import Registry, World, open_store, resumable, savepoint
from savepoint._errors import Corrupt, Missing
from savepoint._fork_program import fork_program
from savepoint._gap import point_key
from savepoint._inspect import read_receipts
from savepoint._memory import MemoryStore
from savepoint._past import read_standing
from savepoint._program import run_program
from savepoint._run_result import get_run
from savepoint._store import Space
from savepoint._types import Types

STEPS = 4


@effect("past/charge", idempotency=Idempotency.ONCE)
async def charge(amount: int) -> int:
    return amount


@effect("past/look", idempotency=Idempotency.READ)
async def look(number: int) -> int:
    return number


@resumable("past/steps", version=1)
async def steps(world: World, step: int) -> int:
    """Charges in every even step, looks in every odd one."""
    while step < STEPS:
        await (look(step) if step % 2 else charge(step))
        step += 1
        await savepoint("past/step", key={"step": step}, resume=steps.at(step))
    return step


REGISTRY = Registry([steps])


async def finished(store: MemoryStore) -> bytes:
    """A run of `STEPS` steps; its lineage."""
    await run_program(steps.at(0), store=store, run_id="run")
    return (await get_run(store, "run")).lineage


@pytest.mark.parametrize(("at", "repeats"), [(0, True), (1, True), (2, True), (3, False), (4, False), (None, False)])
async def test_a_fork_lists_all_it_may_repeat_wherever_it_starts(at: int | None, repeats: bool) -> None:
    store = MemoryStore()
    await finished(store)
    for number in range(2):  # read, and remembered
        fork = await fork_program("run", store=store, registry=REGISTRY, at=at, fork_id=f"f{number}", enter=False)
        assert fork.may_repeat == (("past/charge",) if repeats else ())


async def test_what_is_remembered_of_a_run_is_not_what_it_was() -> None:
    store = MemoryStore()
    await run_program(steps.at(0), store=store, run_id="source")
    await fork_program("source", store=store, registry=REGISTRY, at=2, fork_id="run", enter=False)
    before = await fork_program("run", store=store, registry=REGISTRY, at=0, fork_id="a", enter=False)
    await run_program(steps.at(0), store=store, run_id="run")
    after = await fork_program("run", store=store, registry=REGISTRY, at=0, fork_id="b", enter=False)
    assert (before.may_repeat, after.may_repeat) == ((), ("past/charge",))


async def test_a_fork_without_its_savepoint_says_which_there_are() -> None:
    store = MemoryStore()
    await finished(store)
    for wrong in (-1, STEPS + 1):
        with pytest.raises(Missing, match=f"no savepoint at step {wrong}") as refused:
            await fork_program("run", store=store, registry=REGISTRY, at=wrong)
        assert refused.value.next == "it has: 0, 1, 2, 3, 4"


async def lose(store: MemoryStore, lineage: bytes, step: int) -> None:
    async with store.commit() as tx:
        tx.delete(Space.POINT, point_key(lineage, step))


async def garble(store: MemoryStore, lineage: bytes, step: int) -> None:
    body, digest = store._rows[Space.POINT.value, point_key(lineage, step)]
    store._rows[Space.POINT.value, point_key(lineage, step)] = body[:-1] + bytes([body[-1] ^ 1]), digest


@pytest.mark.parametrize("harm", [lose, garble])
async def test_the_newest_good_savepoint_is_found_behind_bad_ones(harm) -> None:
    store = MemoryStore()
    lineage = await finished(store)
    good = await read_standing(store, lineage, REGISTRY)
    assert (good.step, good.warnings, good.savepoint.key) == (STEPS, (), {"step": STEPS})
    await harm(store, lineage, STEPS)
    standing = await read_standing(store, lineage, REGISTRY)
    assert (standing.step, standing.savepoint.key, standing.damage) == (STEPS - 1, {"step": STEPS - 1}, "")
    assert len(standing.warnings) == 1
    assert f"savepoint {STEPS} " in standing.warnings[0]
    await harm(store, lineage, STEPS - 1)
    standing = await read_standing(store, lineage, REGISTRY)
    assert standing.step == STEPS - 2
    assert {each.effect for each in standing.past.receipts.values()} == {"past/charge", "past/look"}


async def test_a_run_without_any_good_savepoint_is_corrupt() -> None:
    store = MemoryStore()
    lineage = await finished(store)
    for step in range(STEPS + 1):
        await lose(store, lineage, step)
    with pytest.raises(Corrupt, match="no good savepoint"):
        await read_standing(store, lineage, REGISTRY)


async def test_a_receipt_that_is_not_found_is_never_left_out_of_what_is_shown(tmp_path: Path) -> None:
    """A damaged pointer inside the database hides whole rows, and leaves no bad byte in those that are found."""

    @effect("send", idempotency=Idempotency.ONCE)
    async def send(what: str) -> str:
        return what

    @resumable("past/sends")
    async def sends(world: World) -> str:
        return await send("a") + await send("b")

    async with open_store(tmp_path / "store") as store:
        await run_program(sends.at(), store=store, run_id="run", registry=Registry([sends], effects=[send]))
        assert len(await read_receipts(store, "run", Types())) == 2
    with sqlite3.connect(tmp_path / "store" / "store.db") as db:
        places = [place for (place,) in db.execute("select place from ledger order by place")]
        events = [place for place in places if place.startswith(b"event\0")]
        db.execute("delete from ledger where place=?", (events[2],))
    async with open_store(tmp_path / "store", read_only=True) as store:
        with pytest.raises(Corrupt):
            await read_receipts(store, "run", Types())
