"""Handoffs: what a graph may be, who answers next, and that a transfer which fired is neither lost nor made twice."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import pytest

from agent import Agent, Result, RunStatus, decide, fork, resume, run, tool
from agent._graph import graph_of
from agent._model import Request
from agent.testing import ScriptedModel, Turn, call, calls, say
from effects import Idempotency
from effects._failure import Failure
from savepoint import MemoryStore, Usage
from savepoint._run_result import get_run

asked: list[str] = []
"""the agents whose models were asked, in order"""
entered: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    asked.clear()
    entered.clear()


class Noted(ScriptedModel):
    """Says whose model is asked, and what it is told."""

    def __init__(self, agent: str, turns: Sequence[Any]) -> None:
        super().__init__(turns, name=f"model of {agent}")
        self._agent = agent

    async def reply(self, request: Any, **more: Any) -> Any:
        asked.append(f"{self._agent}: {request.instructions}")
        return await super().reply(request, **more)


def agent(name: str, *turns: Any, **more: Any) -> Agent:
    """Its turns are those of the whole run: it says those that are its."""
    return Agent(name=name, instructions=f"you are {name}", model=Noted(name, turns), **more)


def requests_of(agent: Agent) -> list[Request]:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model.requests


NOT_MINE = say("it was not my turn")


@tool(idempotency=Idempotency.READ)
async def slow(ms: int) -> str:
    entered.append(f"{ms}")
    await asyncio.sleep(ms / 1000)
    return f"took {ms}"


# -- graphs -----------------------------------------------------------------------------------------------------------


def test_two_agents_of_one_name_are_refused_when_the_graph_is_built() -> None:
    helpers = [Agent(name="helper"), Agent(name="helper")]
    with pytest.raises(Usage, match="two agents are named 'helper'") as refused:
        graph_of(Agent(name="a", handoffs=helpers))
    assert "a savepoint keeps" in refused.value.next
    with pytest.raises(Usage, match="two agents are named 'a'"):
        graph_of(Agent(name="a", handoffs=(Agent(name="b", handoffs=(Agent(name="a"),)),)))


async def test_a_graph_that_cannot_be_is_refused_before_anything_is_written() -> None:
    store = MemoryStore()
    twice = Agent(name="a", model=ScriptedModel([say("x")]), handoffs=(Agent(name="b"), Agent(name="b")))
    with pytest.raises(Usage, match="two agents are named 'b'"):
        await run(twice, "go", run_id="r", store=store)
    assert store._rows == {}


def test_an_agent_that_is_reached_on_two_ways_is_one() -> None:
    last = Agent(name="last")
    graph = graph_of(Agent(name="a", handoffs=(Agent(name="b", handoffs=(last,)), last)))
    assert list(graph.agents) == ["a", "b", "last"]


@pytest.mark.parametrize(
    ("handoffs", "words"),
    [
        (("nobody",), "a handoff of 'a' names the agent 'nobody', which 'a' does not reach (it reaches: a)"),
        (("a",), "the agent 'a' hands over to itself"),
        (
            (Agent(name="b!"), Agent(name="b?")),
            "the handoff of 'a' to 'b?' is called 'transfer_to_b_', like the handoff",
        ),
        ((Agent(name="x" * 52 + "1"), Agent(name="x" * 52 + "2")), "like the handoff to 'xxx"),
    ],
)
def test_a_handoff_that_cannot_be_told_is_refused_by_name(handoffs: Any, words: str) -> None:
    with pytest.raises(Usage, match=re.escape(words)) as refused:
        graph_of(Agent(name="a", handoffs=handoffs))
    assert refused.value.next


def test_a_tool_may_not_have_the_name_of_a_transfer() -> None:
    @tool(name="transfer_to_b", idempotency=Idempotency.READ)
    async def mine() -> str:
        return ""

    with pytest.raises(Usage, match="is called 'transfer_to_b', like the tool 'transfer_to_b'"):
        graph_of(Agent(name="a", tools=(mine,), handoffs=(Agent(name="b"),)))


def test_two_different_tools_of_one_name_are_refused_across_the_graph() -> None:
    def made(text: str) -> Any:
        @tool(name="look", idempotency=Idempotency.READ)
        async def look() -> str:
            return text

        return look

    one, other = made("one"), made("other")
    with pytest.raises(Usage, match="two different effects are named 'look', of the agents 'a' and 'b'"):
        graph_of(Agent(name="a", tools=(one,), handoffs=(Agent(name="b", tools=(other,)),)))
    graph_of(Agent(name="a", tools=(one,), handoffs=(Agent(name="b", tools=(one,)),)))


# -- who answers next -------------------------------------------------------------------------------------------------


async def test_the_target_answers_from_then_on_with_its_own_instructions_model_and_tools() -> None:
    b = agent("b", NOT_MINE, say("b's answer"), tools=(slow,))
    a = agent("a", call("transfer_to_b"), NOT_MINE, handoffs=(b,))
    result = await run(a, "go", store=MemoryStore())
    assert (result.status, result.output) == (RunStatus.COMPLETED, "b's answer")
    assert asked == ["a: you are a", "b: you are b"]
    first, second = requests_of(a)[0], requests_of(b)[0]
    assert [each.name for each in first.tools] == ["transfer_to_b"]
    assert [each.name for each in second.tools] == ["slow"]
    assert list(result.transcript)[2] == "The conversation is handed over to b."


async def test_agents_name_each_other_and_hand_over_in_a_circle() -> None:
    b = agent("b", NOT_MINE, call("transfer_to_c"), handoffs=("c",))
    c = agent("c", NOT_MINE, NOT_MINE, call("transfer_to_a"), handoffs=("a",))
    a = agent("a", call("transfer_to_b"), NOT_MINE, NOT_MINE, say("round"), handoffs=(b, c))
    result = await run(a, "go", store=MemoryStore())
    assert (result.output, result.step) == ("round", 3)
    assert [each[0] for each in asked] == ["a", "b", "c", "a"]


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("waits", [(0, 30), (30, 0), (0, 0)])
async def test_what_runs_beside_a_transfer_does_not_change_it(place: int, waits: tuple[int, int]) -> None:
    beside = [call("slow", ms=ms) for ms in waits]
    wanted = [*beside[:place], call("transfer_to_b"), *beside[place:]]
    b = agent("b", NOT_MINE, say("b"))
    result = await run(agent("a", calls(*wanted), NOT_MINE, tools=(slow,), handoffs=(b,)), "go", store=MemoryStore())
    said = [f"took {ms}" for ms in waits]
    said.insert(place, "The conversation is handed over to b.")
    assert (result.output, list(result.transcript)[2:5]) == ("b", said)
    assert [each[0] for each in asked] == ["a", "b"]


async def test_of_two_transfers_the_first_one_counts_and_the_second_is_told_so() -> None:
    b, c = agent("b", NOT_MINE, say("b")), agent("c", NOT_MINE, say("c"))
    both = calls(call("transfer_to_c"), call("transfer_to_b"))
    result = await run(agent("a", both, NOT_MINE, handoffs=(b, c)), "go", store=MemoryStore())
    won, lost = list(result.transcript)[2:4]
    assert (result.output, won) == ("c", "The conversation is handed over to c.")
    assert isinstance(lost, Failure)
    assert (lost.kind, lost.message) == ("TransferIgnored", "b was not asked: this reply hands over to c already")
    assert [each[0] for each in asked] == ["a", "c"]


async def test_an_agent_cannot_hand_over_to_whom_it_does_not_name() -> None:
    """The graph reaches `c`, through `b`; `a` itself does not."""
    b = agent("b", handoffs=(agent("c"),))
    result = await run(agent("a", call("transfer_to_c"), say("alone")), "go", store=MemoryStore())
    other = await run(agent("a", call("transfer_to_c"), say("alone"), handoffs=(b,)), "go", store=MemoryStore())
    for each in (result, other):
        assert each.output == "alone"
        refused = list(each.transcript)[2]
        assert isinstance(refused, Failure)
        assert "transfer_to_c" in refused.message


async def test_a_limit_of_turns_counts_over_all_agents_and_its_grant_too() -> None:
    store = MemoryStore()
    b = agent("b", NOT_MINE, call("transfer_to_a"), NOT_MINE, say("end"), handoffs=("a",), max_turns=1)
    a = agent("a", call("transfer_to_b"), NOT_MINE, call("transfer_to_b"), max_turns=2, handoffs=(b,))
    result = await run(a, "go", run_id="r", store=store)
    assert (result.status, [each.kind.value for each in result.questions]) == (RunStatus.WAITING, ["budget"])
    assert [each[0] for each in asked] == ["a", "b"]
    await decide("r", result.questions[0], "grant", store=store, value=2)
    assert (await resume("r", agent=a, store=store)).output == "end"
    assert [each[0] for each in asked] == ["a", "b", "a", "b"]


# -- a transfer that fired and was not made ---------------------------------------------------------------------------


class Target:
    """An agent whose instructions cannot be rendered for as long as they fail."""

    fails = 0


def pending(fails: int, *turns: Turn) -> Agent:
    Target.fails = fails

    def instructions(_: object) -> str:
        if Target.fails > 0:
            Target.fails -= 1
            raise OSError("the prompt's server is away")
        return "you are b"

    b = Agent(name="b", instructions=instructions, model=Noted("b", [NOT_MINE, *turns]))
    return agent("a", calls(call("slow", ms=0), call("transfer_to_b")), NOT_MINE, tools=(slow,), handoffs=(b,))


async def test_a_target_that_cannot_be_set_up_keeps_the_transfer_for_a_later_resume() -> None:
    store = MemoryStore()
    a = pending(2, say("b at last"))
    first = await run(a, "go", run_id="r", store=store)
    assert (first.status, first.step) == (RunStatus.INTERRUPTED, 1)
    assert first.error is not None
    assert "away" in first.error.message
    again = await resume("r", agent=a, store=store)
    assert (again.status, again.step) == (RunStatus.INTERRUPTED, 1)
    last = await resume("r", agent=a, store=store)
    assert (last.status, last.output) == (RunStatus.COMPLETED, "b at last")
    assert asked == ["a: you are a", "b: you are b"]
    assert entered == ["0"], "the tool beside the transfer is not repeated"
    said = [each for each in last.transcript if each == "The conversation is handed over to b."]
    assert len(said) == 1


async def test_a_fork_of_a_pending_transfer_makes_it_too() -> None:
    store = MemoryStore()
    await run(pending(1), "go", run_id="r", store=store)
    forked = await fork("r", agent=rebuilt(), store=store, fork_id="f")
    assert (forked.output, [each[0] for each in asked]) == ("done", ["a", "b"])
    assert [each for each in forked.transcript if each == "The conversation is handed over to b."] != []
    assert (await get_run(store, "r")).status is RunStatus.INTERRUPTED


async def started(*, fails: int = 1) -> MemoryStore:
    """A store with a run that stopped under a pending transfer."""
    store = MemoryStore()
    assert (await run(pending(fails), "go", run_id="r", store=store)).status is RunStatus.INTERRUPTED
    return store


def rebuilt(name: str = "b", *, entry: str = "a", model: Any = None) -> Agent:
    """The same graph, from source."""
    target = Agent(name=name, instructions=f"you are {name}", model=model or Noted(name, [NOT_MINE, say("done")]))
    return agent(
        entry, calls(call("slow", ms=0), call(f"transfer_to_{name}")), NOT_MINE, tools=(slow,), handoffs=(target,)
    )


async def test_a_graph_that_was_rebuilt_is_the_same_graph() -> None:
    store = await started()
    assert (await resume("r", agent=rebuilt(), store=store)).output == "done"


@pytest.mark.parametrize("way", [run, resume])
async def test_a_target_that_was_renamed_or_removed_is_a_hard_error_that_names_the_known_ones(way: Any) -> None:
    store = await started()
    before = dict(store._rows)
    removed = agent("a", NOT_MINE, tools=(slow,))
    for changed, known in ((rebuilt("bee"), "a, bee"), (removed, "a")):
        with pytest.raises(Usage, match=rf"a pending handoff names the agent 'b'.*it reaches: {known}\)") as refused:
            await _again(way, changed, store)
        assert "its name back" in refused.value.next
    assert store._rows == before
    assert (await resume("r", agent=rebuilt(), store=store)).output == "done", "giving the name back mends it"


async def _again(way: Any, changed: Agent, store: MemoryStore) -> Result:
    return await (
        run(changed, "go", run_id="r", store=store) if way is run else resume("r", agent=changed, store=store)
    )


async def test_an_active_agent_that_was_renamed_or_removed_is_a_hard_error_too() -> None:
    store = MemoryStore()

    def away(request: Any) -> Turn:
        raise OSError("away")

    b = agent("b", NOT_MINE, call("slow", ms=0), away, tools=(slow,))
    a = agent("a", call("transfer_to_b"), NOT_MINE, handoffs=(b,))
    assert (await run(a, "go", run_id="r", store=store)).status is RunStatus.INTERRUPTED
    with pytest.raises(Usage, match=r"the savepoint names the agent 'b'.*it reaches: a, bee\)"):
        await resume("r", agent=rebuilt("bee"), store=store)
    with pytest.raises(Usage, match="is one of agent 'a', not of 'z'"):
        await resume("r", agent=rebuilt(entry="z"), store=store)
    b2 = agent("b", NOT_MINE, NOT_MINE, say("b still"), tools=(slow,))
    done = await resume("r", agent=agent("a", NOT_MINE, handoffs=(b2,)), store=store)
    assert (done.output, [each[0] for each in asked]) == ("b still", ["a", "b", "b", "b"])


@pytest.mark.parametrize("way", [run, resume])
async def test_a_completed_run_replays_whatever_was_renamed_since(way: Any) -> None:
    store = await started()
    done = await resume("r", agent=rebuilt(), store=store)
    before = list(asked)
    lone = agent("a", NOT_MINE)
    again = await _again(way, lone, store)
    assert (again.output, again.replayed, again.warnings) == (done.output, True, ())
    renamed = await _again(way, agent("other", NOT_MINE), store)
    assert (renamed.output, renamed.replayed) == (done.output, True)
    assert renamed.warnings == ("run r was one of agent 'a', which is not here any more",)
    assert asked == before
