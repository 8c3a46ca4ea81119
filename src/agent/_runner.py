"""Running agents: `run`, `resume`, `fork`. Each is the program of the same name with the loop as the program."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from attrs import evolve

from effects import Idempotency
from savepoint import Log, MemoryStore, RunResult, World, fork_program, resume_program, run_program
from savepoint._ambient import fresh_bytes
from savepoint._claim import LEASE_S
from savepoint._errors import Conflict, Usage
from savepoint._form import Savepoint, read_form
from savepoint._program import find_run, get_run
from savepoint._resumable import Registry
from savepoint._review import Review, Reviewed
from savepoint._run import IfExists, Recovery, RunRecord, RunStatus
from savepoint._store import Store, Transaction

from ._agent import Agent
from ._entries import User
from ._graph import Graph, graph_of
from ._held import Held, Wanted, held_by
from ._link import Begun, Link, link_of, link_to, stake_of
from ._loop import take_turns
from ._model import Model, resolve_model
from ._nested import registry_of
from ._progress import Ended, OnEvent, Started, ignore
from ._result import Result, result_of
from ._review import must_be_of, reviewing
from ._scene import TRANSCRIPT, Scene, on_stage
from ._session import Session

KEEP_NOT = "delete_on_success"


async def run(
    agent: Agent,
    input: str,
    *,
    run_id: str | None = None,
    store: Store | None = None,
    world: World | None = None,
    deps: object = None,
    model: Model | str | None = None,
    on_event: OnEvent = ignore,
    session_id: str | None = None,
    session: Session | None = None,
    if_exists: IfExists | str = IfExists.RESUME,
    resume_from: bytes | str | None = None,
    delete_on_success: bool = False,
    recovery: Recovery | str = Recovery.REUSE,
    max_turns: int | None = None,
    allowed_tools: Iterable[str] | None = None,
    read_only: bool | None = None,
    classes: Mapping[str, Idempotency | str] | None = None,
    lease_s: float = LEASE_S,
    abandon: bool = False,
) -> Result:
    """Runs `agent` on `input` durably. `run_id` is an idempotency key: a completed run is answered from the store.

    `world` is the host: the run works in a fork of it. `session_id` is the conversation that the run continues, kept in
    the same store, or in a `session` of your own. `resume_from` is the id of a savepoint (bytes, or hexadecimal) that a
    new run adopts whole, instead of `input`. `delete_on_success` leaves only a tombstone of a run that completed.
    `max_turns`, `allowed_tools`, `read_only` and `classes` (idempotency classes by effect name) hold for all attempts.
    Without a `store` nothing outlives the process. Raises `Usage` (no model, a bad id), `Held`, `Conflict`, `Missing`,
    `NotWritable`, `Corrupt`, each before anything is performed.
    """
    store = MemoryStore() if store is None else store
    wanted = Wanted(max_turns=max_turns, allowed_tools=allowed_tools, read_only=read_only, classes=classes)
    run_id = f"run-{fresh_bytes(6).hex()}" if run_id is None else run_id
    policy = IfExists(if_exists)
    scene = _scene(agent, store, model, deps, on_event)
    _must_name(session, session_id)
    known = await find_run(store, run_id)
    if known is not None and policy in (IfExists.RESUME, IfExists.RESUME_ONLY):
        link = link_of(known, store, session, session_id, scene.graph.types)
        result = await _go_on(known, scene, world, wanted=wanted, link=link, lease_s=lease_s)
        return _ignoring(result, known, input)
    scene.held = Held(max_turns=agent.max_turns).changed(wanted, scene.graph)
    scene.max_turns = scene.held.max_turns
    _has_systems(scene.graph, world)
    scene.activate(agent.name)
    registry = registry_of(scene.graph, scene.held)
    link = link_to(store, session, scene.graph.types)
    fresh = policy is not IfExists.RESUME_ONLY and not (known is not None and policy is IfExists.FAIL)
    begun = await link.begin(session_id) if session_id is not None and fresh else None
    point = _point(resume_from)
    if begun is not None and point is not None:
        begun = await _standing_on(begun, await read_form(store, point, registry))
    with on_stage(scene):
        found = await run_program(
            take_turns.at(agent.name, scene.fingerprint, 0, 0 if begun is None else len(begun.history))
            if point is None
            else point,
            store=store,
            run_id=run_id,
            world=_world(world, scene.held),
            registry=registry,
            if_exists=if_exists,
            recovery=recovery,
            lease_s=lease_s,
            meta=_meta(agent, input, scene.held, begun, delete_on_success=delete_on_success),
            state={TRANSCRIPT.name: (Log[Any]() if begun is None else begun.history).extend([User(content=input)])},
            abandon=abandon,
            on_claim=lambda record: _begun(scene, record),
            review=reviewing(scene),
            also=_pending(link, begun, run_id),
        )
    if begun is not None:
        found = evolve(found, warnings=(*begun.warnings, *found.warnings))
    result = await _finished(scene, link, found, registry)
    return result if point is None or not input else evolve(result, input_ignored=True)


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
    scene = _scene(agent, store, model, deps, on_event)
    wanted = Wanted(max_turns=max_turns, allowed_tools=allowed_tools, read_only=read_only, classes=classes)
    link = link_of(record, store, session, None, scene.graph.types)
    return await _go_on(
        record,
        scene,
        world,
        wanted=wanted,
        link=link,
        lease_s=lease_s,
        strict=strict,
        poison_after=poison_after,
    )


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
    scene = _scene(agent, store, model, deps, on_event)
    must_be_of(record, scene)
    _has_systems(scene.graph, world)
    held = held_by(record, scene.graph)
    registry = registry_of(scene.graph, held)
    with on_stage(scene):
        found = await fork_program(
            run_id,
            store=store,
            registry=registry,
            at=at,
            fork_id=fork_id,
            world=_world(world, held),
            lease_s=lease_s,
            on_claim=lambda forked: _begun(scene, forked),
            review=_without_session(reviewing(scene)),
            enter=enter,
        )
    return await _told(scene, await result_of(store, found, registry.types))


async def _go_on(
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
        _has_systems(scene.graph, world)
    elif record.meta.get("agent") != scene.graph.entry.name:
        # Finished work does not fail because somebody renamed what did it.
        renamed = f"run {record.run_id} was one of agent {record.meta.get('agent')!r}, which is not here any more"
    held = held_by(record, scene.graph).changed(wanted, scene.graph)
    registry = registry_of(scene.graph, held)
    with on_stage(scene):
        found = await resume_program(
            record.run_id,
            store=scene.store,
            world=_world(world, held),
            registry=registry,
            lease_s=lease_s,
            on_claim=lambda claimed: _begun(scene, claimed),
            review=reviewing(scene, wanted=wanted, link=link, strict=strict),
            poison_after=poison_after,
        )
    if renamed:
        found = evolve(found, warnings=(*found.warnings, renamed))
    return await _finished(scene, link, found, registry)


async def _finished(scene: Scene, link: Link, found: RunResult, registry: Registry) -> Result:
    """Lands a completed run in its session, then lets go of its record where that was asked for; in this order."""
    record = await get_run(scene.store, found.run_id)
    result = await result_of(scene.store, found, registry.types)
    if found.status is RunStatus.COMPLETED and not record.removed:
        stake = stake_of(record)
        warning = "" if stake is None else await link.land(record, stake)
        if warning:
            result = evolve(result, warnings=(*result.warnings, warning))
        elif record.meta.get(KEEP_NOT):
            from savepoint._remove_run import remove_run

            await remove_run(scene.store, record.run_id)
    return await _told(scene, result)


async def _told(scene: Scene, result: Result) -> Result:
    ended = Ended(run_id=result.run_id, status=result.status.value, output=result.output, replayed=result.replayed)
    scene.on_event(ended)
    return result


def _ignoring(result: Result, record: RunRecord, said: str) -> Result:
    """Says that a run which exists did not take the new input. No input, or the one that it has, is not ignored."""
    if not said or said == record.meta.get("input"):
        return result
    why = f"run {record.run_id} exists, so its own input counts, and the one given now was ignored"
    return evolve(result, input_ignored=True, warnings=(*result.warnings, why))


def _scene(agent: Agent, store: Store, model: Model | str | None, deps: object, on_event: OnEvent) -> Scene:
    graph = graph_of(agent)
    scene = Scene(
        graph=graph,
        given=resolve_model(model) if isinstance(model, str) else model,
        store=store,
        deps=deps,
        on_event=on_event,
        held=Held(max_turns=agent.max_turns),
    )
    scene.model_of(agent)  # raises where there is none
    return scene


def _must_name(session: Session | None, session_id: str | None) -> None:
    if session is not None and session_id is None:
        raise Usage("session= without session_id=", next="name the conversation: session_id='u1'")


def _world(world: World | None, held: Held) -> World | None:
    return world.only_read() if world is not None and held.read_only else world


def _meta(agent: Agent, said: str, held: Held, begun: Begun | None, *, delete_on_success: bool) -> dict[str, object]:
    session = {} if begun is None else begun.stake.meta
    return {"agent": agent.name, "input": said, **held.meta, **session} | (
        {KEEP_NOT: True} if delete_on_success else {}
    )


def _pending(link: Link, begun: Begun | None, run_id: str) -> Any:
    """The row that says that the run is to land in its session, for the commit that creates it."""

    def rows(tx: Transaction) -> None:
        if begun is not None and link.own is not None:
            link.own.pending(tx, begun.stake.session_id, run_id)

    return rows


def _point(resume_from: bytes | str | None) -> bytes | None:
    if not isinstance(resume_from, str):
        return resume_from
    try:
        return bytes.fromhex(resume_from)
    except ValueError:
        raise Usage(f"{resume_from!r} is not the id of a savepoint", next="savepoint show RUN lists them") from None


async def _standing_on(begun: Begun, savepoint: Savepoint) -> Begun:
    """A savepoint from elsewhere can only go on with a session that its transcript begins with. Raises `Conflict`."""
    transcript = cast("Log[Any]", savepoint.state.get(TRANSCRIPT.name, Log()))
    size, session_id = len(begun.history), begun.stake.session_id
    if size > len(transcript) or transcript.root_at(size) != begun.history.root:
        raise Conflict(
            f"the savepoint's transcript does not begin with session {session_id}",
            next="adopt it without a session, or in a new one",
        )
    return begun


def _without_session(review: Review) -> Review:
    async def reviewed(record: RunRecord, savepoint: Savepoint) -> Reviewed:
        found = await review(record, savepoint)
        meta = dict(record.meta if found.meta is None else found.meta)
        return evolve(found, meta={k: v for k, v in meta.items() if k not in ("session", KEEP_NOT, "widened")})

    return reviewed


def _begun(scene: Scene, record: RunRecord) -> None:
    scene.run_id = record.run_id
    repeat = record.meta.get("may_repeat", [])
    first = record.attempts == 1 and isinstance(repeat, list)
    may_repeat = tuple(map(str, cast("list[object]", repeat))) if first else ()
    scene.on_event(Started(run_id=record.run_id, resumed_from=record.resumed_from, may_repeat=may_repeat))


def _has_systems(graph: Graph, world: World | None) -> None:
    held = () if world is None else world.systems
    for name, agent in graph.systems.items():
        if name not in held:
            raise Usage(
                f"agent {agent} needs a world with the system {name!r}",
                next="pass world=World({...}), or --workspace DIR on the command line",
            )
