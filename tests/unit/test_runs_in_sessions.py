"""Runs that talk in a session, ours or one of your own: what they begin with, what they leave there, and when."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from agent import (
    Agent,
    Idempotency,
    Reply,
    Rewindable,
    RunStatus,
    Segment,
    StoredSession,
    User,
    drop_dangling_tool_calls,
    resume,
    run,
    tool,
)
from agent._answer import Usage as Cost
from agent._context import Context
from agent._entries import TYPES, ToolCall
from agent.testing import ScriptedModel, call, say
from savepoint import Conflict, KeyValue, MemoryStore, Usage, World, merge_run
from savepoint._crashpoint import CrashPoint
from savepoint._inspect import read_receipts
from savepoint._run_result import get_run
from savepoint._stored import get_value
from savepoint.testing import arm

log: list[str] = []


class Away:
    times = 0


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture(autouse=True)
def _fresh() -> None:
    log.clear()
    Away.times = 0


@tool(idempotency=Idempotency.ONCE)
async def post(what: str) -> str:
    log.append(what)
    return f"posted {what}"


def _end(request: Any) -> Any:
    if Away.times > 0:
        Away.times -= 1
        raise OSError("away")
    return say(f"answer to {request.messages[request.history].content}")


def agent() -> Agent:
    return Agent(name="a", tools=(post,), model=ScriptedModel([call("post", what="x"), _end]))


def asked(agent: Agent) -> list[Any]:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model.requests


class Mine:
    """A session of an application's own, as little as the protocol asks for."""

    def __init__(self) -> None:
        self.parts: dict[str, list[Segment]] = {}
        self.appended = 0

    async def segments(self, session_id: str) -> Sequence[Segment]:
        return tuple(self.parts.get(session_id, ()))

    async def load(self, session_id: str) -> Sequence[object]:
        return [entry for each in self.parts.get(session_id, ()) for entry in each.entries]

    async def append(
        self,
        session_id: str,
        entries: Sequence[object],
        *,
        run_id: str | None = None,
        meta: Mapping[str, object] | None = None,
    ) -> str:
        self.appended += 1
        known = self.parts.setdefault(session_id, [])
        if run_id is None or run_id not in {each.run_id for each in known}:
            known.append(Segment(run_id=run_id, entries=tuple(entries), meta=dict(meta or {})))
        return ""

    async def clear(self, session_id: str) -> None:
        self.parts.pop(session_id, None)

    async def ids(self) -> Sequence[str]:
        return sorted(self.parts)


KINDS = pytest.mark.parametrize("kind", ["ours", "mine"])


def sessions(kind: str, store: MemoryStore) -> tuple[Any, dict[str, Any]]:
    """A session, and how a run is told of it."""
    mine = Mine()
    return (StoredSession(store), {}) if kind == "ours" else (mine, {"session": mine})


@KINDS
async def test_the_next_run_begins_with_what_the_runs_before_it_said(kind: str) -> None:
    store = MemoryStore()
    session, how = sessions(kind, store)
    first = await run(agent(), "one", run_id="r1", store=store, session_id="u1", **how)
    second = agent()
    result = await run(second, "two", run_id="r2", store=store, session_id="u1", **how)
    assert [each.history for each in asked(second)] == [4, 4]
    assert list(result.transcript)[:4] == list(first.transcript)
    assert [(each.run_id, len(each.entries)) for each in await session.segments("u1")] == [("r1", 4), ("r2", 4)]
    assert list(await session.load("u1")) == list(result.transcript)
    await run(agent(), "three", store=store, session_id="u2", **how)
    assert [len(each.entries) for each in await session.segments("u2")] == [4], (
        "another conversation knows nothing of it"
    )


@KINDS
async def test_what_a_run_took_is_timed_from_its_first_start_over_all_attempts(kind: str) -> None:
    store = MemoryStore()
    session, how = sessions(kind, store)
    Away.times = 2
    await run(agent(), "one", run_id="r", store=store, session_id="u1", **how)
    began = (await get_run(store, "r")).created_at
    await resume("r", agent=agent(), store=store, **how)
    assert (await resume("r", agent=agent(), store=store, **how)).status is RunStatus.COMPLETED
    record = await get_run(store, "r")
    [segment] = await session.segments("u1")
    assert record.attempts == 3
    assert segment.meta["timing"] == {"started_at": began, "finished_at": record.ended_at}
    await run(agent(), "again", run_id="r", store=store, session_id="u1", **how)
    assert list(await session.segments("u1")) == [segment], "a replay does not move it"


@KINDS
async def test_a_run_that_did_not_complete_is_not_in_the_session(kind: str) -> None:
    store = MemoryStore()
    session, how = sessions(kind, store)
    Away.times = 1
    assert (await run(agent(), "one", run_id="r", store=store, session_id="u1", **how)).status is RunStatus.INTERRUPTED
    assert list(await session.load("u1")) == []
    assert (await run(agent(), "two", run_id="other", store=store, session_id="u1", **how)).output == "answer to two"
    await resume("r", agent=agent(), store=store, **how)
    assert [each.run_id for each in await session.segments("u1")] == ["other", "r"]
    assert log == ["x", "x"]


async def test_a_partial_run_may_be_recorded_by_its_caller_and_then_does_not_come_twice() -> None:
    store = MemoryStore()
    session = StoredSession(store)
    Away.times = 1
    await run(agent(), "one", run_id="r", store=store, session_id="u1")
    part = [User(content="one"), Reply(text="hm", calls=(ToolCall(id="0.0", tool="post", arguments="{}"),))]
    with pytest.raises(Usage, match=r"call 0\.0 \(post\) of entry 1 has no outcome") as refused:
        await session.append("u1", part, run_id="r")
    assert "drop_dangling_tool_calls" in refused.value.next
    assert await session.append("u1", drop_dangling_tool_calls(part), run_id="r") == ""
    done = await resume("r", agent=agent(), store=store)
    assert done.warnings == ("session 'u1' holds another part of run 'r': the new one was not appended",)
    assert list(await session.load("u1")) == [User(content="one"), Reply(text="hm")]


async def test_a_session_that_is_not_known_is_an_empty_conversation() -> None:
    store = MemoryStore()
    new = agent()
    result = await run(new, "hello", store=store, session_id="never heard of")
    assert (asked(new)[0].history, len(result.transcript)) == (0, 4)
    assert list(await StoredSession(store).load("nor of this one")) == []
    assert await StoredSession(store).ids() == ["never heard of"]


async def test_what_died_between_landing_and_deleting_still_replays_and_is_deleted_then() -> None:
    store = MemoryStore()

    def die(point: CrashPoint) -> None:
        if point is CrashPoint.LAND_AFTER:
            raise Killed

    former = arm(die)
    with pytest.raises(Killed):
        await run(agent(), "one", run_id="r", store=store, session_id="u1", delete_on_success=True)
    arm(former)
    assert not (await get_run(store, "r")).removed
    assert len(await StoredSession(store).load("u1")) == 4
    again = agent()
    assert (await run(again, "one", run_id="r", store=store, session_id="u1")).replayed
    assert ((await get_run(store, "r")).removed, asked(again)) == (True, [])
    assert len(await StoredSession(store).load("u1")) == 4


async def test_what_each_reply_cost_is_kept_beside_its_receipt_and_paid_once() -> None:
    store = MemoryStore()
    cost = Cost(input_tokens=60, output_tokens=40)

    def dear() -> Agent:
        return Agent(name="a", tools=(post,), model=ScriptedModel([call("post", what="x"), _end], usage=cost))

    Away.times = 1
    await run(dear(), "one", run_id="r", store=store)
    await resume("r", agent=dear(), store=store)
    assert (await run(dear(), "one", run_id="r", store=store)).replayed
    receipts = [each.receipt for each in await read_receipts(store, "r", TYPES)]
    notes: list[Any] = [
        await get_value(store, each.note, TYPES)
        for each in receipts
        if each.effect == "agent/model" and each.note is not None
    ]
    assert [each["usage"] for each in notes] == [cost, cost]


# -- one of your own ----------------------------------------------------------------------------------------------------


async def test_a_replay_appends_to_your_own_session_what_a_death_left_out() -> None:
    store, mine = MemoryStore(), Mine()

    async def dead(*_: Any, **__: Any) -> str:
        raise Killed

    append, mine.append = mine.append, dead  # type: ignore[method-assign]
    with pytest.raises(Killed):
        await run(agent(), "one", run_id="r", store=store, session_id="u1", session=mine)
    mine.append = append  # type: ignore[method-assign]
    again = agent()
    for _ in range(2):
        result = await run(again, "one", run_id="r", store=store, session_id="u1", session=mine)
        assert (result.output, result.replayed, result.warnings) == ("answer to one", True, ())
    assert [(each.run_id, len(each.entries)) for each in await mine.segments("u1")] == [("r", 4)]
    assert (asked(again), log) == ([], ["x"])


async def test_your_own_session_is_given_again_by_every_attempt() -> None:
    store, mine = MemoryStore(), Mine()
    Away.times = 1
    await run(agent(), "one", run_id="r", store=store, session_id="u1", session=mine)
    with pytest.raises(Usage, match="run r belongs to session u1, which is kept in a session of yours") as refused:
        await resume("r", agent=agent(), store=store)
    assert refused.value.next == "pass session= as at its start"
    await run(agent(), "one", run_id="s", store=store, session_id="u1")
    with pytest.raises(Usage, match="kept in the run's own store"):
        await run(agent(), "one", run_id="s", store=store, session_id="u1", session=mine)
    assert (await resume("r", agent=agent(), store=store, session=mine)).status is RunStatus.COMPLETED
    with pytest.raises(Usage, match=r"session= without session_id="):
        await run(agent(), "one", store=store, session=mine)


async def test_a_run_whose_footing_in_your_own_session_is_gone_does_not_go_on() -> None:
    store, mine = MemoryStore(), Mine()
    await mine.append("u1", [User(content="before")])
    Away.times = 1
    await run(agent(), "one", run_id="r", store=store, session_id="u1", session=mine)
    await mine.clear("u1")
    again = agent()
    with pytest.raises(Conflict, match="session u1 changed since run r began"):
        await resume("r", agent=again, store=store, session=mine)
    assert (asked(again), await mine.load("u1")) == ([], [])


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([User(content="x"), "an outcome"], r"entry 1 \(str\) is an outcome without a call"),
        ([Reply(calls=(ToolCall(id="0.0", tool="t", arguments="{}"),))], r"call 0\.0 \(t\) of entry 0 has no outcome"),
        (
            [Reply(calls=tuple(ToolCall(id="0.0", tool="t", arguments="{}") for _ in range(2))), 1, 2],
            r"call 0\.0 of entry 0",
        ),
    ],
)
async def test_what_your_own_session_loads_reaches_no_model_where_it_does_not_pair(
    entries: list[object], words: str
) -> None:
    store, mine = MemoryStore(), Mine()
    await mine.append("u1", entries)
    new = agent()
    with pytest.raises(Usage, match=words) as refused:
        await run(new, "one", run_id="r", store=store, session_id="u1", session=mine)
    assert "drop_dangling_tool_calls" in refused.value.next
    assert (asked(new), store._rows) == ([], {})


def test_a_session_that_cannot_be_rewound_is_told_from_one_that_can() -> None:
    assert not isinstance(Mine(), Rewindable)
    assert isinstance(StoredSession(MemoryStore()), Rewindable)


# -- what is kept -------------------------------------------------------------------------------------------------------


async def test_a_merge_before_the_landing_does_not_move_when_the_run_ended() -> None:
    store, host = MemoryStore(), World({"kv": KeyValue()})

    def die(point: CrashPoint) -> None:
        if point is CrashPoint.LAND_BEFORE:
            raise Killed

    former = arm(die)
    with pytest.raises(Killed):
        await run(agent(), "one", run_id="r", store=store, world=host, session_id="u1")
    arm(former)
    await merge_run(store, "r", host)
    await run(agent(), "one", run_id="r", store=store, world=host, session_id="u1")
    record = await get_run(store, "r")
    [segment] = await StoredSession(store).segments("u1")
    assert record.changed_at > record.ended_at == segment.meta["timing"]["finished_at"]  # type: ignore[index]


async def test_a_run_that_changed_its_world_is_deleted_only_when_that_is_settled() -> None:
    """Its changes are nowhere else."""

    @tool(idempotency=Idempotency.CONTAINED)
    async def put(context: Context[Any], key: str) -> str:
        kv: Any = context.world.system("kv")
        kv[key] = 1
        return "kept"

    def keeper() -> Agent:
        return Agent(name="a", tools=(put,), model=ScriptedModel([call("put", key="mine"), say("done")]))

    store, host = MemoryStore(), World({"kv": KeyValue()})
    how: dict[str, Any] = {"run_id": "r", "store": store, "world": host, "session_id": "u1", "delete_on_success": True}
    first = await run(keeper(), "one", **how)
    assert first.output == "done"
    assert first.warnings == (
        "run r changed its world, which is not merged: it is not deleted before savepoint merge r, or discard r",
    )
    assert not (await get_run(store, "r")).removed
    assert await merge_run(store, "r", host) != {}
    again = await run(keeper(), "one", **how)
    assert (again.output, again.replayed, again.warnings) == ("done", True, ())
    assert (await get_run(store, "r")).removed
    assert len(await StoredSession(store).load("u1")) == 4
