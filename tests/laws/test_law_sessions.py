"""Laws 8 and 14 over sessions: runs that land, wait, die before they land, are replayed, restarted; rewinds and trims.

Beside a model of plain lists. What a model is asked is looked at too: no request ever holds an open call, an outcome
without one, or an id twice.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from attrs import field, mutable
from hypothesis import given
from hypothesis import strategies as st
from law_kills import few

import agent
from agent import Agent, Reply, Result, StoredSession, tool
from agent._entries import paired
from agent._message import AssistantMessage, Message, ToolMessage
from agent._model import Request
from agent._scripted import ScriptedModel, call, calls, say
from agent.testing import Turn
from effects import Idempotency
from savepoint import Conflict, MemoryStore, Missing
from savepoint._crashpoint import CrashPoint, arm
from savepoint._run_result import find_run

SESSION = "s"
IDS = st.sampled_from(["r0", "r1", "r2"])
SHAPE = st.lists(st.integers(1, 2), max_size=2)
"""Calls of each turn before the last."""
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), IDS, SHAPE),
        st.tuples(st.just("dies"), IDS, SHAPE),
        st.tuples(st.just("waits"), IDS, SHAPE),
        st.tuples(st.just("restart"), IDS, SHAPE),
        st.tuples(st.just("resume"), IDS, SHAPE),
        st.tuples(st.just("rewind"), st.integers(0, 12), SHAPE),
        st.tuples(st.just("trim"), st.integers(0, 2), SHAPE),
    ),
    max_size=8,
)


class Died(BaseException):
    """The process is gone."""


@tool(idempotency=Idempotency.ONCE)
async def act(what: str) -> str:
    """Does it."""
    return f"{what} was done, and this is all that there is to say of it"


@tool(idempotency=Idempotency.ONCE, approval=True)
async def ask(what: str) -> str:
    """Does it once somebody said so."""
    return f"{what} was allowed and done"


class Watched(ScriptedModel):
    """Refuses requests that no provider would take."""

    async def reply(self, request: Request, **more: Any) -> Any:
        assert well_formed(request.messages) == ""
        return await super().reply(request, **more)


def well_formed(messages: Sequence[Message]) -> str:
    """What is wrong with a conversation, or nothing."""
    seen: set[str] = set()
    waiting: list[str] = []
    for message in messages:
        match message:
            case ToolMessage(call_id=call_id):
                if not waiting or waiting.pop(0) != call_id:
                    return f"{call_id} answers no call"
            case _ if waiting:
                return f"{waiting[0]} has no answer"
            case AssistantMessage(calls=asked):
                waiting = [each.id for each in asked]
                if seen & {*waiting} or len({*waiting}) < len(waiting):
                    return f"an id comes twice among {waiting}"
                seen |= {*waiting}
            case _:
                pass
    return f"{waiting[0]} has no answer" if waiting else ""


def worker(shape: Sequence[int], name: str, *, waits: bool) -> Agent:
    turns: list[Turn] = [calls(*(call("act", what=f"{name} {at}.{i}") for i in range(n))) for at, n in enumerate(shape)]
    if waits:
        turns.append(call("ask", what=name))
    return Agent(name="a", model=Watched([*turns, say(f"{name} is done")]), tools=(act, ask))


@mutable
class Story:
    """A session, and what was done to it."""

    store: MemoryStore = field(factory=MemoryStore)
    agents: dict[str, Agent] = field(factory=dict[str, Agent])
    count: int = 0
    stood: dict[str, int] = field(factory=dict[str, int])
    """how many entries each run began with that has not landed"""
    doomed: set[str] = field(factory=set[str])
    """runs that lost what they stood on"""

    @property
    def session(self) -> StoredSession:
        return StoredSession(self.store)

    async def attempt(self, work: Callable[[], Awaitable[Result]]) -> Result | None:
        """Of an attempt that is refused, nothing must be left."""
        before = [*await self.session.load(SESSION)]
        try:
            return await work()
        except (Conflict, Missing):
            assert [*await self.session.load(SESSION)] == before
            return None

    async def run(self, run_id: str, shape: Sequence[int], *, waits: bool = False, policy: str = "resume") -> None:
        if policy == "restart" or run_id not in self.agents:
            self.count += 1
            self.stood.pop(run_id, None)
            self.doomed.discard(run_id)
            self.agents[run_id] = worker(shape, f"{run_id}, {self.count}", waits=waits)
        same = self.agents[run_id]

        async def work() -> Result:
            return await agent.run(
                same, "go", run_id=run_id, store=self.store, session_id=SESSION, if_run_exists=policy, abandon=True
            )

        await self.attempt(work)

    async def resume(self, run_id: str) -> None:
        """With every question answered."""
        if run_id not in self.agents:
            return

        async def work() -> Result:
            result = await agent.resume(run_id, agent=self.agents[run_id], store=self.store)
            for question in result.questions:
                await agent.decide(run_id, question, "approve", store=self.store)
            return await agent.resume(run_id, agent=self.agents[run_id], store=self.store)

        await self.attempt(work)

    async def dies(self, run_id: str, shape: Sequence[int]) -> None:
        """A process that ends before the first landing: of a run that was left, or of its own."""

        def hook(point: CrashPoint) -> None:
            if point is CrashPoint.LAND_BEFORE:
                raise Died

        former = arm(hook)
        try:
            await self.run(run_id, shape)
        except Died:
            pass
        finally:
            arm(former)

    async def check(self, before: Sequence[object]) -> None:
        segments = await self.session.segments(SESSION)
        loaded = [*await self.session.load(SESSION)]
        assert [entry for each in segments for entry in each.entries] == loaded
        assert [wrong for each in segments for wrong in paired(each.entries)] == []
        ids = [each.run_id for each in segments]
        assert len({*ids}) == len(ids), "a run is in the session twice"
        kept = min(len(before), len(loaded))
        assert loaded[:kept] == [*before[:kept]], "what was there is append-only, or cut at its end"
        assert not self.doomed & {*ids}, "a run landed that had lost what it stood on"
        pending = {*await self.session.pending_runs(SESSION)}
        self.doomed |= {each for each, size in self.stood.items() if each in pending and size > len(loaded)}
        self.stood = {each: self.stood.get(each, len(before)) for each in pending}


@few(60)
@given(steps=STEPS)
def test_law_14_pairing_of_sessions_whatever_runs_rewinds_and_deaths_do_to_them(steps: Any) -> None:
    async def tell() -> None:
        story = Story()
        gone: set[str] = set()
        for what, which, shape in steps:
            before = [*await story.session.load(SESSION)]
            match what:
                case "rewind":
                    removed = await story.session.rewind(SESSION, keep_entries=which)
                    loaded = [*await story.session.load(SESSION)]
                    assert removed == len(before) - len(loaded)
                    gone |= {e.text for e in before[len(loaded) :] if isinstance(e, Reply) and not e.calls}
                case "trim":
                    await story.session.trim_tool_results(SESSION, keep_chars=12, keep_runs=which)
                    loaded = [*await story.session.load(SESSION)]
                    assert [type(e) for e in loaded if isinstance(e, Reply)] == [
                        type(e) for e in before if isinstance(e, Reply)
                    ]
                    before = loaded
                case "run" | "restart":
                    await story.run(which, shape, policy="resume" if what == "run" else "restart")
                case "waits":
                    await story.run(which, shape, waits=True)
                case "dies":
                    await story.dies(which, shape)
                case _:
                    await story.resume(which)
            await story.check(before)
            shown = {e.text for e in await story.session.load(SESSION) if isinstance(e, Reply) and not e.calls}
            assert not shown & gone, "what was undone came back"

    asyncio.run(tell())


@few(40)
@given(shapes=st.lists(SHAPE, min_size=1, max_size=4), deaths=st.sets(st.integers(0, 3)))
def test_law_8_equivalence_of_a_session_whichever_runs_die_before_they_land(shapes: Any, deaths: set[int]) -> None:
    """The next run of the session lands what was left: nobody has to issue a run again."""

    async def tell(deaths: set[int]) -> list[object]:
        story = Story()
        for number, shape in enumerate(shapes):
            if number in deaths:
                await story.dies(f"r{number}", shape)
            if await find_run(story.store, f"r{number}") is None:  # it died while it landed what others had left
                await story.run(f"r{number}", shape)
        await story.run("last", [])
        return [*await story.session.load(SESSION)]

    whole = asyncio.run(tell(set()))
    assert [e.text.partition(",")[0] for e in whole if isinstance(e, Reply) and not e.calls] == [
        *(f"r{number}" for number in range(len(shapes))),
        "last",
    ]
    assert asyncio.run(tell(deaths)) == whole


def test_a_request_that_no_provider_would_take_is_seen() -> None:
    asked = AssistantMessage(text="", calls=(agent._entries.ToolCall(id="0.0", tool="t", arguments="{}"),))
    answer = ToolMessage(call_id="0.0", text="")
    assert well_formed([asked, answer]) == ""
    assert "no answer" in well_formed([asked])
    assert "answers no call" in well_formed([answer])
    assert "twice" in well_formed([asked, answer, asked, answer])
