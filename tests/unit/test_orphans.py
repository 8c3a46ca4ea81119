"""Runs that lost their process: which they are, and what recovery by itself does with each."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from agent import (
    Agent,
    InMemorySession,
    ModelError,
    Result,
    RunStatus,
    StoredSession,
    decide,
    resume,
    resume_all,
    run,
    tool,
)
from agent._answer import ModelUnavailable
from agent._message import UserMessage
from agent._model import Request
from agent._recovery import LONGEST_S, Resumed, Work, delay_s, recover
from agent.testing import ScriptedModel, call, say
from effects import Idempotency
from effects._question import QuestionKind
from savepoint import (
    Corrupt,
    Held,
    MemoryStore,
    Registry,
    SavepointError,
    Usage,
    World,
    open_store,
    resumable,
    run_program,
)
from savepoint._ambient import boot_id
from savepoint._claim import Lease, write_lease
from savepoint._orphans import orphans
from savepoint._run import run_key, write_run
from savepoint._run_result import get_run
from savepoint._store import Space, Store

log: list[str] = []
deadly: set[str] = set()
"""inputs of runs whose process dies in their tool"""


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture(autouse=True)
def _fresh() -> None:
    log.clear()
    deadly.clear()


@tool(idempotency=Idempotency.READ)
async def work(what: str) -> str:
    """Works, or kills its process."""
    log.append(what)
    if what in deadly:
        raise Killed
    return "done"


def asked_to(request: Request) -> str:
    """What the run was asked to do."""
    [first, *_] = request.messages
    assert isinstance(first, UserMessage)
    return first.content


def _call(request: Request) -> Any:
    return call("work", what=asked_to(request))


def worker(*turns: Any, name: str = "worker") -> Agent:
    return Agent(name=name, tools=(work,), model=ScriptedModel([_call, *(turns or (say("all done"),))]))


WORKER = worker()
stores = pytest.mark.parametrize("kind", ["memory", "sqlite"])


@asynccontextmanager
async def opened(kind: str, place: Path) -> AsyncGenerator[Store]:
    if kind == "memory":
        yield MemoryStore()
        return
    async with open_store(place / "store") as store:
        yield store


async def orphan(store: Store, run_id: str, agent: Agent = WORKER, **more: Any) -> None:
    """A run whose process died in its tool."""
    deadly.add(run_id)
    with pytest.raises(Killed):
        await run(agent, run_id, run_id=run_id, store=store, **more)
    deadly.discard(run_id)
    await _lapse(store, run_id)


async def _lapse(store: Store, run_id: str) -> None:
    """A kernel lock is free when its process is gone; a store in memory has none, so its lease must run out."""
    if store.locks is None:
        lease = Lease(epoch=1, boot=boot_id(), process=1, deadline_s=0.0)
        async with store.commit() as tx:
            tx.write(Space.LEASE, run_key(run_id), write_lease(lease))


async def ids(store: Store) -> list[str]:
    return [record.run_id for record in await orphans(store)]


async def of(store: Store, *agents: Agent, **options: Any) -> dict[str, Resumed]:
    return {each.run_id: each for each in await resume_all(*agents, store=store, backoff_s=0.0, **options)}


def status(resumed: Resumed) -> str:
    assert resumed.result is not None
    return resumed.result.status.value


# -- which they are ---------------------------------------------------------------------------------------------------


@stores
async def test_the_orphans_are_the_running_runs_with_nobody_behind_them_the_oldest_first(
    kind: str, tmp_path: Path
) -> None:
    async with opened(kind, tmp_path) as store:
        for run_id in ("z", "a"):
            await orphan(store, run_id)
        await run(WORKER, "fine", run_id="fine", store=store)
        await run(worker(_unreachable), "away", run_id="away", store=store)
        seen: list[list[str]] = []

        class Looking(ScriptedModel):
            async def reply(self, request: Request, *, on_text: Callable[[str], None] | None = None) -> Any:
                seen.append(await ids(store))
                return await super().reply(request, on_text=on_text)

        await run(Agent(name="looking", model=Looking([say("x")])), "hi", run_id="held", store=store)
        assert seen == [["z", "a"]], "a run that is held is none"
        assert await ids(store) == ["z", "a"]


def _unreachable(_: Request) -> Any:
    raise ModelError("nobody there", next="ask later")


@stores
async def test_a_nested_run_is_left_to_the_run_around_it(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        await orphan(store, "a")
        record = await get_run(store, "a")
        async with store.commit() as tx:
            tx.write(Space.RUN, run_key("a"), write_run(evolve(record, parent="around")))
        assert await ids(store) == []
        assert await resume_all(WORKER, store=store) == []


class Counted(MemoryStore):
    reads = 0

    async def read(self, space: Space, key: bytes) -> Any:
        self.reads += space is Space.RUN
        return await super().read(space, key)


async def test_runs_that_ended_cost_nothing() -> None:
    store = Counted()
    for number in range(20):
        await run(WORKER, str(number), run_id=str(number), store=store)
    await orphan(store, "a")
    store.reads = 0
    assert await ids(store) == ["a"]
    assert store.reads == 1


# -- what recovery does -----------------------------------------------------------------------------------------------


@stores
async def test_every_orphan_of_the_agents_is_continued_and_the_others_are_named(kind: str, tmp_path: Path) -> None:
    other, stranger = worker(name="other"), worker(name="stranger")
    async with opened(kind, tmp_path) as store:
        await orphan(store, "a")
        await orphan(store, "b", other)
        await orphan(store, "c", stranger)
        found = await of(store, WORKER, other)
        assert list(found) == ["a", "b", "c"]
        assert [status(found[each]) for each in "ab"] == ["completed", "completed"]
        assert (found["a"].tries, found["c"].tries, found["c"].result) == (1, 0, None)
        assert isinstance(found["c"].error, Usage)
        assert "agent 'stranger'" in found["c"].error.message
        assert await ids(store) == ["c"]


@resumable("orphan/program")
async def program(world: World) -> str:
    if "program" in deadly:
        raise Killed
    return "done"


async def test_a_program_without_an_agent_is_skipped_and_named() -> None:
    store = MemoryStore()
    deadly.add("program")
    with pytest.raises(Killed):
        await run_program(program.at(), store=store, run_id="p", registry=Registry([program]))
    await _lapse(store, "p")
    (found,) = await resume_all(WORKER, store=store)
    assert isinstance(found.error, Usage)
    assert (found.run_id, found.tries) == ("p", 0)
    assert "orphan/program" in found.error.next


@stores
async def test_an_unreachable_model_is_tried_again_after_the_others_and_at_most_so_often(
    kind: str, tmp_path: Path
) -> None:
    came: list[str] = []

    def model(after: int) -> Any:
        def answer(request: Request) -> Any:
            what = asked_to(request)
            came.append(what)
            if what == "away" and came.count("away") <= after:
                raise ModelError("nobody there", next="ask later")
            return say("back")

        return answer

    async with opened(kind, tmp_path) as store:
        for expected, tries, after in (("completed", 3, 2), ("interrupted", 3, 9), ("interrupted", 1, 9)):
            came.clear()
            away, near = f"away {expected} {tries}", f"near {expected} {tries}"
            agent = worker(model(after))
            for run_id, said in ((away, "away"), (near, "near")):
                deadly.add(said)
                with pytest.raises(Killed):
                    await run(agent, said, run_id=run_id, store=store)
                await _lapse(store, run_id)
            deadly.clear()
            found = await of(store, agent, tries=tries)
            assert (status(found[away]), found[away].tries) == (expected, tries)
            assert (status(found[near]), found[near].tries) == ("completed", 1)
            assert came == ["away", "near", *["away"] * (tries - 1)]
            # It died at savepoint 0 once; at savepoint 1 it was only interrupted.
            assert (await get_run(store, away)).failures == (1 if tries == 1 else 0)


@given(tried=st.integers(0, 10_000), backoff_s=st.floats(0, 1e6))
def test_the_time_between_two_tries_doubles_and_is_bounded(tried: int, backoff_s: float) -> None:
    assert delay_s(0, 1.0) == 1.0
    assert delay_s(tried, backoff_s) <= delay_s(tried + 1, backoff_s) <= LONGEST_S
    if tried <= 20 and delay_s(tried + 1, backoff_s) < LONGEST_S:
        assert delay_s(tried + 1, backoff_s) == 2 * delay_s(tried, backoff_s)


async def test_an_error_of_one_run_never_stops_the_others() -> None:
    store = MemoryStore()
    broken = Agent(name="broken", tools=(work,), model=ScriptedModel([_call]), systems=("files",))
    for run_id, agent in (("a", worker(name="broken")), ("b", WORKER), ("c", WORKER)):
        await orphan(store, run_id, agent)
    async with store.commit() as tx:
        tx.write(Space.RUN, run_key("b"), b"no record")
    with pytest.raises(Corrupt):
        await orphans(store)
    found = await of(store, broken, WORKER)
    assert isinstance(found["a"].error, Usage)  # it needs a world
    assert isinstance(found["b"].error, Corrupt)
    assert status(found["c"]) == "completed"


async def test_an_error_that_is_none_of_ours_is_told_as_one() -> None:
    store = MemoryStore()
    await orphan(store, "a")
    await orphan(store, "b")

    def listener(event: Any) -> None:
        if getattr(event, "run_id", "") == "a":
            raise ZeroDivisionError("a fault of the listener")

    found = await of(store, WORKER, on_event=listener)
    assert type(found["a"].error) is SavepointError
    assert "run a: ZeroDivisionError: a fault of the listener" in found["a"].error.message
    assert isinstance(found["a"].error.__cause__, ZeroDivisionError)
    assert status(found["b"]) == "completed"


@pytest.mark.parametrize("ending", ["failed", "interrupted", "held", "completed"])
async def test_what_somebody_else_did_meanwhile_is_theirs(ending: str) -> None:
    """Two recoveries list the same runs; while this one is at `a`, the other one continues `b`."""
    store = MemoryStore()
    agent = worker(_unreachable if ending == "interrupted" else say("all done"))
    await orphan(store, "a", WORKER)
    await orphan(store, "b", agent)
    entered: list[str] = []

    class Meanwhile(ScriptedModel):
        async def reply(self, request: Request, *, on_text: Callable[[str], None] | None = None) -> Any:
            entered.append(asked_to(request))
            if entered == ["a"]:
                await self.other()
            return await super().reply(request, on_text=on_text)

        async def other(self) -> None:
            if ending == "held":
                lease = Lease(epoch=9, boot=boot_id(), process=1, deadline_s=1e12)
                async with store.commit() as tx:
                    tx.write(Space.LEASE, run_key("b"), write_lease(lease))
                return
            if ending == "failed":
                record = evolve(await get_run(store, "b"), status=RunStatus.FAILED)
                async with store.commit() as tx:
                    tx.write(Space.RUN, run_key("b"), write_run(record))
                    tx.delete(Space.LEASE, run_key("b"))
                return
            # A process of its own would not know of the run that this one is in.
            await asyncio.create_task(resume("b", agent=agent, store=store), context=Context())

    found = await of(store, worker(name="worker"), model=Meanwhile([_call, say("all done")]))
    assert status(found["a"]) == "completed"
    if ending == "completed":
        assert found["b"].result is not None
        assert found["b"].result.replayed
    else:
        assert isinstance(found["b"].error, Held)
        assert ("meanwhile" in found["b"].error.message) == (ending != "held")
        assert (found["b"].tries, (await get_run(store, "b")).attempts) == (1, 2 if ending == "interrupted" else 1)
    assert entered.count("b") == 0


@stores
async def test_a_poisonous_run_waits_and_its_answer_lets_it_go_on_or_fail(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        for run_id in ("a", "b"):
            await orphan(store, run_id)
            deadly.add(run_id)
            for _ in range(2):
                with pytest.raises(Killed):
                    await resume_all(WORKER, store=store, poison_after=3)
                await _lapse(store, run_id)
            deadly.discard(run_id)
            entered = list(log)
            found = (await of(store, WORKER, poison_after=3))[run_id]
            assert found.result is not None
            (question,) = found.result.questions
            assert (status(found), question.kind, log) == ("waiting", QuestionKind.POISON, entered)
            assert await ids(store) == [], "what waits has no process to lose"
            assert (await resume(run_id, agent=WORKER, store=store)).status is RunStatus.WAITING
            await decide(run_id, question, "redo" if run_id == "a" else "fail", store=store)
            result: Result = await resume(run_id, agent=WORKER, store=store)
            assert result.status.value == ("completed" if run_id == "a" else "failed")


async def test_what_means_nothing_is_refused_before_anything_is_performed() -> None:
    store = MemoryStore()
    await orphan(store, "a")
    for options in ({"tries": 0}, {"backoff_s": -1.0}, {"backoff_s": float("nan")}, {"poison_after": 0}):
        with pytest.raises(Usage) as refused:
            await resume_all(WORKER, store=store, **options)
        assert refused.value.next
    with pytest.raises(Usage, match="two agents are named 'worker'"):
        await resume_all(WORKER, worker(), store=store)
    assert (await get_run(store, "a")).attempts == 1
    assert (await of(store, WORKER, WORKER))["a"].tries == 1


async def test_only_what_may_fare_better_is_tried_again() -> None:
    came: list[tuple[str, int]] = []

    def work(run_id: str, *errors: Exception) -> Work:
        async def attempt(tried: int) -> Result:
            came.append((run_id, tried))
            if tried <= len(errors):
                raise errors[tried - 1]
            return Result(run_id=run_id, status=RunStatus.COMPLETED)

        return attempt

    busy = ModelUnavailable("busy", next="later")
    works = {
        "busy": work("busy", busy, busy),
        "said no": work("said no", Usage("no")),
        "gone": work("gone", busy, Held("x")),
    }
    found = {each.run_id: each for each in await recover(works, tries=5, backoff_s=0.0)}
    assert came == [("busy", 1), ("said no", 1), ("gone", 1), ("busy", 2), ("gone", 2), ("busy", 3)]
    assert (status(found["busy"]), found["busy"].error, found["busy"].tries) == ("completed", None, 3)
    assert isinstance(found["said no"].error, Usage)
    assert (type(found["gone"].error), found["gone"].tries) == (Held, 2)


async def test_orphans_of_a_session_of_yours_are_continued_where_it_is_given():
    store, mine = MemoryStore(), InMemorySession()
    await orphan(store, "a", session=mine, session_id="u1")
    await orphan(store, "b", session_id="u1")
    found = await of(store, WORKER)
    assert isinstance(found["a"].error, Usage)
    assert status(found["b"]) == "completed"
    assert status((await of(store, WORKER, session=mine))["a"]) == "completed"
    assert [each.run_id for each in await mine.segments("u1")] == ["a"]
    assert [each.run_id for each in await StoredSession(store).segments("u1")] == ["b"]
