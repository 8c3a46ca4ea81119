"""Going on with a run of an agent that exists."""

from collections.abc import Iterable, Mapping

from attrs import evolve

from effects import Idempotency
from savepoint import RunStatus, World, resume_program
from savepoint._claim import LEASE_S
from savepoint._run import RunRecord
from savepoint._run_result import get_run
from savepoint._store import Store

from ._agent import Agent
from ._held import Wanted, held_by
from ._link import Link, link_of, stake_of
from ._model import Model
from ._nested import registry_of
from ._progress import OnEvent, ignore
from ._result import Result
from ._review import must_be_of, reviewing
from ._scene import Scene, on_stage
from ._session import Session
from ._stage import announce, finished, must_have_systems, scene_of, world_of


async def resume(
    run_id: str,
    *,
    agent: Agent,
    store: Store,
    world: World | None = None,
    deps: object = None,
    model: Model | str | None = None,
    on_event: OnEvent = ignore,
    session: Session | None = None,
    strict: bool | None = None,
    max_turns: int | None = None,
    allowed_tools: Iterable[str] | None = None,
    read_only: bool | None = None,
    classes: Mapping[str, Idempotency | str] | None = None,
    lease_s: float = LEASE_S,
    poison_after: int | None = None,
) -> Result:
    """Continues a stopped run in this process. `deps`, handlers, the model and a `session` of yours are given again.

    What the run was held to at its start holds; what is given here replaces it, and is recorded. An agent that changed
    since the savepoint is reported in `warnings`, and refused where `strict` (default: where the run is). A waiting run
    whose questions are open stays waiting. `poison_after`: failures in a row from one savepoint after which somebody is
    asked before it is entered (None: nobody is). Raises `Missing`, `Held`, `Conflict`, `Usage`, `Corrupt`, `Foreign`.
    """
    record = await get_run(store, run_id)
    scene = scene_of(agent, store, model, deps, on_event)
    wanted = Wanted(max_turns=max_turns, allowed_tools=allowed_tools, read_only=read_only, classes=classes)
    link = link_of(record, store, session, None, scene.graph.types)
    return await go_on(
        record,
        scene,
        world,
        wanted=wanted,
        link=link,
        lease_s=lease_s,
        strict=strict,
        poison_after=poison_after,
    )


async def go_on(
    record: RunRecord,
    scene: Scene,
    world: World | None,
    *,
    wanted: Wanted,
    link: Link,
    lease_s: float,
    strict: bool | None = None,
    poison_after: int | None = None,
) -> Result:
    """Continues a run that exists, or answers for it from the store."""
    renamed = ""
    if record.status is not RunStatus.COMPLETED:
        must_be_of(record, scene)
        must_have_systems(scene.graph, world)
    elif record.meta.get("agent") != scene.graph.entry.name:
        # Finished work does not fail because somebody renamed what did it.
        renamed = f"run {record.run_id} was one of agent {record.meta.get('agent')!r}, which is not here any more"
    stake = stake_of(record)
    if record.status is RunStatus.WAITING and stake is not None:
        # Before its questions: nobody should answer what no run will go on with.
        await link.must_stand(record.run_id, stake)
    held = held_by(record, scene.graph).changed(wanted, scene.graph)
    registry = registry_of(scene.graph, held)
    with on_stage(scene):
        found = await resume_program(
            record.run_id,
            store=scene.store,
            world=world_of(world, held),
            registry=registry,
            lease_s=lease_s,
            on_claim=lambda claimed: announce(scene, claimed),
            review=reviewing(scene, wanted=wanted, link=link, strict=strict),
            poison_after=poison_after,
        )
    if found.status is RunStatus.WAITING and not scene.run_id and held != held_by(record, scene.graph):
        why = f"run {record.run_id} waits for answers, so what it is held to was not changed: answer, then resume it so"
        found = evolve(found, warnings=(*found.warnings, why))
    if renamed:
        found = evolve(found, warnings=(*found.warnings, renamed))
    return await finished(scene, link, found, registry)
