"""What a run is held to: tools, a world that is only read, classes, turns; for every attempt, until somebody widens it."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent import Agent, Idempotency, RunStatus, decide, resume, run, tool
from agent._context import Context
from agent._entries import TYPES, Lost
from agent.testing import ScriptedModel, call, calls, say
from effects import BadDeclaration, effect, handler
from effects._failure import Failure
from savepoint import KeyValue, MemoryStore, Usage, Workspace, World, merge_run, open_store
from savepoint._inspect import read_receipts
from savepoint._run_result import get_run
from savepoint._store import Store

log: list[str] = []


class Away:
    times = 0


@pytest.fixture(autouse=True)
def _fresh() -> None:
    log.clear()
    Away.times = 0


@effect("held/inside", idempotency=Idempotency.ONCE)
async def inside(what: str) -> str:
    log.append(f"inside {what}")
    if what == "lost":
        raise TimeoutError
    return what


@tool(idempotency=Idempotency.READ)
async def look(what: str) -> str:
    log.append(f"look {what}")
    return "seen"


@tool(idempotency=Idempotency.ONCE)
async def post(what: str) -> str:
    log.append(f"post {what}")
    if what == "lost":
        raise TimeoutError
    return "posted"


@tool(idempotency=Idempotency.COMPOSITE)
async def through(what: str) -> str:
    return await inside(what)


@tool(idempotency=Idempotency.CONTAINED)
async def put(context: Context[Any], key: str) -> str:
    log.append(f"put {key}")
    context.world.system("kv")[key] = 1  # type: ignore[index]
    return "kept"


@tool
async def loose(context: Context[Any], text: str) -> str:
    """Declares nothing: it acts outside and writes the world."""
    log.append(f"loose {text}")
    (context.world.system("files").path / "loose").write_text(text)  # type: ignore[attr-defined]
    return "sent"


@tool(idempotency=Idempotency.READ)
async def listing(context: Context[Any]) -> list[str]:
    files = context.world.system("files").path  # type: ignore[attr-defined]
    return sorted(each.name for each in files.iterdir())


TOOLS = (look, post, through, put, loose, listing)


def _away(_: Any) -> Any:
    if Away.times > 0:
        Away.times -= 1
        raise OSError("away")
    return say("done")


def agent(*turns: Any, **more: Any) -> Agent:
    model = ScriptedModel([*turns, _away])
    return Agent(name="a", tools=TOOLS, effects=(inside,), model=model, **more)


def model_of(agent: Agent) -> ScriptedModel:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model


async def classes_of(store: Store, name: str) -> list[str]:
    found = await read_receipts(store, "r", TYPES)
    return [each.receipt.idempotency.value for each in found if each.receipt.effect == name]


# -- tools -------------------------------------------------------------------------------------------------------------


async def test_a_tool_that_is_not_allowed_is_neither_shown_nor_performed_also_after_a_resume() -> None:
    store = MemoryStore()
    Away.times = 1
    worker = agent(calls(call("post", what="1"), call("look", what="1")))
    held = await run(worker, "go", run_id="r", store=store, allowed_tools=["look"])
    assert held.status is RunStatus.INTERRUPTED
    again = agent(say("not asked again"), call("post", what="2"))
    done = await resume("r", agent=again, store=store)
    assert done.status is RunStatus.COMPLETED
    assert log == ["look 1"]
    shown = [model_of(each).requests[-1] for each in (worker, again)]
    assert [[spec.name for spec in each.tools] for each in shown] == [["look"], ["look"]]
    assert all("post is not allowed in this run" in str(list(each.messages)) for each in shown)


async def test_no_tools_at_all_may_be_allowed() -> None:
    worker = agent(call("look", what="x"))
    result = await run(worker, "go", store=MemoryStore(), allowed_tools=[])
    assert (result.output, log, model_of(worker).requests[0].tools) == ("done", [], ())


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"allowed_tools": ["look", "mail"]}, "allowed_tools names 'mail', which no agent has"),
        ({"allowed_tools": "mail"}, "allowed_tools names 'mail'"),
        ({"classes": {"mail": "once"}}, "classes names 'mail', which no agent has"),
        ({"classes": {"look": "twice"}}, "'twice' is no idempotency class"),
        ({"classes": {"look": "pure"}}, "is pure, or would be"),
        ({"classes": {"look": "keyed"}}, "is keyed without a window"),
    ],
)
async def test_what_cannot_be_held_is_refused_by_name_before_anything_is_written(wanted: Any, words: str) -> None:
    store = MemoryStore()
    with pytest.raises((Usage, BadDeclaration), match=words) as refused:
        await run(agent(call("look", what="x")), "go", run_id="r", store=store, **wanted)
    assert getattr(refused.value, "next", "")
    assert (store._rows, log) == ({}, [])
    Away.times = 1
    await run(agent(), "go", run_id="r", store=store)
    before = dict(store._rows)
    with pytest.raises((Usage, BadDeclaration), match=words):
        await resume("r", agent=agent(), store=store, **wanted)
    assert store._rows == before


# -- a world that is only read -----------------------------------------------------------------------------------------


async def test_what_is_changed_in_a_read_only_world_is_undone_and_said() -> None:
    host = World({"kv": KeyValue({"there": 0})})
    turns = [calls(call("put", key="one"), call("look", what="beside"), call("put", key="two"))]
    result = await run(agent(*turns), "go", run_id="r", store=MemoryStore(), world=host, read_only=True)
    first, beside, second = list(result.transcript)[2:5]
    assert beside == "seen"
    for each in (first, second):
        assert isinstance(each, Failure)
        assert "the world of this run is read-only; undone: kv" in each.message
    assert dict(host.system("kv").items()) == {"there": 0}  # type: ignore[attr-defined]


async def test_a_call_that_acted_outside_and_wrote_the_world_happened_and_its_changes_are_said_to_be_lost(
    tmp_path: Path,
) -> None:
    (tmp_path / "host").mkdir()
    host = World({"files": Workspace(tmp_path / "host")})
    Away.times = 1
    worker = agent(call("loose", text="x"), call("listing"))
    async with open_store(tmp_path / "store", durability="process") as store:
        first = await run(worker, "go", run_id="r", store=store, world=host, read_only=True)
        assert first.status is RunStatus.INTERRUPTED
        result = await resume("r", agent=worker, store=store, world=host)
        lost, seen = list(result.transcript)[2], list(result.transcript)[4]
        assert isinstance(lost, Lost)
        assert "loose was performed, but what it changed in the world is lost" in lost.note
        assert "sent" in lost.note
        assert (seen, log) == ([], ["loose x"])
        assert await merge_run(store, "r", host) == {}
    assert list((tmp_path / "host").iterdir()) == []


# -- classes -----------------------------------------------------------------------------------------------------------


async def test_a_class_of_the_run_counts_instead_of_the_effects_own() -> None:
    store = MemoryStore()
    worker = agent(call("look", what="x"), call("post", what="lost"))
    result = await run(worker, "go", run_id="r", store=store, classes={"look": "once", "post": Idempotency.IDEMPOTENT})
    assert (await classes_of(store, "look"), await classes_of(store, "post")) == (["once"], ["idempotent"])
    assert result.status is RunStatus.COMPLETED, "a lost answer of an idempotent call is an error, not a doubt"
    assert log == ["look x", "post lost"]


async def test_a_class_of_the_run_counts_through_handlers_and_for_effects_of_a_tools_body() -> None:
    store = MemoryStore()

    async def forward(what: str) -> str:
        log.append("forwarded")
        return await inside(what)

    with handler(inside, forward):
        worker = agent(call("through", what="lost"))
        result = await run(worker, "go", run_id="r", store=store, classes={"held/inside": "idempotent"})
    assert await classes_of(store, "held/inside") == ["idempotent"]
    assert result.status is RunStatus.COMPLETED
    assert log == ["forwarded", "inside lost"]


async def test_a_stricter_class_asks_where_the_effects_own_would_not() -> None:
    @tool(idempotency=Idempotency.READ)
    async def slow(what: str) -> str:
        raise TimeoutError

    store = MemoryStore()
    worker = Agent(name="a", tools=(slow,), model=ScriptedModel([call("slow", what="x"), say("done")]))
    result = await run(worker, "go", run_id="r", store=store, classes={"slow": "once"})
    assert [(each.kind.value, each.effect) for each in result.questions] == [("in_doubt", "slow")]
    await decide("r", result.questions[0], "performed", store=store, value="late")
    done = await resume("r", agent=worker, store=store)
    assert (done.status, list(done.transcript)[2]) == (RunStatus.COMPLETED, "late")


# -- widening ----------------------------------------------------------------------------------------------------------


async def test_only_what_is_said_is_widened_and_the_record_says_who_did_it_at_which_attempt() -> None:
    store = MemoryStore()
    Away.times = 3
    worker = agent(call("look", what="1"))
    limits: dict[str, Any] = {"allowed_tools": ["look"], "read_only": True, "max_turns": 9, "classes": {"look": "once"}}
    await run(worker, "go", run_id="r", store=store, **limits)
    assert "widened" not in (await get_run(store, "r")).meta
    await resume("r", agent=worker, store=store)
    assert "widened" not in (await get_run(store, "r")).meta, "a resume that says nothing widens nothing"
    await resume("r", agent=worker, store=store, allowed_tools=["post", "look"], max_turns=9)
    meta = (await get_run(store, "r")).meta
    assert meta["widened"] == [{"attempt": 3, "changes": {"allowed_tools": [["look"], ["look", "post"]]}}]
    assert meta["held"] == {"allowed_tools": ["look", "post"], "read_only": True, "classes": {"look": "once"}}
    done = await resume("r", agent=worker, store=store, read_only=False, classes={}, max_turns=20)
    assert done.status is RunStatus.COMPLETED
    meta = (await get_run(store, "r")).meta
    assert meta["widened"][1] == {  # type: ignore[index]
        "attempt": 4,
        "changes": {"max_turns": [9, 20], "read_only": [True, False], "classes": [{"look": "once"}, {}]},
    }
    assert (meta["held"], meta["max_turns"]) == ({"allowed_tools": ["look", "post"]}, 20)


async def test_a_limit_of_turns_given_to_the_run_counts_instead_of_the_agents() -> None:
    store = MemoryStore()
    worker = agent(call("look", what="1"), call("look", what="2"), max_turns=50)
    result = await run(worker, "go", run_id="r", store=store, max_turns=1)
    assert ([each.kind.value for each in result.questions], model_of(worker).asked) == (["budget"], 1)
    same = await resume("r", agent=worker, store=store)
    assert (same.status, model_of(worker).asked) == (RunStatus.WAITING, 1)


async def test_a_waiting_run_whose_question_is_open_is_not_widened_by_a_resume_that_runs_nothing() -> None:
    store = MemoryStore()
    worker = agent(call("look", what="1"))
    await run(worker, "go", run_id="r", store=store, max_turns=1)
    before = await get_run(store, "r")
    waiting = await resume("r", agent=worker, store=store, max_turns=5)
    assert waiting.status is RunStatus.WAITING
    assert await get_run(store, "r") == before


PROGRAM = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
import test_held as held

async def main(place):
    async with held.open_store(place + "/store", durability="process") as store:
        worker = held.agent(held.call("look", what="1"), held.call("put", key="k"), held.call("post", what="2"))
        host = held.World({"kv": held.KeyValue()})
        result = await held.resume("r", agent=worker, store=store, world=host)
        print(result.status, held.log, [type(each).__name__ for each in result.transcript], result.warnings)

asyncio.run(main(sys.argv[1]))
"""


def test_a_fresh_process_holds_the_run_to_it(tmp_path: Path) -> None:
    async def first() -> None:
        async with open_store(tmp_path / "store", durability="process") as store:
            Away.times = 1
            limits: dict[str, Any] = {"allowed_tools": ["look", "put"], "read_only": True, "classes": {"look": "once"}}
            worker = agent(call("look", what="1"), _away)
            host = World({"kv": KeyValue()})
            assert (await run(worker, "go", run_id="r", store=store, world=host, **limits)).step == 1

    async def after() -> None:
        async with open_store(tmp_path / "store", durability="process") as store:
            assert await classes_of(store, "look") == ["once"]

    asyncio.run(first())
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(Path(__file__).parent)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    kinds = "['User', 'Reply', 'str', 'Reply', 'Failure', 'Reply', 'Denied', 'Reply']"
    assert done.stdout == f"completed ['put k'] {kinds} ()\n"
    asyncio.run(after())
