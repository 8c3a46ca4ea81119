"""What a known run id means: four policies against each state that a run can be in."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from effects import Idempotency, effect
from savepoint import (
    Abandon,
    Conflict,
    Held,
    MemoryStore,
    Missing,
    Point,
    Registry,
    RunStatus,
    Usage,
    World,
    at_savepoint,
    remove_run,
    resumable,
    run_program,
    savepoint,
)
from savepoint._errors import Stopped
from savepoint._run import run_key
from savepoint._run_result import find_run, get_run
from savepoint._store import Space

POLICIES = ("resume", "restart", "fail", "resume_only")

TABLE: dict[str, tuple[Any, ...]] = {
    #               resume       restart      fail         resume_only
    "none": ("started", "started", "started", Missing),
    "running": (Held, Held, Conflict, Held),
    "orphaned": ("resumed", "restarted", Conflict, "resumed"),
    "interrupted": ("resumed", "restarted", Conflict, "resumed"),
    "waiting": ("waits", Conflict, Conflict, "waits"),
    "failed": ("resumed", "restarted", Conflict, "resumed"),
    "completed": ("replayed", "restarted", Conflict, "replayed"),
    "cancelled": (Conflict, "restarted", Conflict, Conflict),
    "completed, removed": ("replayed", "restarted", Conflict, "replayed"),
    "failed, removed": (Conflict, "restarted", Conflict, Conflict),
}
"""State -> what comes of each policy. `design/0006-runs.md` explains it."""

log: list[str] = []


class Told:
    how = ""
    entered: asyncio.Event
    go: asyncio.Event


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture(autouse=True)
def _fresh() -> None:
    log.clear()
    Told.how, Told.entered, Told.go = "", asyncio.Event(), asyncio.Event()


@effect("policy/act", idempotency=Idempotency.ONCE)
async def act(what: str) -> None:
    log.append(what)
    if what == "doubtful":
        raise TimeoutError("no answer")
    if what == "deadly":
        raise Killed


@resumable("policy/work")
async def work(world: World, step: int, given: str) -> str:
    if step == 0:
        await act("first")
        await savepoint("step", resume=work.at(1, given))
    match Told.how:
        case "interrupted":
            raise Stopped(OSError("away"))
        case "failed":
            raise ValueError("no")
        case "running":
            Told.entered.set()
            await Told.go.wait()
        case "waiting":
            await act("doubtful")
        case "orphaned":
            raise Killed
        case "killed in a call":
            await act("deadly")
        case _:
            return given
    return given


async def call(store: MemoryStore, given: str, **options: Any) -> Any:
    registry = Registry([work], effects=[act])
    return await run_program(work.at(0, given), store=store, run_id="r", registry=registry, **options)


@asynccontextmanager
async def in_state(state: str) -> AsyncGenerator[MemoryStore]:
    """A store in which run `r` was brought into `state` by running it."""
    store = MemoryStore()
    state, _, removed = state.partition(", ")
    Told.how = state
    running: asyncio.Task[Any] | None = None
    match state:
        case "none":
            pass
        case "running":
            running = asyncio.create_task(call(store, "old"))
            await Told.entered.wait()
        case "orphaned" | "killed in a call":
            with pytest.raises(Killed):
                await call(store, "old")
            async with store.commit() as tx:  # its kernel lock is free; a store in memory has none
                tx.delete(Space.LEASE, run_key("r"))
        case "cancelled":
            with at_savepoint(_give_up):
                await call(store, "old")
        case _:
            await call(store, "old")
    status = {"none": None, "orphaned": "running", "killed in a call": "running"}.get(state, state)
    found = await find_run(store, "r")
    assert (found and found.status.value) == status
    if removed:
        await remove_run(store, "r")
    Told.how = "waiting" if state == "waiting" else ""
    yield store
    if running is not None:
        Told.go.set()
        assert (await running).status is RunStatus.COMPLETED


async def _give_up(point: Point) -> None:
    if point.end is None:
        raise Abandon


def test_the_table_has_every_policy() -> None:
    assert all(len(row) == len(POLICIES) for row in TABLE.values())


@pytest.mark.parametrize("state", TABLE)
@pytest.mark.parametrize("policy", POLICIES)
async def test_each_policy_in_each_state(state: str, policy: str) -> None:
    expected = TABLE[state][POLICIES.index(policy)]
    async with in_state(state) as store:
        before, done = await find_run(store, "r"), len(log)
        if isinstance(expected, type):
            with pytest.raises(expected) as refused:
                await call(store, "new", if_run_exists=policy)
            assert "run r" in refused.value.message
            assert refused.value.next
            assert await find_run(store, "r") == before
            assert len(log) == done, "something was performed before it was refused"
            return
        result = await call(store, "new", if_run_exists=policy)
        after = await get_run(store, "r")
        new = log[done:]
    match expected:
        case "started":
            assert (result.value, new) == ("new", ["first"])
        case "restarted":
            assert (result.value, new) == ("new", ["first"])
            assert before is not None
            assert after.lineage != before.lineage
        case "resumed":
            assert (result.value, new) == ("old", []), "the first input counts, and no receipt is lost"
            assert not result.replayed
        case "replayed":
            assert (result.value, result.replayed, new) == ("old", True, [])
        case _:
            assert (result.status, new) == (RunStatus.WAITING, [])
            assert [question.effect for question in result.questions] == ["policy/act"]
    if expected != "waits":
        assert result.status is RunStatus.COMPLETED


async def test_a_restart_over_a_call_in_doubt_must_be_explicit() -> None:
    async with in_state("waiting") as store:
        Told.how = ""
        with pytest.raises(Conflict, match=r"has calls in doubt .* a restart would forget them"):
            await call(store, "new", if_run_exists="restart")
        result = await call(store, "new", if_run_exists="restart", abandon=True)
    assert (result.status, result.value) == (RunStatus.COMPLETED, "new")
    assert log == ["first", "doubtful", "first"]


async def test_a_restart_sees_the_doubt_that_nobody_has_asked_about_yet() -> None:
    async with in_state("killed in a call") as store:
        with pytest.raises(Conflict, match=r"has calls in doubt .policy/act."):
            await call(store, "new", if_run_exists="restart")
        result = await call(store, "new", if_run_exists="restart", abandon=True)
    assert (result.status, result.value) == (RunStatus.COMPLETED, "new")


async def test_a_restart_ends_the_writing_of_the_former_lineage() -> None:
    async with in_state("interrupted") as store:
        before = await get_run(store, "r")
        head = await store.read(Space.HEAD, before.lineage)
        await call(store, "new", if_run_exists="restart")
        after = await store.read(Space.HEAD, before.lineage)
    assert head is not None
    assert after is not None
    assert after.digest != head.digest


async def test_a_policy_that_does_not_exist_is_refused_before_anything_happens() -> None:
    store = MemoryStore()
    with pytest.raises(Usage, match="'overwrite' is not a policy"):
        await call(store, "new", if_run_exists="overwrite")
    with pytest.raises(Usage, match="'lenient' is not a way of recovery"):
        await call(store, "new", recovery="lenient")
    assert log == []
    assert await find_run(store, "r") is None


async def test_a_run_without_an_id_gets_one_of_its_own() -> None:
    store = MemoryStore()
    ids = {(await run_program(work.at(1, "x"), store=store)).run_id for _ in range(3)}
    assert len(ids) == 3
