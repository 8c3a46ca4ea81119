"""Statuses of runs: the one table, what runs really do with it, and claims that only one of many gets."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from effects import Idempotency, effect
from effects._question import Choice, Decision
from savepoint import (
    Abandon,
    Conflict,
    Corrupt,
    Held,
    MemoryStore,
    Missing,
    Point,
    Registry,
    RunResult,
    RunStatus,
    World,
    at_savepoint,
    cancel_run,
    open_store,
    resumable,
    resume_program,
    run_program,
    savepoint,
)
from savepoint._errors import Stopped, Superseded
from savepoint._questions import record_decision
from savepoint._run import ENDED, TRANSITIONS, former_key, may, read_run, run_key
from savepoint._run_result import get_run
from savepoint._store import Row, Space
from savepoint._unit import Unit

TABLE = {
    ("-", "running"),
    ("running", "running"),
    ("running", "waiting"),
    ("running", "interrupted"),
    ("running", "completed"),
    ("running", "failed"),
    ("running", "cancelled"),
    ("waiting", "running"),
    ("waiting", "cancelled"),
    ("interrupted", "running"),
    ("interrupted", "cancelled"),
    ("failed", "running"),
    ("failed", "cancelled"),
}
"""As `design/0006-runs.md` has it, written down a second time."""

sent: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    sent.clear()
    Told.how, Told.entered, Told.go = "", asyncio.Event(), asyncio.Event()


def test_the_table_is_the_table() -> None:
    assert TRANSITIONS.keys() == {None, *RunStatus}
    for before in (None, *RunStatus):
        for after in RunStatus:
            assert may(before, after) is ((before or "-", after.value) in TABLE), (before, after)


def test_what_has_ended_is_never_left() -> None:
    assert {RunStatus.COMPLETED, RunStatus.CANCELLED} == ENDED
    assert all(not TRANSITIONS[status] for status in ENDED)


class Told:
    """What the program of one test is told."""

    how = ""
    entered: asyncio.Event
    go: asyncio.Event


@effect("runs/send", idempotency=Idempotency.ONCE)
async def send(n: int) -> int:
    sent.append(n)
    if Told.how == "wait" and n == 1:
        raise TimeoutError("no answer")
    return n


@resumable("runs/work")
async def work(world: World, step: int) -> str:
    if step == 0:
        await send(0)
        await savepoint("step", resume=work.at(1))
    match Told.how:
        case "interrupt":
            raise Stopped(OSError("away"))
        case "fail":
            raise ValueError("no")
        case "hang":
            Told.entered.set()
            await Told.go.wait()
        case "wait":
            await send(1)
        case _:
            pass
    return "done"


REGISTRY = Registry([work], effects=[send])


class Watching(MemoryStore):
    """Writes down every change of a run's status."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[tuple[str, str]] = []

    async def _apply(self, unit: Unit) -> None:
        before = {key: self._rows.get((Space.RUN.value, key)) for key in (run_key("r"),)}
        await super()._apply(unit)
        for space, key in unit.rows:
            if space == Space.RUN and key in before:
                after = await self.read(Space.RUN, key)
                assert after is not None
                self.changes.append((self._status(key, before[key]), read_run(after).status.value))

    def _status(self, key: bytes, held: Any) -> str:
        return "-" if held is None else read_run(Row(key=key, body=held[0], digest=held[1])).status.value


async def again(store: Any) -> RunResult:
    return await resume_program("r", store=store, registry=REGISTRY)


async def start(store: Any, how: str, **options: Any) -> RunResult:
    Told.how = how
    return await run_program(work.at(0), store=store, run_id="r", registry=REGISTRY, **options)


@pytest.mark.parametrize(
    ("how", "status"), [("interrupt", RunStatus.INTERRUPTED), ("fail", RunStatus.FAILED), ("wait", RunStatus.WAITING)]
)
async def test_a_stopped_run_goes_on_from_its_savepoint_along_the_table(how: str, status: RunStatus) -> None:
    store = Watching()
    first = await start(store, how)
    assert (first.status, first.step) == (status, 1)
    if how == "wait":
        assert (await again(store)).status is RunStatus.WAITING
        assert len(store.changes) == 2, "an unanswered question leaves the run untouched"
        run = await get_run(store, "r")
        (question,) = first.questions
        decision = Decision(question=question.id, choice=Choice.PERFORMED, value=1)
        await record_decision(store, run.lineage, question, decision, REGISTRY.types)
    Told.how = "wait" if how == "wait" else ""
    result = await again(store)
    assert (result.status, result.value) == (RunStatus.COMPLETED, "done")
    assert sent.count(0) == 1
    assert set(store.changes) <= TABLE
    assert store.changes == [
        ("-", "running"),
        ("running", status.value),
        (status.value, "running"),
        ("running", "completed"),
    ]
    run = await get_run(store, "r")
    assert (run.attempts, run.resumed_from) == (2, 1)


async def test_a_completed_run_is_answered_from_the_store_and_nothing_is_written() -> None:
    store = Watching()
    await start(store, "")
    before = len(store.changes)
    result = await again(store)
    assert (result.status, result.value, result.replayed) == (RunStatus.COMPLETED, "done", True)
    assert len(store.changes) == before


async def test_an_abandoned_run_is_cancelled_for_good() -> None:
    async def give_up(point: Point) -> None:
        if point.end is None:
            raise Abandon

    store = Watching()
    with at_savepoint(give_up):
        assert (await start(store, "")).status is RunStatus.CANCELLED
    with pytest.raises(Conflict, match="run r was cancelled"):
        await again(store)
    assert store.changes == [("-", "running"), ("running", "cancelled")]


async def test_somebody_else_can_ask_for_a_running_run_to_be_cancelled() -> None:
    store = Watching()
    running = asyncio.create_task(start(store, "hang", lease_s=0.3))
    await Told.entered.wait()
    async with store.commit() as tx:
        tx.write(Space.REQUEST, run_key("r"), b"")
    assert (await running).status is RunStatus.CANCELLED
    assert await store.read(Space.REQUEST, run_key("r")) is None


@pytest.mark.parametrize("how", ["interrupt", "fail", "wait", ""])
async def test_a_run_that_no_process_has_is_cancelled_at_once_unless_it_is_completed(how: str) -> None:
    store = Watching()
    await start(store, how)
    if not how:
        with pytest.raises(Conflict, match="run r is completed"):
            await cancel_run(store, "r")
        return
    assert await cancel_run(store, "r") is RunStatus.CANCELLED
    assert await cancel_run(store, "r") is RunStatus.CANCELLED, "repeating it changes nothing"
    with pytest.raises(Conflict, match="run r was cancelled"):
        await again(store)
    assert store.changes[-1][1] == "cancelled"
    assert set(store.changes) <= TABLE


async def test_cancelling_the_task_leaves_the_run_interrupted_and_resumable() -> None:
    store = Watching()
    running = asyncio.create_task(start(store, "hang"))
    await Told.entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await get_run(store, "r")).status is RunStatus.INTERRUPTED
    Told.how = ""
    assert (await again(store)).value == "done"
    assert sent == [0]


async def test_a_restart_has_a_lineage_of_its_own_and_keeps_the_old_record() -> None:
    store = Watching()
    await start(store, "fail")
    old = await get_run(store, "r")
    await start(store, "", if_run_exists="restart")
    new = await get_run(store, "r")
    assert new.lineage != old.lineage
    assert new.status is RunStatus.COMPLETED
    assert sent == [0, 0], "a restart inherits no receipt"
    kept = await store.read(Space.RUN, former_key(old))
    assert kept is not None
    assert read_run(kept) == old


# -- claims -------------------------------------------------------------------------------------------------------


async def race(store: Any, racers: int) -> None:
    await start(store, "interrupt")
    Told.how = "hang"
    running = {asyncio.create_task(again(store)) for _ in range(racers)}
    await Told.entered.wait()
    losers: set[asyncio.Task[RunResult]] = set()
    while len(losers) < racers - 1:
        done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        losers |= done
    assert {type(each.exception()) for each in losers} == {Held}
    Told.go.set()
    (winner,) = running
    assert (await winner).value == "done"
    run = await get_run(store, "r")
    assert (run.attempts, run.status) == (2, RunStatus.COMPLETED)
    assert sent == [0]


async def test_exactly_one_of_many_resumers_wins_in_memory() -> None:
    await race(MemoryStore(), 9)


async def test_exactly_one_of_many_resumers_wins_on_disk(tmp_path: Path) -> None:
    async with open_store(tmp_path / "s") as store:
        await race(store, 9)


async def test_exactly_one_of_many_starters_of_one_run_id_wins(tmp_path: Path) -> None:
    async with open_store(tmp_path / "s") as store:
        found = await asyncio.gather(*(start(store, "") for _ in range(5)), return_exceptions=True)
        assert sum(isinstance(each, RunResult) and not each.replayed for each in found) == 1
        assert all(isinstance(each, (RunResult, Held)) for each in found), found
    assert sent == [0]


async def test_a_run_that_is_held_says_by_whom_and_what_to_do() -> None:
    store = MemoryStore()
    running = asyncio.create_task(start(store, "hang"))
    await Told.entered.wait()
    with pytest.raises(Held, match=r"run r is held by process \d+ \(attempt 1\)") as held:
        await again(store)
    assert "savepoint resume r" in held.value.next
    Told.go.set()
    assert (await running).value == "done"


async def test_an_attempt_that_was_superseded_writes_nothing_and_enters_no_body(tmp_path: Path) -> None:
    """Its lease ran out while it was stopped, and somebody else went on."""
    overtaken: list[str] = []

    @resumable("runs/slow")
    async def slow(world: World) -> str:
        Told.entered.set()
        if not overtaken:
            await Told.go.wait()
        await send(7)
        return "done"

    store = MemoryStore()
    stopped = asyncio.create_task(run_program(slow.at(), store=store, run_id="r"))
    await Told.entered.wait()
    async with store.commit() as tx:  # what time does to a lease that nobody renews
        tx.delete(Space.LEASE, run_key("r"))
    overtaken.append("yes")
    winner = await resume_program("r", store=store, registry=Registry([slow], effects=[send]))
    assert winner.status is RunStatus.COMPLETED
    Told.go.set()
    with pytest.raises(Held, match="was taken over by another attempt"):
        await stopped
    assert sent == [7]
    assert (await get_run(store, "r")).attempts == 2


# -- a resume that cannot begin gives the claim back --------------------------------------------------------------


@resumable("runs/other")
async def other(world: World) -> None: ...


async def test_a_resume_that_fails_before_it_begins_names_the_cause_and_can_be_repeated() -> None:
    store = MemoryStore()
    await start(store, "interrupt")
    Told.how = ""
    before = await get_run(store, "r")
    with pytest.raises(Exception, match="'runs/work' is not registered"):
        await resume_program("r", store=store, registry=Registry([other]))
    assert await get_run(store, "r") == before, "nothing was claimed"
    assert (await again(store)).value == "done"


async def test_a_run_that_nobody_knows_is_missing() -> None:
    with pytest.raises(Missing, match="there is no run r"):
        await again(MemoryStore())


async def test_a_record_that_is_none_is_damage() -> None:
    store = MemoryStore()
    async with store.commit() as tx:
        tx.write(Space.RUN, run_key("r"), b"\xa0")
    with pytest.raises(Corrupt, match="the record of run"):
        await again(store)


def test_superseded_cannot_be_swallowed_by_a_program() -> None:
    assert not issubclass(Superseded, Exception)
