"""Law 4: a publication goes on or is abandoned at most once and is forked at will; what it is stored as is never used up."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from attrs import define, field
from hypothesis import example, given, settings
from hypothesis import strategies as st
from law_kills import Kills, few

from savepoint import (
    Abandon,
    Cell,
    Held,
    MemoryStore,
    Point,
    Registry,
    Usage,
    World,
    at_savepoint,
    hydrate,
    open_store,
    resumable,
    resume_program,
    run_program,
    savepoint,
    using_world,
)
from savepoint._errors import Stopped
from savepoint._point import Abandoned

SEEN = Cell("seen", list, default=[])


@resumable("law/rest")
async def rest(world: World, value: int = 0) -> list[int]:
    world[SEEN] = [*world[SEEN], value]
    return list(world[SEEN])


REGISTRY = Registry([rest])


# -- a publication, used in any order ---------------------------------------------------------------------------------

HELD = ["persist", "fork", "enter", "enter", "hydrate"]
OPS = st.lists(st.tuples(st.sampled_from(HELD), st.integers(0, 3)), max_size=8)


@define
class Model:
    """What a user is promised of one publication."""

    left: bool = False
    kept: bool = False
    """it was persisted: its id is good for ever"""
    entered: list[bool] = field(factory=list[bool])
    """per fork"""

    def expected(self, op: str, number: int) -> object:
        """What the operation gives: a result, `refused`, or `nothing` where there is nothing to do it with."""
        match op:
            case "persist" if not self.left:
                self.kept = True
                return "id"
            case "fork" if not self.left:
                self.entered.append(False)
                return "forked"
            case "enter" if not self.entered:
                return "nothing"
            case "enter" if not self.entered[number % len(self.entered)]:
                self.entered[number % len(self.entered)] = True
                return [7, number]
            case "hydrate":
                return [7, number] if self.kept else "nothing"
            case _:
                return "refused"


@define
class Used:
    """The publication itself."""

    point: Point
    store: MemoryStore
    stack: AsyncExitStack
    ids: set[bytes] = field(factory=set[bytes])
    forks: list[Any] = field(factory=list[Any])

    async def done(self, op: str, number: int) -> object:
        try:
            return await self._done(op, number)
        except Usage:
            return "refused"

    async def _done(self, op: str, number: int) -> object:
        match op:
            case "persist":
                self.ids.add(await self.point.persist(self.store))
                return "id"
            case "fork":
                self.forks.append(await self.stack.enter_async_context(self.point.fork(store=self.store)))
                return "forked"
            case "enter" if self.forks:
                return await self.forks[number % len(self.forks)].enter(value=number)
            case "hydrate" if self.ids:
                (name,) = self.ids
                async with hydrate(name, store=self.store, registry=REGISTRY) as revived:
                    return await revived.enter(value=number)
            case _:
                return "nothing"


@example(before=[("fork", 0), ("persist", 0)], abandon=True, after=[("persist", 0), ("fork", 0), ("enter", 0)])
@settings(max_examples=60)
@given(before=OPS, abandon=st.booleans(), after=OPS)
async def test_law_4_affinity_of_a_publication_that_is_used_in_any_order(
    before: Any, abandon: bool, after: Any
) -> None:
    model, went_on, unwound = Model(), list[object](), list[str]()
    async with AsyncExitStack() as stack:
        used: list[Used] = []

        async def use(point: Point) -> str:
            used.append(Used(point, MemoryStore(), stack))
            for op in before:
                assert await used[0].done(*op) == model.expected(*op), op
            if abandon:
                raise Abandon
            return "gone on"

        async def program() -> None:
            with at_savepoint(use, name="gap"):
                try:
                    went_on.append(await savepoint("gap", resume=rest.at(), state=[SEEN]))
                except Abandoned:
                    unwound.append("unwound")
                    raise

        world = World()
        world[SEEN] = [7]
        with using_world(world):
            if abandon:
                with pytest.raises(Abandoned):
                    await program()
            else:
                await program()
        model.left = True
        for op in after:
            assert await used[0].done(*op) == model.expected(*op), op
        assert (went_on, unwound) == (([], ["unwound"]) if abandon else (["gone on"], []))
        assert world[SEEN] == [7], "a continuation consumed what the program goes on with"


# -- races ------------------------------------------------------------------------------------------------------------

TASK = st.tuples(st.sampled_from(["persist", "fork"]), st.integers(0, 6))


@settings(max_examples=40)
@given(tasks=st.lists(TASK, min_size=1, max_size=6), held=st.integers(0, 8))
async def test_law_4_affinity_under_a_race_of_tasks_with_the_program_that_goes_on(tasks: Any, held: int) -> None:
    """They persist and fork while the point is left: each of them does so as it was then, or is refused."""
    store, started, went_on = MemoryStore(), list[asyncio.Task[object]](), list[object]()

    async def use(point: Point, op: str, wait: int) -> object:
        for _ in range(wait):
            await asyncio.sleep(0)
        try:
            if op == "persist":
                async with hydrate(await point.persist(store), store=store, registry=REGISTRY) as revived:
                    return await revived.enter(value=wait)
            async with point.fork(store=store) as continuation:
                return await continuation.enter(value=wait)
        except Usage:
            return "refused"

    async def let_go(point: Point) -> str:
        started.extend(asyncio.create_task(use(point, *each)) for each in tasks)
        for _ in range(held):
            await asyncio.sleep(0)
        return "gone on"

    world = World()
    world[SEEN] = [7]
    with using_world(world), at_savepoint(let_go, name="gap"):
        went_on.append(await savepoint("gap", resume=rest.at(), state=[SEEN]))
        world[SEEN] = [8]
    found = await asyncio.gather(*started)
    assert went_on == ["gone on"]
    assert all(each in ([7, wait], "refused") for each, (_, wait) in zip(found, tasks, strict=True)), found
    assert world[SEEN] == [8]


@resumable("law/raced")
async def raced(world: World, step: int) -> str:
    if step == 0:
        await savepoint("turn", resume=raced.at(1))
        raise Stopped(OSError("the model is away"))
    went_on.append(step)
    await asyncio.sleep(0)
    return "done"


went_on: list[int] = []


@few(12)
@given(waits=st.lists(st.integers(0, 5), min_size=2, max_size=6))
async def test_law_4_affinity_of_a_run_that_several_tasks_resume(kills: Kills, waits: Sequence[int]) -> None:
    went_on.clear()

    async def resumed(wait: int) -> str:
        for _ in range(wait):
            await asyncio.sleep(0)
        try:
            result = await resume_program("r", store=store, registry=Registry([raced]))
        except Held:
            return "held"
        return "replayed" if result.replayed else result.status.value

    async with open_store(kills.room() / "store", durability="process") as store:
        await run_program(raced.at(0), store=store, run_id="r")
        said = await asyncio.gather(*map(resumed, waits))
    assert said.count("completed") == 1, said
    assert set(said) <= {"completed", "held", "replayed"}
    assert went_on == [1], "the savepoint was resumed more than once"


RACER = st.builds(
    lambda do, late: {"do": do, "late_s": late / 1000}, st.sampled_from(["resume", "run"]), st.integers(0, 6)
)


@few(10)
@given(step=st.integers(1, 5), racers=st.lists(RACER, min_size=2, max_size=4))
def test_law_4_affinity_of_a_run_that_several_processes_resume(kills: Kills, step: int, racers: Any) -> None:
    """A real owner was killed just after its savepoint `step`; they start at a barrier, some milliseconds late."""
    story = {"story": "barrier", "scenario": "each class in turn", "racers": racers}
    prior = [{"do": "run", "kill": f"gap.after:{step}"}]
    told = kills.server("races:live").attempt({"place": str(kills.room()), "prior": prior, **story}).report
    said = [each["said"] for each in told["said"]]
    assert told["prior"] == [{"said": "killed"}]
    assert said.count("completed") == 1, said
    assert set(said) <= {"completed", "held", "replayed"}
    assert told["attempts"] == 2
    assert sorted(tag for tag, *_ in told["acts"]) == ["3.i", "4.k", "5.o"]
