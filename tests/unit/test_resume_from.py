"""Adopting a savepoint: a new run goes on from it whole, wherever it came from. And what no run ever stores: `deps`."""

from pathlib import Path
from typing import Any

import pytest

from agent import Agent, Idempotency, RunStatus, StoredSession, User, resume, run, tool
from agent._context import Context
from agent.testing import ScriptedModel, call, calls, say
from savepoint import Conflict, KeyValue, MemoryStore, Missing, Usage, World, open_store
from savepoint._events import read_mark
from savepoint._past import read_marks
from savepoint._run_result import get_run
from savepoint._store import Store

log: list[str] = []


class Away:
    times = 0


@pytest.fixture(autouse=True)
def _fresh() -> None:
    log.clear()
    Away.times = 0


@tool(idempotency=Idempotency.ONCE)
async def post(what: str) -> str:
    log.append(what)
    return f"posted {what}"


@tool(idempotency=Idempotency.CONTAINED)
async def put(context: Context[Any], key: str) -> list[str]:
    kv: Any = context.world.system("kv")
    kv[key] = 1
    return sorted(kv)


def _away(_: Any) -> Any:
    if Away.times > 0:
        Away.times -= 1
        raise OSError("away")
    return say("done")


def agent(*turns: Any, **more: Any) -> Agent:
    return Agent(name="a", tools=(post, put), model=ScriptedModel(turns or [call("post", what="x"), _away]), **more)


def asked(agent: Agent) -> int:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model.asked


async def point_of(store: Store, run_id: str, step: int) -> str:
    """The id of a savepoint, as the command line shows it."""
    marks = await read_marks(store, (await get_run(store, run_id)).lineage)
    return read_mark(marks[step]).point.hex()


async def test_a_new_run_goes_on_from_a_savepoint_with_its_transcript_world_and_turn() -> None:
    store = MemoryStore()
    first = agent(call("put", key="one"), call("post", what="x"), call("put", key="two"), say("done"))
    await run(first, "go", run_id="origin", store=store, world=World({"kv": KeyValue({"host": 0})}))
    second = agent(say("no"), say("no"), call("put", key="other"), say("otherwise"))
    adopted = await run(
        second,
        "",
        run_id="new",
        store=store,
        world=World({"kv": KeyValue()}),
        resume_from=await point_of(store, "origin", 2),
    )
    assert (adopted.status, adopted.output, adopted.input_ignored) == (RunStatus.COMPLETED, "otherwise", False)
    assert log == ["x"], "what came before the savepoint is not done again"
    said = list(adopted.transcript)
    assert (said[0], said[2], said[6]) == (User(content="go"), ["host", "one"], ["host", "one", "other"])
    assert asked(second) == 2
    assert [each.id for each in said[5].calls] == ["2.0"]
    origin = await get_run(store, "origin")
    assert (await get_run(store, "new")).lineage != origin.lineage


async def test_input_that_an_adopted_savepoint_ignores_is_said_to_be_ignored_each_time() -> None:
    store = MemoryStore()
    Away.times = 1
    await run(agent(), "go", run_id="origin", store=store)
    point = await point_of(store, "origin", 1)
    for replayed in (False, True):
        result = await run(agent(), "another", run_id="new", store=store, resume_from=point)
        assert (result.output, result.input_ignored, result.replayed) == ("done", True, replayed)
    assert [each for each in result.transcript if isinstance(each, User)] == [User(content="go")]


async def test_a_run_that_exists_is_not_made_anew_by_a_savepoint_unless_it_is_restarted() -> None:
    store = MemoryStore()
    Away.times = 1
    await run(agent(), "go", run_id="origin", store=store)
    point = await point_of(store, "origin", 1)
    await run(agent(call("post", what="own"), say("my own end")), "mine", run_id="r", store=store)
    kept = await run(agent(), "", run_id="r", store=store, resume_from=point)
    assert (kept.output, kept.replayed) == ("my own end", True)
    anew = await run(agent(), "", run_id="r", store=store, resume_from=point, if_run_exists="restart")
    assert (anew.output, anew.replayed, log) == ("done", False, ["x", "own"])


async def test_a_pending_handoff_is_adopted_with_its_savepoint() -> None:
    store = MemoryStore()

    def graph(fails: bool) -> Agent:
        def instructions(_: object) -> str:
            if fails:
                raise OSError("away")
            return "you are b"

        b = Agent(name="b", instructions=instructions, model=ScriptedModel([say("a's turn"), say("b here")]))
        return agent(call("transfer_to_b"), say("a again"), handoffs=(b,))

    assert (await run(graph(True), "go", run_id="origin", store=store)).status is RunStatus.INTERRUPTED
    point = await point_of(store, "origin", 1)
    with pytest.raises(Usage, match="a pending handoff names the agent 'b'"):
        await run(agent(), "", run_id="lone", store=store, resume_from=point)
    adopted = await run(graph(False), "", run_id="new", store=store, resume_from=point)
    assert adopted.output == "b here"


@pytest.mark.parametrize("recovery", ["reuse", "strict"])
async def test_an_agent_that_changed_since_the_savepoint_is_reported_or_refused(recovery: str) -> None:
    store = MemoryStore()
    Away.times = 1
    await run(agent(), "go", run_id="origin", store=store)
    point = await point_of(store, "origin", 1)
    before = dict(store._rows)
    adopting = run(agent(instructions="new ones"), "", run_id="new", store=store, resume_from=point, recovery=recovery)
    if recovery == "strict":
        with pytest.raises(Conflict, match="run new is strict, and agent a changed since the savepoint: instructions"):
            await adopting
        assert store._rows == before
    else:
        assert (await adopting).warnings == ("agent a changed since the savepoint: instructions",)


@pytest.mark.parametrize(
    ("point", "error", "words"),
    [("xyz", Usage, "'xyz' is not the id of a savepoint"), ("00" * 32, Missing, "00"), (b"\x00" * 32, Missing, "00")],
)
async def test_a_savepoint_that_is_none_is_refused_before_anything_is_written(
    point: Any, error: type[Exception], words: str
) -> None:
    store = MemoryStore()
    with pytest.raises(error, match=words):
        await run(agent(), "", run_id="new", store=store, resume_from=point, session_id="u1")
    assert store._rows == {}


# -- with a session ----------------------------------------------------------------------------------------------------


async def stopped_in_session(store: Store) -> str:
    """A run that stopped at a savepoint on a session of two entries; the savepoint."""
    await StoredSession(store).append("u1", [User(content="hello")], run_id="before")
    Away.times = 1
    await run(agent(), "go", run_id="origin", store=store, session_id="u1")
    return await point_of(store, "origin", 1)


async def test_a_session_that_the_savepoint_begins_with_is_gone_on_with() -> None:
    store = MemoryStore()
    point = await stopped_in_session(store)
    adopted = await run(agent(), "", run_id="new", store=store, session_id="u1", resume_from=point)
    assert adopted.output == "done"
    session = StoredSession(store)
    segments = await session.segments("u1")
    assert [(each.run_id, len(each.entries)) for each in segments] == [("before", 1), ("new", 4)]
    assert await session.load("u1") == adopted.transcript
    assert log == ["x"]


async def test_without_a_session_nothing_lands_and_in_a_new_one_all_does() -> None:
    store = MemoryStore()
    point = await stopped_in_session(store)
    await run(agent(), "", run_id="lone", store=store, resume_from=point)
    adopted = await run(agent(), "", run_id="new", store=store, session_id="u2", resume_from=point)
    session = StoredSession(store)
    assert await session.ids() == ["u1", "u2"]
    assert await session.load("u2") == adopted.transcript
    assert len(await session.load("u1")) == 1


async def test_a_session_that_the_savepoint_does_not_begin_with_is_refused() -> None:
    store = MemoryStore()
    point = await stopped_in_session(store)
    session = StoredSession(store)
    await session.append("u1", [User(content="meanwhile")], run_id="overtaker")
    await session.append("u2", [User(content="of somebody else")])
    before = dict(store._rows)
    for session_id in ("u1", "u2"):
        with pytest.raises(Conflict, match=f"transcript does not begin with session {session_id}") as refused:
            await run(agent(), "", run_id="new", store=store, session_id=session_id, resume_from=point)
        assert "without a session" in refused.value.next
    assert store._rows == before


# -- deps --------------------------------------------------------------------------------------------------------------


async def test_deps_are_given_again_by_every_attempt_and_never_stored(tmp_path: Path) -> None:
    class Deps:
        def __init__(self, token: str) -> None:
            self.token = token

    @tool(idempotency=Idempotency.ONCE)
    async def send(context: Context[Deps], what: str) -> str:
        log.append(f"{what} with {context.deps.token}")
        return "sent"

    def helper() -> Agent:
        turns = [calls(call("send", what="1")), _away, call("send", what="2"), say("done")]
        return Agent(
            name="a", instructions=lambda deps: f"hi {len(deps.token)}", tools=(send,), model=ScriptedModel(turns)
        )

    async with open_store(tmp_path / "store", durability="process") as store:
        Away.times = 1
        first = Deps("first-hunter2")
        assert (await run(helper(), "go", run_id="r", store=store, session_id="u1", deps=first)).step == 1
        later = Agent(name="a", tools=(send,), model=ScriptedModel([say("no"), call("send", what="2"), say("done")]))
        done = await resume("r", agent=later, store=store, deps=Deps("other-hunter2"))
        assert done.output == "done"
    assert log == ["1 with first-hunter2", "2 with other-hunter2"]
    kept = [each for each in (tmp_path / "store").rglob("*") if each.is_file()]
    assert kept
    assert not [each for each in kept if b"hunter2" in each.read_bytes()]
