"""What changed in an agent since a savepoint is said by name, and refused where the run is strict."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from agent import Agent, Idempotency, RunStatus, Tool, resume, run, tool
from agent._definition import compare
from agent.testing import ScriptedModel, call, say
from savepoint import Conflict, MemoryStore
from savepoint._codec import loads


class Away:
    on = True


class Model(ScriptedModel):
    """One turn, then nothing for as long as it is away."""

    def __init__(self, name: str = "scripted", settings: Mapping[str, object] | None = None) -> None:
        super().__init__([call("look", what="x"), self._end], name=name)
        self._settings = settings or {}

    @property
    def settings(self) -> Mapping[str, object]:
        return self._settings

    @staticmethod
    def _end(_: object) -> Any:
        if Away.on:
            raise OSError("away")
        return say("done")


@tool(idempotency=Idempotency.READ)
async def look(what: str) -> str:
    """Looks."""
    return "seen"


@tool(idempotency=Idempotency.READ)
async def other(where: str) -> str:
    """Looks elsewhere."""
    return "seen"


def with_parameters() -> Tool[..., Any]:
    @tool(name="look", description="Looks.", idempotency=Idempotency.READ)
    async def look_at(what: str, closely: int = 0) -> str:
        return "seen"

    return look_at


AGENT = Agent(name="a", instructions="be brief", tools=(look, other), model=Model())


def described(text: str) -> Tool[..., Any]:
    return evolve(look, spec=evolve(look.spec, description=text))


CHANGES: dict[str, tuple[Callable[[], Agent], str]] = {
    "instructions": (lambda: evolve(AGENT, instructions="be long"), "instructions"),
    "instructions that are made": (lambda: evolve(AGENT, instructions=lambda deps: f"for {deps}"), "instructions"),
    "model": (lambda: evolve(AGENT, model=Model(name="newer")), "model"),
    "settings": (lambda: evolve(AGENT, model=Model(settings={"temperature": 1})), "settings"),
    "parameters": (lambda: evolve(AGENT, tools=(with_parameters(), other)), "tool look: parameters"),
    "class": (
        lambda: evolve(AGENT, tools=(evolve(look, idempotency=Idempotency.IDEMPOTENT), other)),
        "tool look: idempotency",
    ),
    "version": (lambda: evolve(AGENT, tools=(evolve(look, version=2), other)), "tool look: version"),
    "approval": (lambda: evolve(AGENT, tools=(evolve(look, approval=True), other)), "tool look: approval"),
    "description": (lambda: evolve(AGENT, tools=(described("Sees."), other)), "tool look: description"),
    "a tool more": (lambda: evolve(AGENT, tools=(look, other, evolve(other, name="third"))), "tool third: new"),
    "a tool less": (lambda: evolve(AGENT, tools=(look,)), "tool other: gone"),
    "the order": (lambda: evolve(AGENT, tools=(other, look)), "the order of the tools"),
    "handoffs": (lambda: evolve(AGENT, handoffs=(Agent(name="b"),)), "handoffs"),
    "several": (
        lambda: evolve(AGENT, instructions="", model=Model(name="newer"), tools=(described("Sees."),)),
        "instructions; model; tool look: description; tool other: gone",
    ),
}


async def stopped(*, recovery: str = "reuse", agent: Agent = AGENT) -> MemoryStore:
    """A store with a run that stopped at its first savepoint."""
    store = MemoryStore()
    Away.on = True
    assert (await run(agent, "go", run_id="r", store=store, recovery=recovery)).status is RunStatus.INTERRUPTED
    Away.on = False
    return store


@pytest.mark.parametrize("what", CHANGES)
async def test_a_change_is_named(what: str) -> None:
    changed, words = CHANGES[what]
    done = await resume("r", agent=changed(), store=await stopped())
    assert done.status is RunStatus.COMPLETED
    assert done.warnings == (f"agent a changed since the savepoint: {words}",)


@pytest.mark.parametrize("what", CHANGES)
async def test_a_change_is_refused_where_the_run_is_strict_unless_it_is_waived(what: str) -> None:
    changed, words = CHANGES[what]
    store = await stopped(recovery="strict")
    before = dict(store._rows)
    with pytest.raises(Conflict, match=f"run r is strict, and agent a changed since the savepoint: {words}") as refused:
        await resume("r", agent=changed(), store=store)
    assert "strict=False" in refused.value.next
    with pytest.raises(Conflict, match="is strict"):
        await run(changed(), "go", run_id="r", store=store)
    assert store._rows == before
    done = await resume("r", agent=changed(), store=store, strict=False)
    assert (done.status, len(done.warnings)) == (RunStatus.COMPLETED, 1)


async def test_a_run_that_is_not_strict_is_refused_where_the_caller_is() -> None:
    changed, words = CHANGES["class"]
    store = await stopped()
    with pytest.raises(Conflict, match=words):
        await resume("r", agent=changed(), store=store, strict=True)
    assert (await resume("r", agent=AGENT, store=store, strict=True)).warnings == ()


@pytest.mark.parametrize("recovery", ["reuse", "strict"])
async def test_nothing_is_said_of_an_agent_that_is_the_same(recovery: str) -> None:
    store = await stopped(recovery=recovery)
    same = Agent(name="a", instructions="be brief", tools=(look, other), model=Model())
    assert (await resume("r", agent=same, store=store)).warnings == ()


async def test_deps_that_the_instructions_are_made_of_count_by_what_they_make() -> None:
    async def resumed(deps: str, then: str) -> tuple[str, ...]:
        agent = evolve(AGENT, instructions=lambda deps: f"for {deps.lower()}")
        store = MemoryStore()
        Away.on = True
        await run(agent, "go", run_id="r", store=store, deps=deps)
        Away.on = False
        return (await resume("r", agent=agent, store=store, deps=then)).warnings

    assert await resumed("Ada", "ADA") == ()
    assert await resumed("Ada", "Bob") == ("agent a changed since the savepoint: instructions",)


def definitions(store: MemoryStore) -> list[bytes]:
    return [name for name, (_, body) in store._objects.items() if b"instructions" in body and b"be brief" in body]


async def test_a_definition_that_is_gone_is_said_to_be_gone() -> None:
    store = await stopped()
    [name] = definitions(store)
    del store._objects[name]
    done = await resume("r", agent=evolve(AGENT, instructions="other"), store=store)
    [warning] = done.warnings
    assert "the former one is not on record" in warning


async def test_a_definition_is_stored_once_for_all_runs_under_its_digest() -> None:
    store = await stopped()
    await run(AGENT, "go", run_id="second", store=store)
    [name] = definitions(store)
    found: Any = loads(store._objects[name][1])
    assert (found["instructions"], [each["name"] for each in found["tools"]]) == ("be brief", ["look", "other"])


TOOLS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abc"), "version": st.integers(1, 2)}),
    unique_by=lambda each: each["name"],
)
DEFINITIONS = st.fixed_dictionaries(
    {"name": st.just("a"), "instructions": st.sampled_from(["x", "y"]), "tools": TOOLS},
    optional={"handoffs": st.lists(st.sampled_from("bc"), unique=True)},
)


@given(DEFINITIONS, DEFINITIONS)
def test_something_is_named_exactly_where_something_differs(before: dict[str, Any], now: dict[str, Any]) -> None:
    assert bool(list(compare(before, now))) is (before != now)
