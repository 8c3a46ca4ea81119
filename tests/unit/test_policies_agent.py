"""What a known run id means to an agent that talks in a session: four policies against each state of its run."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent import Agent, Idempotency, Result, RunStatus, StoredSession, User, resume, run, tool
from agent._progress import Ended, Progress, Started
from agent.testing import ScriptedModel, call, say
from savepoint import Conflict, Held, MemoryStore, Missing, cancel_run, remove_run
from savepoint._crashpoint import CrashPoint
from savepoint._run import run_key
from savepoint._run_result import find_run, get_run
from savepoint._store import Space
from savepoint.testing import arm

POLICIES = ("resume", "restart", "fail", "resume_only")
STATUS = {
    "none": None,
    "orphaned": "running",
    "in doubt": "waiting",
    "removed": "completed",
    "not landed": "completed",
    "removed, unfinished": "cancelled",
}
"""of the record, where it is not the state's own name"""

TABLE: dict[str, tuple[Any, ...]] = {
    #               resume       restart      fail         resume_only
    "none": ("started", "started", "started", Missing),
    "running": (Held, Held, Conflict, Held),
    "orphaned": ("resumed", "started", Conflict, "resumed"),
    "interrupted": ("resumed", "started", Conflict, "resumed"),
    "waiting": ("waits", "started", Conflict, "waits"),
    "in doubt": ("waits", Conflict, Conflict, "waits"),
    "failed": ("resumed", "started", Conflict, "resumed"),
    "completed": ("replayed", "started anew", Conflict, "replayed"),
    "not landed": ("replayed", "started anew", Conflict, "replayed"),
    "cancelled": (Conflict, "started", Conflict, Conflict),
    "removed": ("replayed", "started anew", Conflict, "replayed"),
    "removed, unfinished": (Conflict, "started", Conflict, Conflict),
}
"""State -> what comes of each policy. `design/0006-runs.md` explains it."""

FOUND: dict[str, tuple[Any, ...]] = {
    #               model asked, parts of the session, input ignored
    "started": (2, 2, False),
    "started anew": (2, 2, False),
    "resumed": (1, 2, True),
    "replayed": (0, 2, True),
    "waits": (0, 1, True),
}
ANOTHER = "session 'u1' holds another part of run 'r': the new one was not appended"
GONE = "run r was removed: only its result is left"

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


@tool(idempotency=Idempotency.ONCE)
async def act(what: str) -> str:
    log.append(what)
    if what == "doubtful":
        raise TimeoutError
    return what


@tool(idempotency=Idempotency.ONCE, approval=True)
async def ask_first(what: str) -> str:
    log.append(what)
    return what


class Waiting(ScriptedModel):
    async def reply(self, request: Any, **more: Any) -> Any:
        if Told.how == "running" and request.turn:
            Told.entered.set()
            await Told.go.wait()
        return await super().reply(request, **more)


def _second(request: Any) -> Any:
    match Told.how:
        case "interrupted" | "cancelled" | "removed, unfinished":
            raise OSError("away")
        case "orphaned":
            raise Killed
        case "waiting":
            return call("ask_first", what="x")
        case "in doubt":
            return call("act", what="doubtful")
        case _:
            return say(f"did {request.messages[request.history].content}")


def instructions(_: object) -> str:
    if Told.how == "failed" and log:
        raise ValueError("no")
    return "be brief"


def made() -> Agent:
    model = Waiting([call("act", what="first"), _second])
    return Agent(name="a", instructions=instructions, tools=(act, ask_first), model=model)


async def started(store: MemoryStore, given: str, agent: Agent | None = None, **options: Any) -> Result:
    return await run(agent or made(), given, run_id="r", store=store, **{"session_id": "u1", **options})


@asynccontextmanager
async def in_state(state: str) -> AsyncGenerator[MemoryStore]:
    """A store in which run `r` of session `u1` was brought into `state` by running it."""
    store = MemoryStore()
    await StoredSession(store).append("u1", [User(content="before")], run_id="before")
    Told.how = state
    running: asyncio.Task[Any] | None = None
    match state:
        case "none":
            pass
        case "running":
            running = asyncio.create_task(started(store, "old"))
            await Told.entered.wait()
        case "orphaned":
            with pytest.raises(Killed):
                await started(store, "old")
            async with store.commit() as tx:  # its kernel lock is free; a store in memory has none
                tx.delete(Space.LEASE, run_key("r"))
        case "not landed":
            former = arm(_die_before_landing)
            with pytest.raises(Killed):
                await started(store, "old")
            arm(former)
        case _:
            await started(store, "old")
    if state in ("cancelled", "removed, unfinished"):
        await cancel_run(store, "r")
    if state.startswith("removed"):
        await remove_run(store, "r")
    found = await find_run(store, "r")
    assert (found and found.status.value) == STATUS.get(state, state)
    yield store
    if running is not None:
        Told.go.set()
        assert (await running).status is RunStatus.COMPLETED
        assert await parts(store) == ["before", "r"]


def _die_before_landing(point: CrashPoint) -> None:
    if point is CrashPoint.LAND_BEFORE:
        raise Killed


async def parts(store: MemoryStore, session_id: str = "u1") -> list[str | None]:
    return [each.run_id for each in await StoredSession(store).segments(session_id)]


def asked(agent: Agent) -> int:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model.asked


def test_the_table_has_every_policy() -> None:
    assert all(len(row) == len(POLICIES) for row in TABLE.values())


@pytest.mark.parametrize("state", TABLE)
@pytest.mark.parametrize("policy", POLICIES)
async def test_each_policy_in_each_state(state: str, policy: str) -> None:
    expected = TABLE[state][POLICIES.index(policy)]
    agent, events = made(), list[Progress]()
    async with in_state(state) as store:
        before, landed = await find_run(store, "r"), await parts(store)
        log.clear()
        Told.how = Told.how if expected == "waits" else ""
        way = started(store, "new", agent, if_run_exists=policy, on_event=events.append)
        if isinstance(expected, type):
            with pytest.raises(expected, match="run r") as refused:
                await way
            assert refused.value.next
            assert (await find_run(store, "r"), await parts(store)) == (before, landed)
            assert (asked(agent), log, events) == (0, [], [])
            return
        result = await way
        after = await get_run(store, "r")
    asks, segments, ignored = FOUND[expected]
    assert (asked(agent), len(await parts(store)), result.input_ignored) == (asks, segments, ignored)
    why = "run r exists, so its own input counts, and the one given now was ignored"
    warnings = [GONE] if state == "removed" and expected == "replayed" else []
    warnings += [why] if ignored else [ANOTHER] if expected == "started anew" else []
    assert list(result.warnings) == warnings
    assert isinstance(events[-1], Ended)
    assert events[-1].replayed is (expected == "replayed")
    assert any(isinstance(each, Started) for each in events) is (expected not in ("replayed", "waits"))
    match expected:
        case "started" | "started anew":
            assert (result.output, log) == ("did new", ["first"])
            assert before is None or after.lineage != before.lineage
        case "waits":
            assert (result.status, len(result.questions), log, len(events)) == (RunStatus.WAITING, 1, [], 1)
        case _:
            assert (result.output, log) == ("did old", [])
            assert result.replayed is (expected == "replayed")
            assert len(events) == 1 or not result.replayed


@pytest.mark.parametrize("state", [state for state in TABLE if state != "none"])
@pytest.mark.parametrize("policy", ["resume", "fail", "resume_only"])
async def test_a_run_lands_in_no_other_session_than_its_own(state: str, policy: str) -> None:
    agent = made()
    async with in_state(state) as store:
        before, Told.how = await find_run(store, "r"), ""
        with pytest.raises(Conflict, match="run r"):
            await started(store, "new", agent, if_run_exists=policy, session_id="u2")
        assert await find_run(store, "r") == before
    assert await StoredSession(store).ids() == ["u1"]
    assert asked(agent) == 0


async def test_a_run_of_no_session_does_not_come_into_one() -> None:
    store = MemoryStore()
    await started(store, "old", session_id=None)
    with pytest.raises(Conflict, match="run r belongs to no session, not to session u1"):
        await started(store, "new")
    assert await StoredSession(store).ids() == []


@pytest.mark.parametrize("state", ["interrupted", "completed", "not landed"])
async def test_a_restart_may_begin_elsewhere_for_it_is_another_run(state: str) -> None:
    async with in_state(state) as store:
        Told.how = ""
        result = await started(store, "new", if_run_exists="restart", session_id="u2")
    session = StoredSession(store)
    assert (result.output, result.warnings) == ("did new", ())
    assert await parts(store, "u2") == ["r"]
    assert await parts(store) == (["before", "r"] if state != "interrupted" else ["before"])
    await run(made(), "next", store=store, session_id="u1")
    assert await session.pending_runs("u1") == []
    assert (await parts(store))[1:-1] == (["r"] if state != "interrupted" else [])


@pytest.mark.parametrize("policy", ["resume", "resume_only"])
@pytest.mark.parametrize("given", ["", "old"])
async def test_no_input_and_the_same_one_are_not_ignored(policy: str, given: str) -> None:
    async with in_state("completed") as store:
        result = await started(store, given, if_run_exists=policy)
    assert (result.output, result.input_ignored, result.warnings) == ("did old", False, ())


async def test_a_resume_by_id_lands_what_was_not_landed_and_says_the_end_alone() -> None:
    events: list[Progress] = []
    async with in_state("not landed") as store:
        result = await resume("r", agent=made(), store=store, on_event=events.append)
    assert (result.output, result.replayed) == ("did old", True)
    assert [type(each) for each in events] == [Ended]
    assert await parts(store) == ["before", "r"]
    assert await StoredSession(store).pending_runs("u1") == []


async def test_what_a_run_that_was_deleted_on_success_leaves_never_runs_again() -> None:
    store = MemoryStore()
    agent = made()
    first = await started(store, "old", agent, delete_on_success=True)
    assert (first.output, first.replayed) == ("did old", False)
    assert (await get_run(store, "r")).removed
    again = await started(store, "new", agent, delete_on_success=True)
    assert (again.output, again.replayed, again.input_ignored) == ("did old", True, True)
    assert (asked(agent), log, await parts(store)) == (2, ["first"], ["r"])


async def test_nothing_is_deleted_of_a_run_that_could_not_land() -> None:
    """Its part is nowhere else."""
    async with in_state("interrupted") as store:
        session, agent, Told.how = StoredSession(store), made(), ""
        result = await run(agent, "mine", run_id="s", store=store, session_id="u1", delete_on_success=True)
        assert (await get_run(store, "s")).removed
        assert result.status is RunStatus.COMPLETED
        Told.how = "running"
        task = asyncio.create_task(run(agent, "late", run_id="t", store=store, session_id="u1", delete_on_success=True))
        await Told.entered.wait()
        await session.rewind("u1", keep_entries=0)
        Told.go.set()
        late = await task
    assert "its part was not appended" in late.warnings[0]
    assert not (await get_run(store, "t")).removed


async def test_who_is_answered_while_somebody_restarts_the_run_lands_nothing_of_the_new_one() -> None:
    async with in_state("completed") as done:
        store = Disturbed(done)
        Told.how = "running"
        again: list[asyncio.Task[Result]] = []

        async def restart() -> None:
            again.append(asyncio.create_task(started(store, "new", if_run_exists="restart", session_id="u2")))
            await Told.entered.wait()

        store.before_head = restart
        answered = await started(store, "old")
        assert (answered.output, answered.replayed, answered.warnings) == ("did old", True, ())
        assert await StoredSession(store).pending_runs("u2") == ["r"], "it is still to land"
        Told.go.set()
        assert (await again[0]).output == "did new"
    assert (await parts(store), await parts(store, "u2")) == (["before", "r"], ["r"])


class Disturbed(MemoryStore):
    """The content of another one; does something when the head of a lineage is read next, once."""

    def __init__(self, other: MemoryStore) -> None:
        super().__init__()
        self.contents, self._objects, self._rows = other.contents, other._objects, other._rows
        self.before_head: Callable[[], Awaitable[None]] | None = None

    async def read(self, space: Space, key: bytes) -> Any:
        if space is Space.HEAD and self.before_head is not None:
            act, self.before_head = self.before_head, None
            await act()
        return await super().read(space, key)
