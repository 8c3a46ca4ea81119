"""What every way of running an agent shares: its scene before, its result and its landing after."""

from typing import cast

from attrs import evolve

from savepoint import RunResult, RunStatus, World, remove_run
from savepoint._errors import Conflict, Usage
from savepoint._errors import Held as HeldElsewhere
from savepoint._merge_run import Settled
from savepoint._resumable import Registry
from savepoint._run import RunRecord
from savepoint._run_result import get_run
from savepoint._store import Store

from ._agent import Agent
from ._graph import Graph, graph_of
from ._held import Held
from ._link import Link, stake_of
from ._model import Model, resolve_model
from ._progress import Ended, OnEvent, Started
from ._result import Result, result_of
from ._scene import Scene

DELETE = "delete_on_success"
"""In a run's `meta`: only a tombstone is to be left of it once it completed and is in its session."""


def scene_of(agent: Agent, store: Store, model: Model | str | None, deps: object, on_event: OnEvent) -> Scene:
    """Raises `Usage` for a graph that cannot be."""
    return Scene(
        graph=graph_of(agent),
        given=resolve_model(model) if isinstance(model, str) else model,
        store=store,
        deps=deps,
        on_event=on_event,
        held=Held(max_turns=agent.max_turns),
    )


def must_have_systems(graph: Graph, world: World | None) -> None:
    """Raises `Usage` where a tool of some agent needs what the world does not have."""
    held = () if world is None else world.systems
    for name, agent in graph.systems.items():
        if name not in held:
            raise Usage(
                f"agent {agent} needs a world with the system {name!r}",
                next="pass world=World({...}), or --workspace DIR on the command line",
            )


def world_of(world: World | None, held: Held) -> World | None:
    """The host as the run may use it."""
    return world.only_read() if world is not None and held.read_only else world


def announce(scene: Scene, record: RunRecord) -> None:
    """The run is claimed: whoever watches is told before anything is performed."""
    scene.run_id = record.run_id
    repeat = record.meta.get("may_repeat", [])
    first = record.attempts == 1 and isinstance(repeat, list)
    may_repeat = tuple(map(str, cast("list[object]", repeat))) if first else ()
    scene.on_event(Started(run_id=record.run_id, resumed_from=record.resumed_from, may_repeat=may_repeat))


async def finished(scene: Scene, link: Link, found: RunResult, registry: Registry) -> Result:
    """Lands a completed run in its session, then lets go of its record where that was asked for; in this order."""
    record = await get_run(scene.store, found.run_id)
    result = await result_of(scene.store, found, record, registry.types)
    # A run that somebody restarts meanwhile is another one by now, which lands by itself.
    if found.status is record.status is RunStatus.COMPLETED and not record.removed:
        stake = stake_of(record)
        warning = "" if stake is None else await link.land(record, stake, result.transcript)
        if not warning and record.meta.get(DELETE):
            warning = await _deleted(scene.store, record)
        if warning:
            result = evolve(result, warnings=(*result.warnings, warning))
    return tell(scene, result)


async def _deleted(store: Store, record: RunRecord) -> str:
    """Removes a run, unless what it changed in its world would be nowhere then. Returns why it is still there, or ""."""
    if record.final != record.base and record.settled not in (Settled.MERGED, Settled.DISCARDED):
        return (
            f"run {record.run_id} changed its world, which is not merged: it is not deleted before "
            f"savepoint merge {record.run_id}, or discard {record.run_id}"
        )
    try:
        await remove_run(store, record.run_id)
    except (Conflict, HeldElsewhere) as error:  # what it completed stands, so its caller is answered all the same
        return f"run {record.run_id} was not deleted: {error.message}"
    return ""


def tell(scene: Scene, result: Result) -> Result:
    """The end is told of every attempt, and is all that is told of a run that is answered from the store."""
    ended = Ended(run_id=result.run_id, status=result.status.value, output=result.output, replayed=result.replayed)
    scene.on_event(ended)
    return result
