"""A cancellation of the caller ends the attempt cleanly, and is never swallowed."""

import asyncio

import pytest

from effects import Idempotency, effect
from savepoint import MemoryStore, Registry, RunStatus, resumable, run_program
from savepoint._run_result import get_run

ENTERED: list[asyncio.Event] = []


async def _hang() -> None:
    ENTERED[-1].set()
    await asyncio.Event().wait()


@effect("cancel/send", idempotency=Idempotency.ONCE)
async def send() -> None:
    await _hang()


@effect("cancel/look", idempotency=Idempotency.READ)
async def look() -> None:
    await _hang()


@resumable("cancel/program")
async def program(world, once: bool) -> None:
    await (send() if once else look())


@resumable("cancel/beside")
async def beside(world) -> None:
    await asyncio.gather(look(), send())


@pytest.mark.parametrize(
    ("bound", "status"),
    [
        (program.at(once=True), RunStatus.WAITING),
        (program.at(once=False), RunStatus.INTERRUPTED),
        (beside.at(), RunStatus.WAITING),
    ],
    ids=["in a ONCE call", "in a READ call", "in a ONCE call beside a READ call"],
)
async def test_the_run_is_marked_and_the_cancellation_goes_on(bound, status):
    ENTERED.append(asyncio.Event())
    store = MemoryStore()
    registry = Registry([program, beside], effects=[send, look])
    with pytest.raises(TimeoutError):  # noqa: PT012  the timeout is what is tested
        async with asyncio.timeout(None) as clock:
            running = asyncio.ensure_future(ENTERED[-1].wait())
            running.add_done_callback(lambda _: clock.reschedule(0))
            await run_program(bound, store=store, run_id="r", registry=registry)
    assert (await get_run(store, "r")).status is status
