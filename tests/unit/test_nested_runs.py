"""An agent as a tool is a run inside a run: its own world until it returns, its questions the outer run's, its limits too."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent import Agent, Result, RunStatus, as_tool, decide, fork, resume, run, tool
from agent._context import Context
from agent._entries import TYPES
from agent.testing import ScriptedModel, call, calls, say
from effects import Idempotency
from effects._failure import Failure
from savepoint import (
    KeyValue,
    MemoryStore,
    Usage,
    Workspace,
    World,
    cancel_run,
    discard_run,
    merge_run,
    open_store,
    remove_run,
)
from savepoint._inspect import read_receipts
from savepoint._nested import nested_in
from savepoint._run_result import get_run
from savepoint._store import Store

log: list[str] = []


class Away:
    """The inner model cannot be reached for as long as it is away."""

    times = 0


@pytest.fixture(autouse=True)
def _fresh() -> None:
    log.clear()
    Away.times = 0


@tool(idempotency=Idempotency.CONTAINED)
async def put(context: Context[Any], key: str, value: str) -> str:
    log.append(f"put {key}")
    context.world.system("kv")[key] = value  # type: ignore[index]
    return "kept"


@tool(idempotency=Idempotency.READ)
async def get(context: Context[Any], key: str) -> str:
    return str(context.world.system("kv").get(key))  # type: ignore[attr-defined]


@tool(idempotency=Idempotency.CONTAINED)
async def write(context: Context[Any], name: str, text: str) -> str:
    (context.world.system("files").path / name).write_text(text)  # type: ignore[attr-defined]
    return "written"


@tool(idempotency=Idempotency.ONCE)
async def pay(what: str) -> str:
    log.append(f"pay {what}")
    if what == "lost":
        raise TimeoutError
    return f"paid {what}"


@tool(idempotency=Idempotency.ONCE, approval=True)
async def publish(what: str) -> str:
    log.append(f"publish {what}")
    return "published"


TOOLS = (put, get, write, pay, publish)


def _away(_: Any) -> Any:
    if Away.times > 0:
        Away.times -= 1
        raise OSError("away")
    return say("inner is done")


def inner(*turns: Any, name: str = "helper", **more: Any) -> Agent:
    return Agent(name=name, tools=TOOLS, model=ScriptedModel(turns), **more)


def outer(*inners: Agent, turns: Any = (), **more: Any) -> Agent:
    """Asks its inner agents in one reply, unless `turns` say otherwise."""
    asks = calls(*(call(each.name, input="help") for each in inners))
    tools = (*TOOLS, *(as_tool(each) for each in inners))
    return Agent(name="chief", tools=tools, model=ScriptedModel(turns or [asks, say("all done")]), **more)


def world() -> World:
    return World({"kv": KeyValue({"there": "before"})})


async def nested_of(store: Store, run_id: str = "r") -> list[str]:
    return [each.run_id for each in await nested_in(store, (await get_run(store, run_id)).lineage)]


async def started(agent: Agent, store: Store | None = None, **more: Any) -> tuple[Result, Store]:
    store = store or MemoryStore()
    return await run(agent, "go", run_id="r", store=store, **{"world": world(), **more}), store


# -- the world ---------------------------------------------------------------------------------------------------------


async def test_an_inner_run_sees_the_outer_world_and_merges_into_it_when_it_returns() -> None:
    helper = inner(call("get", key="mine"), call("put", key="his", value="h"), call("get", key="his"), say("helped"))
    turns = [call("put", key="mine", value="m"), call("helper", input="help"), call("get", key="his"), say("end")]
    result, store = await started(outer(helper, turns=turns))
    assert result.status is RunStatus.COMPLETED
    assert [each for each in result.transcript if isinstance(each, str)] == ["kept", "helped", "h"]
    [nested] = await nested_of(store)
    record = await get_run(store, nested)
    assert (record.parent, record.status, record.caused_by) == ("r", RunStatus.COMPLETED, "r@1")
    receipts = {each.receipt.effect for each in await read_receipts(store, "r", TYPES)}
    assert {"agent/begin", "agent/merge"} <= receipts


async def test_nothing_is_merged_before_it_returns() -> None:
    """The inner run stops after its write; the outer world is what it was."""
    Away.times = 1
    helper = inner(call("put", key="his", value="h"), _away)
    agent = outer(helper, turns=[call("helper", input="help"), call("get", key="his"), say("end")])
    result, store = await started(agent)
    assert result.status is RunStatus.INTERRUPTED
    receipts = await read_receipts(store, "r", TYPES)
    assert "agent/merge" not in {each.receipt.effect for each in receipts}
    done = await resume("r", agent=agent, store=store, world=world())
    assert [each for each in done.transcript if isinstance(each, str)] == ["inner is done", "h"]
    assert log == ["put his"], "the inner run went on where it was"
    assert len(await nested_of(store)) == 1


async def test_an_inner_run_that_fails_merges_nothing_and_the_outer_model_is_told() -> None:
    failing = Agent(name="failing", model=ScriptedModel([call("put", key="his", value="h")]), tools=(put,), max_turns=1)
    turns = [call("failing", input="help"), call("get", key="his"), say("end")]
    agent = outer(failing, turns=turns)
    result, store = await started(agent)
    assert [each.kind.value for each in result.questions] == ["budget"], (
        "its limit is its own, the question the outer's"
    )
    await decide("r", result.questions[0], "fail", store=store)
    done = await resume("r", agent=agent, store=store, world=world())
    told, his = list(done.transcript)[2], list(done.transcript)[4]
    assert isinstance(told, Failure)
    assert (told.kind, his) == ("NestedFailed", "None")
    assert "failing did not complete: RuntimeError: the run reached its limit of 1" in told.message


async def test_two_inner_runs_at_once_each_have_a_world_of_their_own() -> None:
    def helper(name: str) -> Agent:
        return inner(call("put", key=name, value=name), call("get", key="other"), say("end"), name=name)

    one, two = helper("one"), helper("two")
    both = calls(call("one", input="x"), call("two", input="x"))
    turns = [both, calls(call("get", key="one"), call("get", key="two")), say("end")]
    result, store = await started(outer(one, two, turns=turns))
    assert [each for each in result.transcript if isinstance(each, str)] == ["end", "end", "one", "two"]
    assert len(await nested_of(store)) == 2


async def test_two_inner_runs_that_change_one_file_conflict_and_the_second_is_refused_whole(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "shared").write_text("host")

    def helper(name: str) -> Agent:
        both = calls(call("write", name="shared", text=name), call("write", name=f"of {name}", text=name))
        return inner(both, say(f"{name} is done"), name=name)

    async with open_store(tmp_path / "store", durability="process") as store:
        agent = outer(helper("one"), helper("two"))
        result, _ = await started(agent, store, world=World({"files": Workspace(tmp_path / "host")}))
        assert result.status is RunStatus.COMPLETED
        ends = list(result.transcript)[2:4]
        [refused] = [each for each in ends if isinstance(each, Failure)]
        [merged] = [each for each in ends if isinstance(each, str)]
        assert (refused.kind, refused.message) == (
            "MergeConflict",
            "world: changed on both sides: files: shared",
        )
        won = merged.split()[0]
        await merge_run(store, "r", World({"files": Workspace(tmp_path / "host")}))
    found = {each.name: each.read_text() for each in (tmp_path / "host").iterdir()}
    assert found == {"shared": won, f"of {won}": won}


# -- what a redone body finds ------------------------------------------------------------------------------------------


async def test_equal_calls_are_runs_of_their_own() -> None:
    helper = inner(call("pay", what="x"), say("paid it"))
    asks = [call("helper", input="pay"), calls(call("helper", input="pay"), call("helper", input="pay")), say("end")]
    result, store = await started(outer(helper, turns=asks))
    assert result.status is RunStatus.COMPLETED
    assert log == ["pay x"] * 3
    assert len(set(await nested_of(store))) == 3


async def test_a_run_inside_a_run_inside_a_run() -> None:
    deepest = inner(call("put", key="deep", value="d"), call("publish", what="deep"), say("deepest"), name="deepest")
    middle = Agent(
        name="middle", tools=(as_tool(deepest), get), model=ScriptedModel([call("deepest", input="x"), say("middle")])
    )
    agent = outer(middle, turns=[call("middle", input="x"), call("get", key="deep"), say("end")])
    result, store = await started(agent)
    assert [(each.kind.value, each.effect) for each in result.questions] == [("approval", "publish")]
    await decide("r", result.questions[0], "approve", store=store)
    done = await resume("r", agent=agent, store=store, world=world())
    assert (done.output, list(done.transcript)[4]) == ("end", "d")
    assert log == ["put deep", "publish deep"]


# -- questions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", ["approve", "deny"])
async def test_a_question_of_an_inner_run_is_asked_and_answered_under_the_outer_id(verdict: str) -> None:
    helper = inner(call("publish", what="news"), say("inner end"))
    agent = outer(helper)
    result, store = await started(agent)
    [question] = result.questions
    assert (result.status, question.effect, question.arguments) == (RunStatus.WAITING, "publish", {"what": "news"})
    again = await resume("r", agent=agent, store=store, world=world())
    assert [each.id for each in again.questions] == [question.id]
    assert helper.model.asked == 1  # type: ignore[union-attr]
    await decide("r", question.id, verdict, store=store, note="not today", agent=agent)
    done = await resume("r", agent=agent, store=store, world=world())
    assert (done.status, done.output) == (RunStatus.COMPLETED, "all done")
    assert log == (["publish news"] if verdict == "approve" else [])
    heard = helper.model.requests[-1].messages[-1].text  # type: ignore[union-attr]
    assert ("published" in heard) is (verdict == "approve")
    assert ("not today" in heard) is (verdict == "deny")


async def test_a_call_of_unknown_end_inside_is_asked_about_and_nothing_of_the_outer_run_goes_on() -> None:
    helper = inner(call("pay", what="lost"), say("inner end"))
    agent = outer(helper, turns=[calls(call("helper", input="x"), call("pay", what="mine")), say("all done")])
    result, store = await started(agent)
    [question] = result.questions
    assert (question.kind.value, question.effect, question.arguments) == ("in_doubt", "pay", {"what": "lost"})
    waiting = await resume("r", agent=agent, store=store, world=world())
    assert waiting.status is RunStatus.WAITING
    assert sorted(log) == ["pay lost", "pay mine"]
    await decide("r", question, "performed", store=store, value="paid after all")
    done = await resume("r", agent=agent, store=store, world=world())
    assert done.status is RunStatus.COMPLETED
    assert sorted(log) == ["pay lost", "pay mine"]


# -- on its own --------------------------------------------------------------------------------------------------------


async def test_an_inner_run_is_not_resumed_or_ended_in_any_way_on_its_own() -> None:
    helper = inner(call("publish", what="x"), say("end"))
    agent = outer(helper)
    _, store = await started(agent)
    [nested] = await nested_of(store)
    before = await get_run(store, nested)
    ways: list[Callable[[], Any]] = [
        lambda: resume(nested, agent=helper, store=store, world=world()),
        lambda: run(helper, "x", run_id=nested, store=store, world=world()),
        lambda: run(helper, "x", run_id=nested, store=store, world=world(), if_run_exists="restart"),
        lambda: run(helper, "x", run_id=nested, store=store, world=world(), if_run_exists="restart", abandon=True),
        lambda: run(helper, "x", run_id=nested, store=store, world=world(), if_run_exists="resume_only"),
        lambda: fork(nested, agent=helper, store=store, world=world()),
        lambda: cancel_run(store, nested),
        lambda: merge_run(store, nested, world()),
        lambda: discard_run(store, nested),
        lambda: remove_run(store, nested),
    ]
    for way in ways:
        with pytest.raises(Usage, match=f"run {nested} is nested in run r") as refused:
            await way()
        assert refused.value.next.removeprefix("savepoint ") in {"resume r", "cancel r", "merge r", "discard r", "rm r"}
    assert await get_run(store, nested) == before
    assert log == []


async def test_a_restart_of_the_outer_run_begins_inner_runs_anew() -> None:
    helper = inner(call("put", key="k", value="v"), say("end"))
    agent = outer(helper)
    first, store = await started(agent)
    before = await nested_of(store)
    again, _ = await started(agent, store, if_run_exists="restart")
    assert (first.status, again.status, again.replayed) == (RunStatus.COMPLETED, RunStatus.COMPLETED, False)
    assert not set(before) & set(await nested_of(store))
    assert log == ["put k", "put k"]


async def test_a_fork_of_the_outer_run_has_inner_runs_of_its_own() -> None:
    helper = inner(call("pay", what="x"), say("end"))
    agent = outer(helper, turns=[call("get", key="there"), call("helper", input="x"), say("end")])
    _, store = await started(agent)
    forked = await fork("r", agent=agent, store=store, at=1, fork_id="f", world=world())
    assert (forked.status, forked.may_repeat) == (RunStatus.COMPLETED, ("agent/begin", "pay"))
    assert log == ["pay x", "pay x"]
    assert not set(await nested_of(store, "r")) & set(await nested_of(store, "f"))


# -- limits ------------------------------------------------------------------------------------------------------------


async def test_what_the_outer_run_is_held_to_holds_inside() -> None:
    helper = inner(call("pay", what="x"), call("put", key="k", value="v"), say("end"))
    agent = outer(helper)
    result, store = await started(agent, allowed_tools=["helper", "put"], classes={"put": "idempotent"})
    assert result.status is RunStatus.COMPLETED
    assert log == ["put k"]
    [nested] = await nested_of(store)
    puts = [each.receipt for each in await read_receipts(store, nested, TYPES) if each.receipt.effect == "put"]
    assert [each.idempotency for each in puts] == [Idempotency.IDEMPOTENT]
    shown = helper.model.requests[0].tools  # type: ignore[union-attr]
    assert [each.name for each in shown] == ["put"]
    assert "not allowed in this run" in helper.model.requests[1].messages[-1].text  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("before", "now", "paid"), [(None, ["helper"], []), (["helper"], ["helper", "pay"], ["pay x"])]
)
async def test_what_a_resume_holds_the_outer_run_to_holds_for_an_inner_one_under_way(
    before: list[str] | None, now: list[str], paid: list[str]
) -> None:
    Away.times = 1

    def first(request: Any) -> Any:
        _away(request)
        return call("pay", what="x")

    helper = inner(first, say("end"))
    agent = outer(helper)
    result, store = await started(agent, allowed_tools=before)
    assert result.status is RunStatus.INTERRUPTED
    done = await resume("r", agent=agent, store=store, world=world(), allowed_tools=now)
    assert (done.status, log) == (RunStatus.COMPLETED, paid)
    [nested] = await nested_of(store)
    for run_id in ("r", nested):
        assert (await get_run(store, run_id)).meta["widened"] == [
            {"attempt": 2, "changes": {"allowed_tools": [before, sorted(now)]}}
        ]


async def test_an_inner_run_may_hand_over_and_goes_on_there_after_a_stop() -> None:
    Away.times = 1
    expert = inner(say("not my turn"), call("put", key="k", value="v"), _away, name="expert")
    helper = inner(call("transfer_to_expert"), handoffs=(expert,))
    agent = outer(helper, turns=[call("helper", input="x"), say("chief is done")])
    result, store = await started(agent)
    assert result.status is RunStatus.INTERRUPTED
    done = await resume("r", agent=agent, store=store, world=world())
    assert (done.output, list(done.transcript)[2]) == ("chief is done", "inner is done")
    assert (log, helper.model.asked, expert.model.asked) == (["put k"], 1, 3)  # type: ignore[union-attr]


async def test_a_read_only_world_is_read_only_inside() -> None:
    helper = inner(call("put", key="k", value="v"), call("get", key="k"), say("end"))
    result, _ = await started(outer(helper), read_only=True)
    assert result.status is RunStatus.COMPLETED
    told, seen = (each.messages[-1].text for each in helper.model.requests[1:])  # type: ignore[union-attr]
    assert "read-only; undone: kv" in told
    assert "None" in seen


async def test_an_inner_agents_limit_of_turns_is_granted_under_the_outer_id() -> None:
    helper = inner(call("get", key="a"), call("get", key="b"), say("end"), max_turns=1)
    agent = outer(helper)
    result, store = await started(agent)
    assert [each.kind.value for each in result.questions] == ["budget"]
    await decide("r", result.questions[0], "grant", store=store, value=2)
    done = await resume("r", agent=agent, store=store, world=world())
    assert (done.status, helper.model.asked) == (RunStatus.COMPLETED, 3)  # type: ignore[union-attr]


async def test_an_agent_as_a_tool_works_in_a_run_alone() -> None:
    with pytest.raises(Usage, match="wants a Context was called outside of an agent's run"):
        await as_tool(inner(say("x")))(input="x")


async def test_inner_runs_at_once_are_many(tmp_path: Path) -> None:
    """Twenty in one reply: each is its own run, and none waits for another one's decision."""
    helper = inner(call("put", key="same", value="v"), say("end"))
    agent = outer(helper, turns=[calls(*(call("helper", input=str(n)) for n in range(20))), say("all done")])
    result, store = await asyncio.wait_for(started(agent), 20)
    assert result.status is RunStatus.COMPLETED
    assert len(set(await nested_of(store))) == 20
