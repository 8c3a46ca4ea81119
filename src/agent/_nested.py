"""An agent as a tool: its body is a run of its own, in a fork of the caller's world, merged when it returns.

Entering the body again, after a crash, goes on with the same run: its id is made of the call's idempotency key.
"""

import re
from typing import Any, NoReturn

from attrs import fields

from effects import Call, Idempotency, Parked, Performed, current_call, effect
from effects._failure import error_of
from effects._layer import LAYER
from savepoint import Log, RunResult, RunStatus, run_program
from savepoint._errors import Halted, SavepointError, Stopped, Usage
from savepoint._form import snapshot_ids
from savepoint._journal import Journal
from savepoint._nested import Within as WithinRun
from savepoint._resumable import OURS, Registry
from savepoint._run import Recovery
from savepoint._run_result import get_run
from savepoint._stored import get_value

from ._agent import Agent
from ._agent_tool import AgentTool
from ._context import Context, current_context
from ._entries import User
from ._graph import Graph, graph_of
from ._held import Held
from ._loop import take_turns
from ._merges import Place, in_turn, present_place
from ._progress import Progress, Within, ignore
from ._review import reviewing
from ._scene import SCENE, TRANSCRIPT, Scene, on_stage
from ._tool import Tool, tool

_FOR_EVER_S = 1e12
"""A run id is never forgotten, so beginning a run again under it is always safe."""
_LONGEST = 200
"""Characters of the outer run's id in a nested one's."""


class NestedFailed(SavepointError):
    """The run of an agent that was called as a tool did not complete."""

    code = "nested_failed"


@effect("agent/begin", idempotency=Idempotency.KEYED, window_s=_FOR_EVER_S)
async def begin(agent: str, input: str) -> str:
    """Settles that a run of `agent` is begun here; returns its id. A redone program that does not ask for it parks."""
    return _nested_id()


@begin.probe
async def _was_begun(_: Call) -> Performed[str]:
    """The id is all there is to it, whatever the clock says of the intent's age."""
    return Performed(_nested_id())


def _nested_id() -> str:
    return f"{SCENE.get().run_id[:_LONGEST]}.{current_call().idempotency_key[:12]}"


@effect("agent/merge", idempotency=Idempotency.CONTAINED)
async def merge(run: str, before: dict[str, object], after: dict[str, object]) -> int:
    """Brings what a nested run changed, from one snapshot to another, into the world; returns how many paths."""
    contents = SCENE.get().store.contents
    changes = await current_context().world.apply(contents, snapshot_ids(before), snapshot_ids(after))
    return sum(len(each) for each in changes.values())


def registry_of(graph: Graph, held: Held | None = None) -> Registry:
    """What a run of these agents, and the runs nested in it, can be resumed with."""
    return graph.registry(take_turns, effects=(begin, merge), classes={} if held is None else held.classes)


def registry_for(agent: Agent) -> Registry:
    """The same, of the graph that `agent` is the entry of."""
    return registry_of(graph_of(agent))


def as_tool(
    agent: Agent, *, name: str | None = None, description: str | None = None, approval: bool = False
) -> AgentTool[[str], str]:
    """`agent` as a tool that takes a text and returns the agent's final one. Give it to another agent's `tools`.

    Each call is a run of its own, nested in the caller's: own transcript, savepoints and fork of the world. `name` is
    the agent's own unless given, `description` as well. Raises `effects.BadDeclaration`.
    """

    async def ask(context: Context[Any], input: str) -> str:
        return await _run_inside(agent, context, input)

    made: Tool[[str], str] = tool(
        name=re.sub("[^A-Za-z0-9_-]", "_", agent.name)[:64] if name is None else name,
        description=(agent.description or f"Asks {agent.name}.") if description is None else description,
        idempotency=Idempotency.COMPOSITE,
        approval=approval,
    )(ask)
    return AgentTool(**{each.alias: getattr(made, each.name) for each in fields(Tool) if each.init}, agent=agent)


async def _run_inside(agent: Agent, context: Context[Any], said: str) -> str:
    outer, journal, place = SCENE.get(), LAYER.get(), present_place()
    if not isinstance(journal, Journal):
        raise Usage(f"the agent {agent.name} was called as a tool outside of a run", next="call it from a run's tool")
    run_id = await begin(agent=agent.name, input=said)
    scene = _scene(agent, outer, context)
    try:
        scene.activate(agent.name)
        with on_stage(scene):
            result = await run_program(
                take_turns.at(agent.name, scene.fingerprint, 0),
                store=outer.store,
                run_id=run_id,
                world=context.world,
                registry=registry_of(scene.graph, scene.held),
                recovery=Recovery.STRICT if journal.strict else Recovery.REUSE,
                lease_s=journal.claim.lease_s,
                meta={"agent": agent.name, "input": said, **scene.held.meta},
                state={TRANSCRIPT.name: Log([User(content=said)])},
                caused_by=f"{outer.run_id}@{journal.step}",
                on_claim=lambda record: setattr(scene, "run_id", record.run_id),
                review=reviewing(scene, outer=outer.held),
                within=WithinRun(run_id=outer.run_id, journal=journal),
            )
        if result.status is not RunStatus.COMPLETED:
            _stopped(agent, journal, result)
        await _merged(outer, result, place)
    except SavepointError as error:
        if isinstance(error, NestedFailed):
            raise
        raise Halted(error) from error  # not an outcome of the call: the store, or the other owner, is in the way
    return str(result.value)


def _scene(agent: Agent, outer: Scene, context: Context[Any]) -> Scene:
    def told(event: Progress) -> None:
        outer.on_event(Within(call_id=context.call_id, agent=agent.name, event=event))

    held = Held(max_turns=agent.max_turns).within(outer.held)
    return Scene(
        graph=graph_of(agent),
        given=outer.given,
        fallback=outer.model_of(outer.graph.entry),
        store=outer.store,
        deps=outer.deps,
        on_event=told if outer.watched else ignore,
        held=held,
        max_turns=held.max_turns,
    )


def _stopped(agent: Agent, journal: Journal, result: RunResult) -> NoReturn:
    """The outer run waits, or stops, where the nested one does; a failed one is the call's error."""
    match result.status:
        case RunStatus.WAITING:
            waiting = tuple(question.id for question in result.questions)
            journal.parked.extend(waiting)
            raise Parked(waiting)
        case RunStatus.INTERRUPTED if result.error is not None:
            raise Stopped(error_of(result.error))
        case _:
            why = result.status.value if result.error is None else f"{result.error.kind}: {result.error.message}"
            raise NestedFailed(f"{agent.name} did not complete: {why}", next=f"savepoint show {result.run_id}")


async def _merged(outer: Scene, result: RunResult, place: Place | None) -> None:
    record = await get_run(outer.store, result.run_id)
    if record.base is None or record.final is None or record.base == record.final:
        return
    before, after = [await get_value(outer.store, name, OURS) for name in (record.base, record.final)]
    async with in_turn(place):
        await merge(run=result.run_id, before=before, after=after)
