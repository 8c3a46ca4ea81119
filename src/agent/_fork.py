"""A new run of an agent from a savepoint of another one."""

from attrs import evolve

from savepoint import World, fork_program
from savepoint._claim import LEASE_S
from savepoint._form import Savepoint
from savepoint._review import Review, Reviewed
from savepoint._run import RunRecord
from savepoint._run_result import get_run
from savepoint._store import Store

from ._agent import Agent
from ._held import held_by
from ._link import META as SESSION
from ._model import Model
from ._nested import registry_of
from ._progress import OnEvent, ignore
from ._result import Result, result_of
from ._review import must_be_of, reviewing
from ._scene import on_stage
from ._stage import DELETE, announce, must_have_systems, scene_of, tell, world_of


async def fork(
    run_id: str,
    *,
    agent: Agent,
    store: Store,
    at: int | None = None,
    fork_id: str | None = None,
    world: World | None = None,
    deps: object = None,
    model: Model | str | None = None,
    on_event: OnEvent = ignore,
    lease_s: float = LEASE_S,
    enter: bool = True,
) -> Result:
    """A new run from savepoint `at` (a step, the newest by default) of another one; runs to its end unless not `enter`.

    It has no receipts: calls after the savepoint are made anew (`may_repeat`). It lands in no session: conversations do
    not branch. Raises `Missing` (no such savepoint).
    """
    record = await get_run(store, run_id)
    scene = scene_of(agent, store, model, deps, on_event)
    must_be_of(record, scene)
    must_have_systems(scene.graph, world)
    held = held_by(record, scene.graph)
    registry = registry_of(scene.graph, held)
    with on_stage(scene):
        found = await fork_program(
            run_id,
            store=store,
            registry=registry,
            at=at,
            fork_id=fork_id,
            world=world_of(world, held),
            lease_s=lease_s,
            on_claim=lambda forked: announce(scene, forked),
            review=_without_session(reviewing(scene)),
            enter=enter,
        )
    return tell(scene, await result_of(store, found, await get_run(store, found.run_id), registry.types))


def _without_session(review: Review) -> Review:
    async def reviewed(record: RunRecord, savepoint: Savepoint) -> Reviewed:
        found = await review(record, savepoint)
        meta = dict(record.meta if found.meta is None else found.meta)
        return evolve(found, meta={k: v for k, v in meta.items() if k not in (SESSION, DELETE, "widened")})

    return reviewed
