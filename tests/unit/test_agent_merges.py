"""Worlds of nested runs are merged in reply order, whoever ends first, and none waits for ever."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import Agent, Context, as_tool, run, tool
from agent._merges import Merges, in_turn, present_place
from agent._scripted import ScriptedModel, call, calls, say
from effects import Idempotency
from savepoint import Workspace, World, open_store

Calls = list[tuple[int, int, bool]]
"""Of each call: how long it works (passes of the event loop), how often it merges, whether it fails at the end."""


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.booleans()), min_size=1, max_size=6))
def test_calls_merge_in_reply_order_and_after_all_work(each: Calls) -> None:
    merged: list[int] = []
    working = set(range(len(each)))
    beside = 0

    async def one(merges: Merges, place: int, passes: int, times: int, *, fails: bool) -> None:
        nonlocal beside
        with merges.call(place):
            for _ in range(passes):
                await asyncio.sleep(0)
            working.discard(place)
            for _ in range(times):
                async with in_turn(present_place()):
                    beside += 1
                    assert (beside, working) == (1, set())
                    await asyncio.sleep(0)
                    merged.append(place)
                    beside -= 1
            if fails:
                raise LookupError

    async def all_of_them() -> None:
        merges = Merges(range(len(each)))
        made = [one(merges, place, *how[:2], fails=how[2]) for place, how in enumerate(each)]
        async with asyncio.timeout(5):
            await asyncio.gather(*made, return_exceptions=True)

    asyncio.run(all_of_them())
    first = [place for number, place in enumerate(merged) if place not in merged[:number]]
    assert first == [place for place, (_, times, _) in enumerate(each) if times]
    assert len(merged) == sum(times for _, times, _ in each)


def test_who_is_cancelled_while_it_waits_holds_nobody_up() -> None:
    async def merge(merges: Merges, place: int) -> int:
        with merges.call(place):
            async with in_turn(present_place()):
                return place

    async def waits(merges: Merges) -> list[int]:
        first, last = (asyncio.create_task(merge(merges, place)) for place in (0, 2))
        await asyncio.sleep(0)
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        async with asyncio.timeout(5):
            return [await merge(merges, 1), await last]

    assert asyncio.run(waits(Merges(range(3)))) == [1, 2]


@tool(idempotency=Idempotency.CONTAINED)
async def write(context: Context[object], text: str) -> None:
    """Says in a file who was here."""
    files = context.world.system("files")
    assert isinstance(files, Workspace)
    (files.path / "who.txt").write_text(text)


@tool(idempotency=Idempotency.READ)
async def wait(passes: int) -> None:
    """Works for a while."""
    for _ in range(passes):
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("slow", [0, 1])
def test_two_that_wrote_one_file_conflict_in_reply_order(slow: int, tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    turns = [calls(call("a", input="go"), call("b", input="go")), say("done")]
    inner = [
        as_tool(
            Agent(
                name=name,
                model=ScriptedModel([call("write", text=name), call("wait", passes=50 * (slow == place)), say(name)]),
                tools=(write, wait),
            )
        )
        for place, name in enumerate("ab")
    ]

    async def ran() -> list[object]:
        async with open_store(tmp_path / "store") as store:
            world = World({"files": Workspace(tmp_path / "host")})
            outer = Agent(name="outer", model=ScriptedModel(turns), tools=inner)
            return list((await run(outer, "go", store=store, world=world)).transcript)

    first, second = asyncio.run(ran())[2:4]
    assert first == "a"
    assert "MergeConflict" in repr(second)
    assert "who.txt" in repr(second)
