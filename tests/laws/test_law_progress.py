"""Law 10: a savepoint that cannot be persisted costs resumability, never progress, and says so."""

import re
import socket
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effects import Idempotency, effect
from savepoint import (
    Cell,
    KeyValue,
    MemoryStore,
    NotPortable,
    NotWritable,
    Registry,
    RunStatus,
    World,
    resumable,
    resume_program,
    run_program,
    savepoint,
)
from savepoint._errors import Stopped
from savepoint._events import read_head
from savepoint._run_result import get_run
from savepoint._store import Space
from savepoint._unit import Unit

BAG = Cell("bag", dict, default={})
sent: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    sent.clear()


@effect("progress/send", idempotency=Idempotency.ONCE)
async def send(n: int) -> int:
    sent.append(n)
    return n


Gap = Callable[[World, int], dict[str, Any]]
"""What the second of three savepoints is published with."""


def in_state(thing: object) -> Gap:
    def gap(world: World, step: int) -> dict[str, Any]:
        world[BAG]["deep"] = [{"thing": thing}]  # in place: an assignment would refuse it already
        return {"resume": walk.at(step), "state": [BAG]}

    return gap


GAPS: dict[str, tuple[Gap, str]] = {
    "socket": (in_state(socket.socket), r"state\.bag\.deep\[0\]\.thing: "),
    "defaultdict": (in_state(defaultdict(list)), r"state\.bag\.deep\[0\]\.thing: "),
    "key": (lambda world, step: {"resume": walk.at(step), "key": object()}, "key: "),
    "argument": (lambda world, step: {"resume": walk.at(step, {1: object()})}, r"arguments\.extra\[1\]: "),
    "no resume function": (lambda world, step: {}, "the savepoint 'step' names no resume function"),
}


class Told:
    """What the program of one test is told; no part of it is portable, which is the point."""

    gap: Gap
    stop_after = 9


@resumable("progress/walk")
async def walk(world: World, step: int, extra: Any = None) -> list[int]:
    while step < 3:
        await send(step)
        step += 1
        published: dict[str, Any] = Told.gap(world, step) if step == 2 else {"resume": walk.at(step), "state": [BAG]}
        await savepoint("step", **published)
        world[BAG].pop("deep", None)
        if step == Told.stop_after:
            raise Stopped(OSError("the model is away"))
    return [0, 1, 2]


@pytest.mark.parametrize(("gap", "why"), GAPS.values(), ids=GAPS.keys())
@pytest.mark.parametrize("stop_after", [9, 2])
async def test_a_savepoint_that_is_refused_costs_only_the_place_to_resume_from(
    gap: Gap, why: str, stop_after: int
) -> None:
    store = MemoryStore()
    Told.gap, Told.stop_after = gap, stop_after
    result = await run_program(walk.at(0), store=store, run_id="r")
    (warning,) = result.warnings
    assert re.fullmatch(f"no savepoint at step 2: {why}.*", warning)
    if stop_after == 2:
        assert (result.status, result.step) == (RunStatus.INTERRUPTED, 2)
        Told.stop_after = 9
        result = await resume_program("r", store=store, registry=Registry([walk], effects=[send]))
        assert (await get_run(store, "r")).resumed_from == 1
    assert (result.status, result.value, result.step) == (RunStatus.COMPLETED, [0, 1, 2], 3)
    assert sent == [0, 1, 2], "what was done before the refused savepoint was done again"


async def test_what_cannot_enter_a_cell_is_refused_with_its_path_where_it_is_set() -> None:
    world = World()
    with pytest.raises(NotPortable, match=r"bag\.x\[1\]: defaultdict"):
        world[BAG] = {"x": [1, defaultdict(list)]}
    assert world[BAG] == {}


class Faulty(MemoryStore):
    """Refuses the units of work that `refuses` names, as a full or read-only disk does: nothing of them is applied."""

    def __init__(self, refuses: Callable[[Unit], bool]) -> None:
        super().__init__()
        self.refuses = refuses

    async def _apply(self, unit: Unit) -> None:
        if self.refuses(unit):
            raise NotWritable("the disk is full", next="make room")
        await super()._apply(unit)


def at_gap(step: int) -> Callable[[Unit], bool]:
    """The commits that hold the savepoint of this step."""

    def refuses(unit: Unit) -> bool:
        return any(space == Space.POINT and key[-8:] == step.to_bytes(8, "big") for space, key in unit.rows)

    return refuses


# -- any of the savepoints, for any of these reasons ---------------------------------------------------------------

FULL = "the disk is full"
STEPS = 5


class Drawn:
    """What the program of one example is told."""

    refused: Mapping[int, str]
    """step -> a name of `GAPS`, or `FULL`"""
    stop_after = 0


@resumable("progress/drawn")
async def drawn(world: World, step: int, extra: Any = None) -> list[int]:
    while step < STEPS:
        await send(step)
        step += 1
        why = Drawn.refused.get(step, FULL)
        rest = {"resume": drawn.at(step), "state": [BAG]}
        published = rest if why == FULL else {**GAPS[why][0](world, step), **_own(why, step)}
        await savepoint("step", **published)
        world[BAG].pop("deep", None)
        if step == Drawn.stop_after:
            raise Stopped(OSError("the model is away"))
    return list(range(STEPS))


def _own(why: str, step: int) -> dict[str, Any]:
    """`GAPS` names the other program: the same thing said of this one."""
    if why == "no resume function":
        return {}
    return {"resume": drawn.at(step, {1: object()}) if why == "argument" else drawn.at(step)}


@settings(max_examples=50)
@given(
    refused=st.dictionaries(st.integers(1, STEPS), st.sampled_from([*GAPS, FULL]), max_size=STEPS),
    stop_after=st.integers(0, STEPS),
)
async def test_law_10_progress_whichever_savepoints_cannot_be_persisted(refused: Any, stop_after: int) -> None:
    sent.clear()
    Drawn.refused, Drawn.stop_after = refused, stop_after
    full = [at_gap(step) for step, why in refused.items() if why == FULL]
    store = Faulty(lambda unit: any(each(unit) for each in full))
    result = await run_program(drawn.at(0), store=store, run_id="r")
    reached = range(1, (stop_after or STEPS) + 1)
    assert len(result.warnings) == len([step for step in reached if step in refused])
    for step, warning in zip(sorted(set(reached) & set(refused)), result.warnings, strict=True):
        why = GAPS[refused[step]][1] if refused[step] in GAPS else FULL
        assert re.fullmatch(f"no savepoint at step {step}: {why}.*", warning)
    if stop_after:
        assert (result.status, result.step) == (RunStatus.INTERRUPTED, stop_after)
        Drawn.stop_after = 0
        result = await resume_program("r", store=store, registry=Registry([drawn], effects=[send]))
        good = [step for step in range(stop_after + 1) if step not in refused]
        assert (await get_run(store, "r")).resumed_from == good[-1]
    assert (result.status, result.value, result.step) == (RunStatus.COMPLETED, list(range(STEPS)), STEPS)
    assert sent == list(range(STEPS)), "what was done before a refused savepoint was done again"


@pytest.mark.parametrize("step", [1, 2, 3])
async def test_a_store_that_is_full_at_a_gap_does_not_stop_the_run(step: int) -> None:
    Told.gap, Told.stop_after = in_state(1), 9
    store = Faulty(at_gap(step))
    world = World({"kv": KeyValue({})})
    result = await run_program(walk.at(0), store=store, run_id="r", world=world)
    assert (result.status, result.value, result.step) == (RunStatus.COMPLETED, [0, 1, 2], 3)
    assert list(result.warnings) == [f"no savepoint at step {step}: the disk is full"]
    head = await store.read(Space.HEAD, (await get_run(store, "r")).lineage)
    assert head is not None
    assert read_head(head).step == 3, "the refused savepoint was not counted"


async def test_a_store_that_stays_read_only_stops_the_run_before_anything_else_is_done_outside() -> None:
    Told.gap, Told.stop_after = in_state(1), 9
    full = [False]
    store = Faulty(lambda unit: full[0])

    @resumable("progress/fills")
    async def fills(world: World) -> list[int]:
        await send(0)
        full[0] = "r" not in resumed
        await savepoint("step", resume=walk.at(1), state=[BAG])
        return [0, await send(1)]

    resumed: set[str] = set()
    with pytest.raises(NotWritable, match="the disk is full"):
        await run_program(fills.at(), store=store, run_id="r")
    assert sent == [0], "an effect was started whose intent could not be made durable"
    full[0] = False
    resumed.add("r")
    async with store.commit() as tx:  # the process is gone, and with it its lock
        tx.delete(Space.LEASE, b"r")
    again = await resume_program("r", store=store, registry=Registry([fills, walk], effects=[send]))
    assert (again.status, again.value) == (RunStatus.COMPLETED, [0, 1])
    assert sent == [0, 1]
