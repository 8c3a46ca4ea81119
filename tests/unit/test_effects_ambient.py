"""The clock and randomness, real and faked."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from effects import Idempotency, monotonic, now, random_bytes, sleep, uuid
from effects.testing import ManualClock, PlainLayer, seeded

START = datetime(2030, 5, 17, tzinfo=UTC)


async def test_the_real_ones_have_their_shapes():
    assert (await now()).tzinfo is UTC
    assert await monotonic() <= await monotonic()
    assert (await uuid()).version == 4
    assert await uuid() != await uuid()
    assert len(await random_bytes(5)) == 5
    assert await sleep(0) is None


def test_all_are_reads():
    assert {each.idempotency for each in (now, monotonic, uuid, random_bytes, sleep)} == {Idempotency.READ}


async def test_a_manual_clock_moves_by_hand_and_by_sleeping():
    clock = ManualClock(START)
    with clock.installed():
        assert (await now(), await monotonic()) == (START, 0.0)
        clock.advance(1.5)
        await sleep(3600)
        assert (await now(), await monotonic()) == (START + timedelta(seconds=3601.5), 3601.5)
        await sleep(-1)
        assert await monotonic() == 3601.5
    assert await now() != START


def test_a_manual_clock_does_not_go_back():
    with pytest.raises(ValueError, match="cannot go back"):
        ManualClock().advance(-1)


async def test_sleeping_on_a_manual_clock_lets_other_tasks_run():
    ran: list[str] = []

    async def other() -> None:
        ran.append("other")

    with ManualClock().installed():
        task = asyncio.create_task(other())
        await sleep(1)
        assert ran == ["other"]
        await task


async def test_seeded_randomness_repeats():
    async def draw() -> tuple[object, ...]:
        with seeded(7):
            return await uuid(), await random_bytes(4), await uuid()

    first = await draw()
    assert first == await draw()
    assert first[0] != first[2]
    with seeded(8):
        assert await uuid() != first[0]


async def test_a_faked_clock_never_reaches_the_layer_as_a_body():
    layer = PlainLayer()
    with layer.installed():
        with ManualClock().installed():
            await now()
        assert layer.calls == []
        await now()
    assert [call.name for call in layer.calls] == ["ambient/now"]
