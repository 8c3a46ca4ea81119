"""Faults of nested runs, restrictions and restarts that a reading found, each with its schedule."""

import asyncio
from typing import Any

import pytest

from agent import Agent, Context, StoredSession, User, as_tool, decide, resume, run, tool
from agent.testing import ScriptedModel, call, calls, say
from effects import Call, Idempotency, Performed
from savepoint import Abandon, Conflict, MemoryStore, Point, RunStatus, Usage, World, at_savepoint, remove_run
from savepoint._keyvalue import KeyValue
from savepoint._nested import nested_in
from savepoint._run import Recovery
from savepoint._run_result import find_run, get_run
from savepoint.testing import CrashPoint, arm


@tool(idempotency=Idempotency.ONCE)
async def pay(what: str) -> str:
    """Pays."""
    return f"paid {what}"


@tool(idempotency=Idempotency.ONCE, approval=True)
async def big_pay(what: str) -> str:
    """Pays much."""
    return f"paid {what}"


def outer_of(inner: Agent, *turns) -> Agent:
    return Agent(name="outer", model=ScriptedModel([*turns, say("all done")]), tools=[as_tool(inner)])


class Died(BaseException):
    """A process that dies, as far as the store can tell."""


@pytest.fixture
async def died_before_landing():
    def hook(point: CrashPoint) -> None:
        if point is CrashPoint.LAND_BEFORE:
            raise Died

    store, agent = MemoryStore(), Agent(name="a", model=ScriptedModel([say("fine")]))
    former = arm(hook)
    try:
        with pytest.raises(Died):
            await run(agent, "hi", store=store, run_id="x", session_id="s")
    finally:
        arm(former)
    return store, agent


async def inner_run(store) -> str:
    (nested,) = await nested_in(store, (await get_run(store, "o")).lineage)
    return nested.run_id


async def test_a_run_nested_in_the_first_attempt_of_a_strict_run_is_strict():
    store = MemoryStore()
    inner = Agent(name="inner", model=ScriptedModel([say("done")]))
    await run(outer_of(inner, call("inner", input="go")), "hi", store=store, run_id="o", recovery="strict")
    assert (await get_run(store, await inner_run(store))).recovery is Recovery.STRICT


async def test_a_nested_run_that_was_abandoned_is_an_end_that_the_outer_one_goes_on_from():
    """Also where the outer one died before it knew."""
    store, dying = MemoryStore(), [True]
    inner = Agent(name="inner", model=ScriptedModel([call("pay", what="1"), say("done")]), tools=[pay])
    outer = outer_of(inner, call("inner", input="go"))

    async def abandon(point: Point) -> None:
        if point.resume is not None and point.resume.arguments["agent"] == "inner":
            raise Abandon

    def hook(point: CrashPoint) -> None:
        if point is CrashPoint.END_AFTER and dying.pop():
            raise Died

    former = arm(hook)
    try:
        with at_savepoint(abandon), pytest.raises(Died):
            await run(outer, "hi", store=store, run_id="o", lease_s=0.1)
    finally:
        arm(former)
    assert (await get_run(store, await inner_run(store))).status is RunStatus.CANCELLED
    await asyncio.sleep(0.3)
    result = await resume("o", agent=outer, store=store)
    for again in (result, await resume("o", agent=outer, store=store)):
        assert (again.status, again.output, again.questions) == (RunStatus.COMPLETED, "all done", ())
    assert result.transcript[2].kind == "NestedFailed"
    assert "cancelled" in result.transcript[2].message


async def test_what_the_outer_run_is_held_to_now_holds_for_a_nested_one_that_began_before():
    store = MemoryStore()
    inner = Agent(
        name="inner",
        model=ScriptedModel([call("big_pay", what="1"), call("pay", what="2"), say("done")]),
        tools=[big_pay, pay],
    )
    outer = outer_of(inner, call("inner", input="go"))
    (question,) = (await run(outer, "hi", store=store, run_id="o")).questions
    await decide("o", question.id, "approve", store=store)
    result = await resume("o", agent=outer, store=store, allowed_tools=["inner", "big_pay"])
    assert result.status is RunStatus.COMPLETED
    model: Any = inner.model
    seen = model.requests[-1]
    assert seen.messages[-1].text == "Denied: pay is not allowed in this run"
    assert [each.name for each in seen.tools] == ["big_pay"]
    assert (await get_run(store, await inner_run(store))).meta["widened"] == [
        {"attempt": 2, "changes": {"allowed_tools": [None, ["big_pay", "inner"]]}}
    ]


async def test_a_tool_that_returns_a_transcript_entry_does_not_break_the_transcript():
    @tool(idempotency=Idempotency.ONCE)
    async def ask_somebody(what: str) -> User:
        """Asks."""
        return User(content=f"do {what}")

    store = MemoryStore()
    model = ScriptedModel([call("ask_somebody", what="it"), say("fine")])
    result = await run(Agent(name="a", model=model, tools=[ask_somebody]), "hi", store=store, session_id="s")
    assert (result.status, result.output, result.warnings) == (RunStatus.COMPLETED, "fine", ())
    last: Any = model.requests[-1].messages[-1]
    assert last.text.startswith('{"content": "do it"')
    assert len(await StoredSession(store).load("s")) == 4


async def test_what_a_run_completed_is_in_its_session_before_a_restart_replaces_it(died_before_landing):
    store, agent = died_before_landing
    session = StoredSession(store)
    assert await session.pending_runs("s") == ["x"]
    await run(agent, "again", store=store, run_id="x", if_run_exists="restart")
    assert [each.run_id for each in await session.outline("s")] == ["x"]
    assert await session.pending_runs("s") == []


async def test_limits_that_are_given_to_a_waiting_run_are_not_lost_in_silence():
    store = MemoryStore()
    agent = Agent(name="a", model=ScriptedModel([call("pay", what="1"), say("fine")]), tools=[pay])
    (question,) = (await run(agent, "hi", store=store, run_id="x", max_turns=1)).questions
    result = await resume("x", agent=agent, store=store, max_turns=5)
    assert result.status is RunStatus.WAITING
    assert "was not changed" in result.warnings[0]
    assert (await resume("x", agent=agent, store=store)).warnings == ()
    await decide("x", question.id, "grant", value=1, store=store)
    result = await resume("x", agent=agent, store=store, max_turns=5)
    assert (result.status, result.warnings) == (RunStatus.COMPLETED, ())


async def test_a_composite_tool_changes_nothing_in_a_read_only_world():
    @tool(idempotency=Idempotency.COMPOSITE)
    async def write(context: Context, what: str) -> str:
        """Writes."""
        context.world.system("kv")["key"] = what
        return "written"

    @tool(idempotency=Idempotency.CONTAINED)
    async def look(context: Context) -> int:
        """Looks."""
        return len(context.world.system("kv"))

    store, world = MemoryStore(), World({"kv": KeyValue()})
    model = ScriptedModel([calls(call("write", what="1"), call("look")), call("write", what="2"), say("fine")])
    agent = Agent(name="a", model=model, tools=[write, look])
    result = await run(agent, "hi", store=store, run_id="x", world=world, read_only=True)
    assert result.status is RunStatus.COMPLETED
    assert [result.transcript[place].kind for place in (2, 5)] == ["Refused", "Refused"]
    assert result.transcript[3] in (0, 1)
    record = await get_run(store, "x")
    assert record.base == record.final


async def test_a_handoff_that_a_nested_run_could_not_make_is_refused_before_anything_is_performed():
    inner = Agent(name="inner", model=ScriptedModel([call("transfer_to_outer")]), handoffs=("outer",))
    store, outer = MemoryStore(), outer_of(inner, call("inner", input="go"))
    with pytest.raises(Usage, match="a handoff of 'inner' names the agent 'outer', which 'inner' does not reach"):
        await run(outer, "hi", store=store, run_id="o")
    assert await find_run(store, "o") is None


@pytest.mark.parametrize("turns", [0, -1, 1.5, "3", True])
async def test_a_limit_that_is_no_number_of_turns_is_refused_before_a_run_begins(turns):
    store, agent = MemoryStore(), Agent(name="a", model=ScriptedModel([say("fine")]))
    with pytest.raises(Usage, match="not a number of model replies"):
        await run(agent, "hi", store=store, run_id="x", max_turns=turns)
    assert await find_run(store, "x") is None


async def test_an_attempt_that_ends_while_a_nested_run_is_probed_gives_that_one_back():
    inside, probing = asyncio.Event(), asyncio.Event()

    @tool(idempotency=Idempotency.ONCE)
    async def hang(what: str) -> str:
        """Hangs."""
        inside.set()
        return await asyncio.Event().wait() and what

    async def cancelled(attempt, reached: asyncio.Event) -> None:
        task = asyncio.create_task(attempt)
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    inner = Agent(name="inner", model=ScriptedModel([call("hang", what="1"), say("done")]), tools=[hang])
    store, outer = MemoryStore(), outer_of(inner, call("inner", input="go"))
    await cancelled(run(outer, "hi", store=store, run_id="o"), inside)

    @hang.probe
    async def was_done(_: Call) -> Performed[str]:
        if probing.is_set():
            return Performed("found")
        probing.set()
        await asyncio.Event().wait()
        return Performed("never")

    await cancelled(resume("o", agent=outer, store=store), probing)
    assert (await get_run(store, await inner_run(store))).status is RunStatus.INTERRUPTED
    result = await resume("o", agent=outer, store=store)
    assert (result.status, result.output) == (RunStatus.COMPLETED, "all done")


async def test_a_waiting_run_whose_session_was_rewound_says_so_before_anybody_answers_it():
    store = MemoryStore()
    first = Agent(name="a", model=ScriptedModel([say("fine")]))
    second = Agent(name="a", model=ScriptedModel([call("big_pay", what="1"), say("paid")]), tools=[big_pay])
    await run(first, "hi", store=store, run_id="x", session_id="s")
    assert (await run(second, "pay", store=store, run_id="y", session_id="s")).status is RunStatus.WAITING
    assert (await resume("y", agent=second, store=store)).status is RunStatus.WAITING
    await StoredSession(store).rewind("s", keep_entries=0)
    with pytest.raises(Conflict, match="session s changed since run y began"):
        await resume("y", agent=second, store=store)


async def test_what_no_body_is_looked_at_for_does_not_change_a_read_only_world_either():
    @tool(idempotency=Idempotency.PURE)
    async def sneak(context: Context[Any], what: str) -> str:
        """Writes, though it says that it depends on its arguments only."""
        kv: Any = context.world.system("kv")
        kv["key"] = what
        return what

    store = MemoryStore()
    agent = Agent(name="a", model=ScriptedModel([call("sneak", what="x"), say("fine")]), tools=[sneak])
    await run(agent, "hi", store=store, run_id="x", world=World({"kv": KeyValue()}), read_only=True)
    record = await get_run(store, "x")
    assert record.final == record.base is not None


async def test_a_completed_run_is_not_removed_before_it_is_in_its_session(died_before_landing):
    store, agent = died_before_landing
    with pytest.raises(Conflict, match="its part is not in its session yet"):
        await remove_run(store, "x")
    await remove_run(store, "x", abandon=True)
    assert await StoredSession(store).pending_runs("s") == []
    assert (await run(agent, "hi", store=store, run_id="x", session_id="s")).replayed
    assert list(await StoredSession(store).load("s")) == []
