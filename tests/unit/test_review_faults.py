"""Faults that a reading found, each with its schedule: cancellations, gaps and answers at unlucky moments."""

import asyncio
import time

import pytest

from effects import Idempotency, Performed, effect, handler
from savepoint import Cell, MemoryStore, Registry, RunStatus, Usage, World, resumable, run_program, savepoint
from savepoint._questions import open_questions
from savepoint._run_result import get_run

LOG: list[str] = []
SEATS = Cell("review/seats", int, default=0)
SLOW = asyncio.Event


@pytest.fixture(autouse=True)
def _fresh() -> None:
    LOG.clear()


@effect("review/send", idempotency=Idempotency.ONCE)
async def send(what: str) -> str:
    LOG.append(what)
    if what == "lost":
        raise TimeoutError
    return what


@effect("review/probed", idempotency=Idempotency.ONCE)
async def probed(what: str) -> str:
    LOG.append(what)
    await asyncio.Event().wait()
    return what


PROBING: list[asyncio.Event] = []


@probed.probe
async def _found(call):
    return Performed("found")


@send.probe
async def _never(call):
    PROBING.append(asyncio.Event())
    await asyncio.Event().wait()


@effect("review/undeclared")
async def undeclared(question: str) -> str:
    raise AssertionError("the handler answers")


async def run(program, *effects, **more):
    store = MemoryStore()
    registry = Registry([program.resumable], effects=effects)
    return store, await run_program(program, store=store, run_id="r", registry=registry, **more)


@resumable("review/probe-cancelled")
async def probe_cancelled(world) -> str:
    try:
        async with asyncio.timeout(0.05):
            await send("lost")
    except TimeoutError:
        pass
    await savepoint("on", resume=probe_cancelled.at())
    return "went on"


async def test_a_doubt_outlives_the_caller_that_gave_up_on_its_probe():
    store, result = await run(probe_cancelled.at(), send)
    assert result.status is RunStatus.WAITING
    record = await get_run(store, "r")
    assert [each.effect for each in await open_questions(store, record.lineage, Registry().types)] == ["review/send"]
    assert LOG == ["lost"]


@resumable("review/cancelled-call")
async def cancelled_call(world) -> str:
    try:
        async with asyncio.timeout(0.02):
            await probed("a")
    except TimeoutError:
        LOG.append("told")
    return "done"


async def test_a_cancelled_call_that_a_probe_knows_is_recorded_and_its_caller_is_told():
    _, result = await run(cancelled_call.at(), probed)
    assert (result.status, result.value) == (RunStatus.COMPLETED, "done")
    assert LOG == ["a", "told"]


@resumable("review/asks")
async def asks(world, step: int) -> str:
    async def person(question: str) -> str:
        LOG.append(question)
        return f"answer {len(LOG)}"

    with handler(undeclared, person):
        said = await undeclared("colour?")
    if step == 0:
        raise asyncio.CancelledError
    return said


async def test_what_a_handler_answers_to_an_undeclared_effect_is_recorded_like_any_answer():
    store = MemoryStore()
    registry = Registry([asks], effects=[undeclared])
    with pytest.raises(asyncio.CancelledError):
        await run_program(asks.at(0), store=store, run_id="r", registry=registry)
    with pytest.raises(asyncio.CancelledError):
        await run_program(asks.at(0), store=store, run_id="r", registry=registry)
    assert LOG == ["colour?"]


@effect("review/book", idempotency=Idempotency.ONCE, writes_world=True)
async def book() -> None:
    WORLDS[-1][SEATS] = 1


WORLDS: list[World] = []


@resumable("review/books")
async def books(world) -> None:
    WORLDS.append(world)
    await book()


async def test_a_cell_is_not_set_inside_a_body_because_a_reused_receipt_would_lose_it():
    _, result = await run(books.at(), book)
    assert result.status is RunStatus.FAILED
    assert result.error is not None
    assert result.error.kind in {"Usage", "CallFailed"}
    with pytest.raises(Usage):
        raise Usage(result.error.message)


@effect("review/look", idempotency=Idempotency.READ)
async def look(number: int) -> int:
    return number


@resumable("review/long-step")
async def long_step(world, count: int, stop: bool) -> int:
    total = 0
    for number in range(count):
        total += await look(number)
        if number % 5 == 0:
            await send(f"ok {number}")
    if STOPPING:
        raise asyncio.CancelledError
    return total


STOPPING: list[bool] = []


async def test_a_redo_costs_no_more_than_in_proportion_to_its_calls():
    took: dict[int, float] = {}
    for count in (300, 1200):
        store, registry = MemoryStore(), Registry([long_step], effects=[look, send])
        STOPPING.append(True)
        with pytest.raises(asyncio.CancelledError):
            await run_program(long_step.at(count, stop=False), store=store, run_id="r", registry=registry)
        STOPPING.clear()
        since = time.process_time()
        result = await run_program(long_step.at(count, stop=False), store=store, run_id="r", registry=registry)
        took[count] = time.process_time() - since
        assert result.value == sum(range(count))
    assert took[1200] < 4 * took[300] * 2.5
