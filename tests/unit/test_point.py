"""What a handler may do with a published savepoint: hold it, let it go on, persist it, fork it, abandon it."""

import asyncio
from typing import Any, cast

import pytest

from effects import CurrentCall, Idempotency, NoCall, Refused, current_call, effect, handler
from savepoint import (
    Abandon,
    Cell,
    End,
    KeyValue,
    MemoryStore,
    Point,
    Registry,
    RunStatus,
    Usage,
    World,
    at_savepoint,
    hydrate,
    resumable,
    run_program,
    savepoint,
    using_world,
)
from savepoint._point import Abandoned

NOTES = Cell("notes", list, default=[])
DRAFT = Cell("draft", str, default="")
sent: list[str] = []
keys: list[object] = []


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    sent.clear()
    keys.clear()


@effect("point/send", idempotency=Idempotency.ONCE)
async def send(text: str) -> str:
    sent.append(text)
    try:
        current: CurrentCall | None = current_call()
    except NoCall:
        current = None
    keys.append(current and current.idempotency_key)
    return f"sent {text}"


@effect("point/look", idempotency=Idempotency.READ)
async def look() -> str:
    return "seen"


@resumable("point/rest")
async def rest(world: World, start: int, more: list[int], value: str = "none") -> list[Any]:
    world[NOTES] = [*world[NOTES], f"{start}:{value}"]
    more.append(start)
    system = world.systems.get("kv")
    if isinstance(system, KeyValue):
        system["by"] = value
    await send(value)
    return [start, value, list(world[NOTES]), world[DRAFT]]


@resumable("point/program")
async def program(world: World, name: str = "gap") -> Any:
    world[NOTES] = ["before"]
    world[DRAFT] = "not declared"
    return await savepoint(name, key={"n": 1}, resume=rest.at(1, [7]), state=[NOTES], default="default")


def kept(into: list[Any]):
    """A handler that keeps points and ends, and answers with the number of points."""

    async def keep(point: Point) -> Any:
        into.append(point.end or point)
        return len(into)

    return keep


async def in_a_world(world: World, **arguments: Any) -> Any:
    with using_world(world):
        return await program.function(world, **arguments)


# -- going on -----------------------------------------------------------------------------------------------------


async def test_without_a_handler_the_default_is_returned_and_nothing_is_looked_at() -> None:
    assert await savepoint("gap", key=object(), resume=None, state=[NOTES], default=41) == 41
    assert await savepoint("gap") is None


async def test_what_the_handler_returns_is_what_the_program_goes_on_with() -> None:
    points: list[Any] = []
    with at_savepoint(kept(points)):
        assert await in_a_world(World()) == 1
        assert await in_a_world(World()) == 2
    assert [(point.name, point.key) for point in points] == [("gap", {"n": 1})] * 2


async def test_a_handler_for_one_name_is_asked_for_this_name_only() -> None:
    with at_savepoint(kept([]), name="other"):
        assert await in_a_world(World()) == "default"
        assert await in_a_world(World(), name="other") == 1


async def test_the_innermost_is_asked_and_what_it_publishes_goes_outward() -> None:
    order: list[str] = []

    async def outer(point: Point) -> str:
        order.append(f"outer {point.name}")
        assert await savepoint("third", default="nobody") == "nobody"
        return "from outside"

    async def inner(point: Point) -> str:
        order.append(f"inner {point.name}")
        return "inner, " + await savepoint("second")

    with at_savepoint(outer), at_savepoint(inner):
        assert await in_a_world(World()) == "inner, from outside"
    assert order == ["inner gap", "outer second"]


async def test_a_handler_in_one_task_is_not_seen_by_another() -> None:
    async def alone() -> Any:
        return await in_a_world(World())

    before = asyncio.create_task(alone())
    with at_savepoint(kept([])):
        assert await before == "default"
        assert await asyncio.create_task(alone()) == 1


async def test_a_point_is_held_until_its_handler_returns() -> None:
    held, let_go = asyncio.Event(), asyncio.Event()
    store, ids = MemoryStore(), list[bytes]()

    async def hold(point: Point) -> None:
        ids.append(await point.persist(store))
        held.set()
        await let_go.wait()
        ids.append(await point.persist(store))

    with at_savepoint(hold):
        running = asyncio.create_task(in_a_world(World()))
        await held.wait()
        assert not running.done()
        let_go.set()
        await running
    assert ids[0] == ids[1], "persisting consumes nothing and changes nothing"


async def test_a_point_is_no_use_once_its_handler_returned() -> None:
    points: list[Any] = []
    store = MemoryStore()
    with at_savepoint(kept(points)):
        await in_a_world(World())
    with pytest.raises(Usage, match="'gap' was left already"):
        await points[0].persist(store)
    with pytest.raises(Usage, match="'gap' was left already"):
        async with points[0].fork(store=store):
            pytest.fail("forked a point that nobody holds")


class Slow(KeyValue):
    """A system whose snapshot waits for a sign, so that a program can go on in the middle of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def snapshot(self, contents: Any) -> bytes:
        self.asked.set()
        await self.go.wait()
        return await super().snapshot(contents)


async def test_a_point_that_is_left_in_the_middle_of_persisting_is_not_persisted() -> None:
    slow, tasks = Slow(), list[asyncio.Task[bytes]]()

    async def leave(point: Point) -> None:
        tasks.append(asyncio.create_task(point.persist(MemoryStore())))
        await slow.asked.wait()

    with at_savepoint(leave):
        await in_a_world(World({"kv": cast("Any", slow)}))
    slow.go.set()
    with pytest.raises(Usage, match="was left already"):
        await tasks[0]


async def test_without_a_resume_function_a_point_cannot_be_persisted_or_forked() -> None:
    async def try_both(point: Point) -> str:
        with pytest.raises(Usage, match="names no resume function"):
            await point.persist(MemoryStore())
        with pytest.raises(Usage, match="names no resume function"):
            async with point.fork(store=MemoryStore()):
                pytest.fail("forked without a resume function")
        return "tried"

    with at_savepoint(try_both):
        assert await savepoint("bare") == "tried"


# -- forking ------------------------------------------------------------------------------------------------------


async def test_forks_are_as_many_as_one_likes_and_see_none_of_each_other() -> None:
    host = World({"kv": KeyValue({"by": "host"})})
    results: list[Any] = []
    store = MemoryStore()

    async def branch(point: Point) -> str:
        for value in ("a", "b", "c"):
            async with point.fork(store=store) as continuation:
                assert continuation.world.system("kv")["by"] == "host"  # type: ignore[index]
                results.append(await continuation.enter(value=value))
                assert continuation.world.system("kv")["by"] == value  # type: ignore[index]
        return "gone on"

    with at_savepoint(branch, name="gap"):
        assert await in_a_world(host) == "gone on"
    assert results == [[1, value, ["before", f"1:{value}"], ""] for value in "abc"], "declared state only, and its own"
    assert host[NOTES] == ["before"]
    assert host.system("kv")["by"] == "host"  # type: ignore[index]
    assert sent == ["a", "b", "c"]


async def test_forks_may_run_at_once() -> None:
    host, store = World({"kv": KeyValue({})}), MemoryStore()

    async def enter(point: Point, value: str) -> Any:
        async with point.fork(store=store) as continuation:
            return await continuation.enter(value=value)

    async def branch(point: Point) -> Any:
        return await asyncio.gather(*(enter(point, value) for value in "ab"))

    with at_savepoint(branch, name="gap"):
        found = await in_a_world(host)
    assert [each[2] for each in found] == [["before", "1:a"], ["before", "1:b"]]


async def test_forking_in_process_is_persisting_hydrating_and_entering() -> None:
    host, store = World({"kv": KeyValue({"by": "host"})}), MemoryStore()
    found: list[Any] = []

    async def both(point: Point) -> None:
        point_id = await point.persist(store)
        async with (
            point.fork(store=store) as here,
            hydrate(point_id, store=store, host=point.world, registry=Registry([rest])) as there,
        ):
            assert here.savepoint == there.savepoint
            found.append(await here.enter(value="x"))
            found.append(await there.enter(value="x"))

    with at_savepoint(both, name="gap"):
        await in_a_world(host)
    assert found[0] == found[1] == [1, "x", ["before", "1:x"], ""]


async def test_a_fork_can_be_made_of_another_host_at_the_points_snapshot() -> None:
    other, store = World({"kv": KeyValue({"by": "other", "more": 1})}), MemoryStore()

    async def elsewhere(point: Point) -> dict[str, object]:
        async with point.fork(store=store, host=other) as continuation:
            return dict(continuation.world.system("kv").items())  # type: ignore[attr-defined]

    with at_savepoint(elsewhere):
        assert await in_a_world(World({"kv": KeyValue({"by": "host"})})) == {"by": "host"}
    assert other.system("kv")["more"] == 1  # type: ignore[index]


async def test_a_fork_is_entered_once() -> None:
    async def twice(point: Point) -> None:
        async with point.fork(store=MemoryStore()) as continuation:
            await continuation.enter()
            with pytest.raises(Usage, match="was entered already"):
                await continuation.enter()

    with at_savepoint(twice, name="gap"):
        await in_a_world(World())
    assert sent == ["none"]


async def test_an_argument_that_the_resume_function_does_not_take_is_refused_before_it_is_entered() -> None:
    async def misspelt(point: Point) -> None:
        async with point.fork(store=MemoryStore()) as continuation:
            with pytest.raises(Usage, match="point/rest takes no argument 'valeu'"):
                await continuation.enter(valeu="x")
            await continuation.enter(value="x")

    with at_savepoint(misspelt, name="gap"):
        await in_a_world(World())
    assert sent == ["x"]


async def test_a_fork_that_is_entered_inside_a_run_is_no_part_of_it() -> None:
    store = MemoryStore()

    async def branch(point: Point) -> None:
        if point.end is None:
            async with point.fork(store=store) as continuation:
                await continuation.enter(value="fork")

    with at_savepoint(branch, name="gap"):
        result = await run_program(program.at(), store=store, run_id="r")
    assert (result.status, result.step) == (RunStatus.COMPLETED, 1)
    assert sent == ["fork"]
    assert keys == [None], "the run's idempotency key is not the fork's"
    assert (await run_program(program.at(), store=store, run_id="r")).replayed


# -- abandoning ---------------------------------------------------------------------------------------------------


async def abandon(point: Point) -> None:
    if point.end is None:
        raise Abandon


@resumable("point/tidy")
async def tidy(world: World, *, act: bool, gap: bool) -> None:
    try:
        with handler(look, look_aside), at_savepoint(kept([]), name="unrelated"):
            await savepoint("gap", resume=rest.at(1, []))
    finally:
        sent.append(f"finally {await look()}")
        if gap:
            await savepoint("late", resume=rest.at(1, []))
        if act:
            await send("late")


async def look_aside() -> str:
    return "aside"


@pytest.mark.parametrize(("act", "gap"), [(False, False), (True, False), (False, True)])
async def test_an_abandoned_program_unwinds_and_does_nothing_outside(*, act: bool, gap: bool) -> None:
    seen: list[Any] = []
    with at_savepoint(kept(seen)), pytest.raises((Abandoned, Refused)), at_savepoint(abandon):
        await tidy.function(World(), act=act, gap=gap)
    assert sent == ["finally seen"]
    assert seen == []
    await send("afterwards")
    assert sent[-1] == "afterwards", "beyond the handler's block all is as before"


@pytest.mark.parametrize(("act", "gap"), [(False, False), (True, False), (False, True)])
async def test_an_abandoned_run_is_cancelled_and_told_so_once(*, act: bool, gap: bool) -> None:
    seen: list[Any] = []
    store = MemoryStore()
    with at_savepoint(kept(seen)), at_savepoint(abandon, name="gap"):
        result = await run_program(tidy.at(act=act, gap=gap), store=store, run_id="r")
    assert result.status is RunStatus.CANCELLED
    assert sent == ["finally seen"]
    assert seen == [End(status="abandoned")]
    await send("afterwards")


async def test_what_swallows_the_abandonment_is_abandoned_all_the_same() -> None:
    seen: list[Any] = []

    @resumable("point/stubborn")
    async def stubborn(world: World) -> str:
        try:
            await savepoint("gap", resume=rest.at(1, []))
        except BaseException:
            return "as if nothing had happened"
        return "never"

    with at_savepoint(kept(seen)), at_savepoint(abandon, name="gap"):
        result = await run_program(stubborn.at(), store=MemoryStore(), run_id="r")
    assert (result.status, result.value) == (RunStatus.CANCELLED, None)
    assert seen == [End(status="abandoned")]


async def test_an_outer_handler_abandons_through_an_inner_one() -> None:
    async def inner(point: Point) -> Any:
        return await savepoint(point.name, resume=point.resume)

    with pytest.raises((Abandoned, Refused)), at_savepoint(abandon), at_savepoint(inner):
        await tidy.function(World(), act=True, gap=False)
    assert sent == ["finally seen"]


async def test_a_handler_that_raises_fails_the_program_at_the_point_once() -> None:
    asked: list[str] = []

    async def fail(point: Point) -> None:
        asked.append(point.name)
        if point.end is None:
            raise OSError("the disk of the handler")

    @resumable("point/careful")
    async def careful(world: World) -> str:
        try:
            await savepoint("gap", resume=rest.at(1, []))
        except OSError:
            return await send("instead")
        return "never"

    with at_savepoint(fail, name="gap"):
        caught = await run_program(careful.at(), store=MemoryStore(), run_id="r")
    assert (caught.status, caught.value, asked) == (RunStatus.COMPLETED, "sent instead", ["gap"])
    with at_savepoint(fail):
        failed = await run_program(program.at(), store=MemoryStore(), run_id="r")
    assert failed.status is RunStatus.FAILED
    assert failed.error is not None
    assert failed.error.message == "the disk of the handler"
    assert asked == ["gap", "gap", "end"]


# -- the end ------------------------------------------------------------------------------------------------------


@resumable("point/ending")
async def ending(world: World, how: str) -> str:
    if how == "error":
        raise ValueError("no")
    return how


@pytest.mark.parametrize("how", ["result", "error"])
async def test_the_end_of_a_run_is_published_once_to_every_handler_of_all_points(how: str) -> None:
    outer, inner, named = list[Any](), list[Any](), list[Any]()
    with at_savepoint(kept(outer)), at_savepoint(kept(named), name="end"), at_savepoint(kept(inner)):
        result = await run_program(ending.at(how), store=MemoryStore(), run_id="r")
    assert [end.status for end in outer] == [end.status for end in inner] == [how]
    assert named == []
    assert result.status is (RunStatus.COMPLETED if how == "result" else RunStatus.FAILED)


@pytest.mark.parametrize("how", ["result", "error"])
async def test_the_end_of_a_continuation_is_published_once(how: str) -> None:
    seen: list[Any] = []
    store = MemoryStore()
    ids: list[bytes] = []

    async def persist(point: Point) -> None:
        ids.append(await point.persist(store))

    with at_savepoint(persist):
        await savepoint("gap", resume=ending.at(how))
    async with hydrate(ids[0], store=store, registry=Registry([ending])) as revived:
        with at_savepoint(kept(seen)):
            if how == "error":
                with pytest.raises(ValueError, match="no"):
                    await revived.enter()
            else:
                await revived.enter()
    assert [end.status for end in seen] == [how]


async def test_a_handler_that_fails_at_the_end_changes_nothing_and_hides_from_nobody() -> None:
    seen: list[Any] = []

    async def fail(point: Point) -> None:
        raise OSError("too late")

    with at_savepoint(kept(seen)), at_savepoint(fail):
        result = await run_program(ending.at("result"), store=MemoryStore(), run_id="r")
    assert (result.status, result.value) == (RunStatus.COMPLETED, "result")
    assert [end.status for end in seen] == ["result"]
    assert "OSError('too late')" in result.warnings[0]


async def test_the_end_cannot_be_persisted_or_forked() -> None:
    async def persist(point: Point) -> None:
        await point.persist(MemoryStore())

    with at_savepoint(persist):
        result = await run_program(ending.at("result"), store=MemoryStore(), run_id="r")
    assert "names no resume function" in result.warnings[0]
