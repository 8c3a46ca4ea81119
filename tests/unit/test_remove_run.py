"""A removed run leaves a tombstone: nothing else of it is there, its id never runs again silently, nobody else notices."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from agent import Agent, decide, resume, run, tool
from agent.cli._show import KNOWN
from agent.testing import ScriptedModel, call, say
from effects import Idempotency, effect
from savepoint import (
    Conflict,
    Held,
    MemoryStore,
    Missing,
    Registry,
    RunStatus,
    Usage,
    Workspace,
    World,
    cancel_run,
    discard_run,
    fork_program,
    list_runs,
    merge_run,
    open_store,
    remove_run,
    resumable,
    resume_program,
    run_program,
    savepoint,
)
from savepoint._errors import Stopped
from savepoint._inspect import inspect_run, read_receipts
from savepoint._merge_run import Settled
from savepoint._nested import Nested, write_nested
from savepoint._run import RunRecord, run_key, write_run
from savepoint._run_result import find_run, get_run
from savepoint._sqlite import SqliteStore
from savepoint._store import Space, Store
from savepoint._unit import Unit
from savepoint._verify import verify_store

acted: list[str] = []


class Told:
    how = ""
    entered: asyncio.Event
    go: asyncio.Event


@pytest.fixture(autouse=True)
def _fresh() -> None:
    acted.clear()
    Told.how, Told.entered, Told.go = "", asyncio.Event(), asyncio.Event()


@effect("remove/act", idempotency=Idempotency.ONCE)
async def act(what: str) -> str:
    acted.append(what)
    if what == "doubtful":
        raise TimeoutError("no answer")
    return what


@resumable("remove/work")
async def work(world: World, step: int) -> str:
    if step == 0:
        await act("first")
        await savepoint("step", resume=work.at(1))
    match Told.how:
        case "interrupted":
            raise Stopped(OSError("away"))
        case "failed":
            raise ValueError("no")
        case "waiting":
            await act("doubtful")
        case "held":
            Told.entered.set()
            await Told.go.wait()
            await act("late")
        case _:
            pass
    return "done"


REGISTRY = Registry([work], effects=[act])


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
    else:
        async with open_store(tmp_path / "store", durability="process") as opened:
            yield opened


async def started(store: Store, run_id: str = "r", **options: Any) -> Any:
    return await run_program(work.at(0), store=store, run_id=run_id, registry=REGISTRY, **options)


async def content(store: Store) -> dict[Space, list[tuple[bytes, bytes]]]:
    """All rows there are, by space."""
    found = {space: [(row.key, row.body) for row in await store.scan(space)] for space in Space}
    return {space: rows for space, rows in found.items() if rows}


async def brought_into(store: Store, state: str) -> RunRecord:
    Told.how = state if state != "cancelled" else "interrupted"
    await started(store)
    if state == "cancelled":
        await cancel_run(store, "r")
    Told.how = ""
    return await get_run(store, "r")


@pytest.mark.parametrize("state", ["completed", "interrupted", "failed", "cancelled"])
async def test_only_a_tombstone_is_left(store: Store, state: str):
    before = await brought_into(store, state)
    async with store.commit() as tx:
        tx.write(Space.LOCAL, run_key("r"), b"local")
        tx.write(Space.REQUEST, run_key("r"), b"request")
    await remove_run(store, "r")
    assert list(await content(store)) == [Space.RUN]
    tombstone = await get_run(store, "r")
    status = RunStatus.COMPLETED if state == "completed" else RunStatus.CANCELLED
    assert tombstone == evolve(
        before, removed=True, status=status, state=None, base=None, final=None, changed_at=tombstone.changed_at
    )
    whole = await content(store)
    await remove_run(store, "r")
    assert await content(store) == whole, "repeating is a no-op"


async def test_others_keep_all_they_have(store: Store):
    await started(store, "other")
    other = await content(store)
    await started(store, "r")
    await started(store, "r2")
    await fork_program("r", store=store, registry=REGISTRY, at=1, fork_id="fork", enter=False)
    await remove_run(store, "r2")
    await remove_run(store, "r")
    left = await content(store)
    assert all(row in left[space] for space, rows in other.items() for row in rows)
    forked = await resume_program("fork", store=store, registry=REGISTRY)
    assert (forked.value, forked.status) == ("done", RunStatus.COMPLETED)


async def test_a_completed_one_is_answered_from_its_result(store: Store):
    await started(store)
    await remove_run(store, "r")
    for answer in (
        await started(store),
        await started(store, if_run_exists="resume_only"),
        await resume_program("r", store=store, registry=REGISTRY),
    ):
        assert (answer.value, answer.status, answer.replayed) == ("done", RunStatus.COMPLETED, True)
        assert answer.warnings == ("run r was removed: only its result is left",)
    assert acted == ["first"]


async def test_any_other_one_is_refused(store: Store):
    await brought_into(store, "interrupted")
    await remove_run(store, "r")
    for attempt in (
        lambda: started(store),
        lambda: started(store, if_run_exists="resume_only"),
        lambda: resume_program("r", store=store, registry=REGISTRY),
    ):
        with pytest.raises(Conflict, match="run r was removed") as refused:
            await attempt()
        assert "restart" in refused.value.next
    with pytest.raises(Conflict, match="exists already"):
        await started(store, if_run_exists="fail")
    assert acted == ["first"]


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
async def test_a_restart_starts_anew(store: Store, state: str):
    before = await brought_into(store, state)
    await remove_run(store, "r")
    result = await started(store, if_run_exists="restart")
    after = await get_run(store, "r")
    assert (result.status, result.replayed, acted) == (RunStatus.COMPLETED, False, ["first", "first"])
    assert (after.removed, after.lineage != before.lineage) == (False, True)
    await remove_run(store, "r")
    assert list(await content(store)) == [Space.RUN]


async def test_what_was_restarted_goes_with_it(store: Store):
    for state in ("failed", "interrupted", ""):
        Told.how = state
        await started(store, if_run_exists="restart")
    assert len(await store.scan(Space.RUN)) == 3
    assert len(await store.scan(Space.HEAD)) == 3
    await remove_run(store, "r")
    assert [row.key for row in await store.scan(Space.RUN)] == [run_key("r")]
    assert list(await content(store)) == [Space.RUN]


async def test_a_call_in_doubt_must_be_abandoned(store: Store):
    await brought_into(store, "waiting")
    whole = await content(store)
    with pytest.raises(Conflict, match=r"calls in doubt \(remove/act\): a removal would forget them") as refused:
        await remove_run(store, "r")
    assert "savepoint resume r" in refused.value.next
    assert await content(store) == whole
    await cancel_run(store, "r")
    with pytest.raises(Conflict, match="calls in doubt") as refused:
        await remove_run(store, "r")
    assert refused.value.next == "remove it all the same: savepoint rm r --abandon"
    await remove_run(store, "r", abandon=True)
    assert list(await content(store)) == [Space.RUN]
    assert (await get_run(store, "r")).status is RunStatus.CANCELLED


async def test_a_doubt_that_was_answered_is_none(store: Store):
    await brought_into(store, "waiting")
    waiting = await resume_program("r", store=store, registry=REGISTRY)
    await decide("r", waiting.questions[0], "performed", value="yes", store=store)
    await remove_run(store, "r")
    assert list(await content(store)) == [Space.RUN]


async def test_events_that_are_missing_must_be_abandoned(store: Store):
    record = await brought_into(store, "interrupted")
    events = await store.scan(Space.EVENT, record.lineage)
    async with store.commit() as tx:
        tx.delete(Space.EVENT, events[-1].key)
    with pytest.raises(Conflict, match="damaged receipts"):
        await remove_run(store, "r")
    await remove_run(store, "r", abandon=True)
    assert list(await content(store)) == [Space.RUN]


async def test_a_living_owner_is_not_robbed(store: Store):
    Told.how = "held"
    owner = asyncio.create_task(started(store))
    await Told.entered.wait()
    whole = await content(store)
    for abandon in (False, True):
        with pytest.raises(Held, match="run r is running in process"):
            await remove_run(store, "r", abandon=abandon)
    assert await content(store) == whole
    Told.go.set()
    assert (await owner).value == "done"


async def test_an_owner_that_slept_writes_nothing_more():
    store = MemoryStore()
    Told.how = "held"
    owner = asyncio.create_task(started(store))
    await Told.entered.wait()
    async with store.commit() as tx:  # its lease ran out; a store in memory has no lock
        tx.delete(Space.LEASE, run_key("r"))
    await remove_run(store, "r")
    Told.go.set()
    with pytest.raises(Held, match="taken over"):
        await owner
    assert list(await content(store)) == [Space.RUN]
    assert acted == ["first"], "the body of the late call is not entered"


SLEEPER = """
import asyncio, sys
from effects import Idempotency, effect
from savepoint import Held, Registry, World, open_store, resumable, run_program, savepoint

@effect("sleeper/act", idempotency=Idempotency.ONCE)
async def act() -> None:
    print("acted", flush=True)

@resumable("sleeper/work")
async def work(world: World, step: int) -> str:
    if step == 0:
        await savepoint("step", resume=work.at(1))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await act()
    return "done"

async def main():
    async with open_store(sys.argv[1]) as store:
        try:
            await run_program(work.at(0), store=store, run_id="r", registry=Registry([work]), lease_s=1.0)
        except Held as held:
            print("held", flush=True)

asyncio.run(main())
"""


async def test_a_stopped_process_finds_its_run_gone(tmp_path: Path):
    place = tmp_path / "store"
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SLEEPER, str(place), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    assert await asyncio.wait_for(owner.stdout.readline(), 60) == b"ready\n"
    async with open_store(place) as store:
        with pytest.raises(Held):
            await remove_run(store, "r")
        os.kill(owner.pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(60):
                while not (await find_run(store, "r") or pytest.fail("gone")).removed:
                    try:
                        await remove_run(store, "r")
                    except Held:  # until its lease ran out
                        await asyncio.sleep(0.1)
        finally:
            os.kill(owner.pid, signal.SIGCONT)
        out, _ = await asyncio.wait_for(owner.communicate(b"go\n"), 60)
        assert (out, owner.returncode) == (b"held\n", 0)
        assert list(await content(store)) == [Space.RUN]


class Contested(MemoryStore):
    """A store in which somebody else commits just before us, once."""

    between: Callable[[], Awaitable[object]] | None = None

    async def _apply(self, unit: Unit) -> None:
        between, self.between = self.between, None
        if between is not None:
            await between()
        await super()._apply(unit)


@pytest.mark.parametrize("other", ["decides", "claims", "restarts", "removes"])
async def test_who_writes_between_the_reading_and_the_commit_is_first(other: str):
    store = Contested()
    await brought_into(store, "waiting")
    (question,) = (await resume_program("r", store=store, registry=REGISTRY)).questions
    acts: dict[str, Callable[[], Awaitable[object]]] = {
        "decides": lambda: decide("r", question, "performed", value="yes", store=store),
        "claims": lambda: cancel_run(store, "r"),
        "restarts": lambda: started(store, if_run_exists="restart", abandon=True),
        "removes": lambda: remove_run(store, "r", abandon=True),
    }
    whole: list[object] = []

    async def act() -> None:
        await acts[other]()
        whole.append(await content(store))

    store.between = act
    with pytest.raises(Held, match="changed by another process"):
        await remove_run(store, "r", abandon=True)
    assert whole == [await content(store)]


async def nested(store: Store, parent: str, run_id: str, **fields: Any) -> RunRecord:
    """A run as one that was begun inside `parent`."""
    await started(store, run_id)
    record = evolve(await get_run(store, run_id), parent=parent, **fields)
    around = await get_run(store, parent)
    async with store.commit() as tx:
        tx.write(Space.RUN, run_key(run_id), write_run(record))
        write_nested(tx, around.lineage, Nested(run_id=run_id, lineage=record.lineage, step=0))
    return record


async def test_nested_runs_go_with_their_parent_and_only_so(store: Store):
    await started(store)
    await started(store, "other")
    await nested(store, "r", "r.child")
    await nested(store, "r.child", "r.child.child")
    for inner, around in (("r.child", "r"), ("r.child.child", "r.child")):
        with pytest.raises(Usage, match=f"nested in run {around}"):
            await remove_run(store, inner)
    await remove_run(store, "other")
    await remove_run(store, "r")
    assert [row.key for row in await store.scan(Space.RUN)] == [run_key("other"), run_key("r")]
    assert list(await content(store)) == [Space.RUN]


async def test_a_nested_call_in_doubt_counts(store: Store):
    await brought_into(store, "interrupted")
    Told.how = "waiting"
    await nested(store, "r", "r.child")
    with pytest.raises(Conflict, match=r"run r\.child has calls in doubt") as refused:
        await remove_run(store, "r")
    assert "savepoint resume r and" in refused.value.next
    await remove_run(store, "r", abandon=True)
    assert list(await content(store)) == [Space.RUN]


async def test_a_nested_run_that_never_came_to_be_is_nothing(store: Store):
    await started(store)
    async with store.commit() as tx:
        write_nested(tx, (await get_run(store, "r")).lineage, Nested(run_id="r.never", lineage=bytes(16), step=0))
    await remove_run(store, "r")
    assert list(await content(store)) == [Space.RUN]


async def test_another_run_of_a_nested_ones_id_is_not_touched(store: Store):
    await started(store)
    await started(store, "mine")
    async with store.commit() as tx:
        lineage = (await get_run(store, "r")).lineage
        write_nested(tx, lineage, Nested(run_id="mine", lineage=bytes(16), step=0))
    whole = await content(store)
    with pytest.raises(Exception, match="says otherwise"):
        await remove_run(store, "r")
    assert await content(store) == whole


async def test_what_says_of_runs_says_so(tmp_path: Path):
    async with open_store(tmp_path / "store", durability="process") as store:
        await started(store)
        await remove_run(store, "r")
        (summary,) = await list_runs(store)
        assert (summary.record.removed, summary.orphaned, summary.step) == (True, False, 0)
        view = await inspect_run(store, "r", KNOWN)
        assert (view.savepoint, view.resumable_from, list(view.steps), list(view.questions)) == (None, None, [], [])
        assert await read_receipts(store, "r", KNOWN) == []
        assert list((await verify_store(store, KNOWN)).damage) == []
        with pytest.raises(Missing, match="was removed"):
            await fork_program("r", store=store, registry=REGISTRY)
        with pytest.raises(Conflict, match="completed"):
            await cancel_run(store, "r")


async def test_the_loss_of_a_removed_runs_result_is_found(tmp_path: Path):
    async with open_store(tmp_path / "store", durability="process") as store:
        await started(store)
        await remove_run(store, "r")
        record = await get_run(store, "r")
        assert record.result is not None
        result = record.result
        await store.look(lambda engine: engine.execute("delete from object where name=?", (result,)).fetchall())
        assert [damage.name for damage in (await verify_store(store, KNOWN)).damage] == [result.hex()]


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / "host").mkdir()
    return tmp_path / "host"


async def world_run(store: SqliteStore, host: Path) -> None:
    agent = Agent(name="a", model=ScriptedModel([say("done")]))
    await run(agent, "go", run_id="r", store=store, world=World({"files": Workspace(host)}))


async def test_the_world_of_a_removed_run_is_gone(tmp_path: Path, host: Path):
    async with open_store(tmp_path / "store", durability="process") as store:
        await world_run(store, host)
        await remove_run(store, "r")
        with pytest.raises(Conflict, match="was removed"):
            await merge_run(store, "r", World({"files": Workspace(host)}))
        with pytest.raises(Conflict, match="was removed"):
            await discard_run(store, "r")


async def test_a_half_done_merge_must_be_finished_or_abandoned(tmp_path: Path, host: Path):
    async with open_store(tmp_path / "store", durability="process") as store:
        await world_run(store, host)
        merging = evolve(await get_run(store, "r"), settled=Settled.MERGING.value)
        async with store.commit() as tx:
            tx.write(Space.RUN, run_key("r"), write_run(merging))
        with pytest.raises(Conflict, match="half merged"):
            await remove_run(store, "r")
        await remove_run(store, "r", abandon=True)


async def test_an_agents_run_is_answered_without_its_transcript(store: Store):
    @tool(idempotency=Idempotency.ONCE)
    async def send(to: str) -> str:
        """Sends."""
        acted.append(to)
        return "sent"

    agent = Agent(name="a", tools=(send,), model=ScriptedModel([call("send", to="ada"), say("done")]))
    await run(agent, "go", run_id="r", store=store)
    await remove_run(store, "r")
    for again in (
        await run(agent, "go", run_id="r", store=store),
        await resume("r", agent=agent, store=store),
    ):
        assert (again.output, again.replayed, len(again.transcript)) == ("done", True, 0)
        assert again.warnings == ("run r was removed: only its result is left",)
    assert acted == ["ada"]


async def test_a_run_that_is_not_there_is_missing(store: Store):
    with pytest.raises(Missing, match="there is no run r"):
        await remove_run(store, "r")
    with pytest.raises(Usage, match="is not a run id"):
        await remove_run(store, "")
