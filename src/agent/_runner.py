"""Running an agent: a new run, or the answer of one that exists."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from attrs import evolve

from effects import Idempotency
from savepoint import Log, MemoryStore, RunStatus, World, run_program
from savepoint._ambient import fresh_bytes
from savepoint._claim import LEASE_S
from savepoint._errors import Conflict, Usage
from savepoint._form import Savepoint, read_form
from savepoint._review import Reviewed
from savepoint._run import IfExists, Recovery, RunRecord
from savepoint._run_result import find_run
from savepoint._store import Store, Transaction

from ._agent import Agent
from ._entries import User
from ._held import Held, Wanted
from ._link import Begun, Link, land_first, link_of, link_to
from ._loop import take_turns
from ._model import Model
from ._nested import registry_of
from ._progress import OnEvent, ignore
from ._recovery import resume_all
from ._result import Result
from ._resume import go_on
from ._review import reviewing
from ._scene import TRANSCRIPT, on_stage
from ._session import Session
from ._stage import DELETE, announce, finished, must_have_systems, scene_of, world_of


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
    if_run_exists: IfExists | str = IfExists.RESUME,
    resume_from: bytes | str | None = None,
    delete_on_success: bool = False,
    recovery: Recovery | str = Recovery.REUSE,
    max_turns: int | None = None,
    allowed_tools: Iterable[str] | None = None,
    read_only: bool | None = None,
    classes: Mapping[str, Idempotency | str] | None = None,
    lease_s: float = LEASE_S,
    abandon: bool = False,
    auto_resume: bool = False,
) -> Result:
    """Runs `agent` on `input` durably. `run_id` is an idempotency key: a completed run is answered from the store.

    `world` is the host: the run works in a fork of it. `session_id` is the conversation that the run continues, kept in
    the same store, or in a `session` of your own. `resume_from` is the id of a savepoint (bytes, or hexadecimal) that a
    new run adopts whole, instead of `input`. `delete_on_success` leaves only a tombstone of a run that completed, once
    what it changed in its world is merged or discarded.
    `max_turns`, `allowed_tools`, `read_only` and `classes` (idempotency classes by effect name) hold for all attempts.
    `auto_resume` first continues the runs of `agent` that lost their process, as `resume_all` does; `warnings` name
    those that did not complete.
    Without a `store` nothing outlives the process. Raises `Usage` (no model, a bad id), `Held`, `Conflict`, `Missing`,
    `NotWritable`, `Corrupt`, each before anything is performed.
    """
    store = MemoryStore() if store is None else store
    wanted = Wanted(max_turns=max_turns, allowed_tools=allowed_tools, read_only=read_only, classes=classes)
    run_id = f"run-{fresh_bytes(6).hex()}" if run_id is None else run_id
    policy = IfExists(if_run_exists)
    scene = scene_of(agent, store, model, deps, on_event)
    _must_name(session, session_id)
    left = await _recovered(agent, run_id, store, world, deps, model, session) if auto_resume else ()
    known = await find_run(store, run_id)
    if known is not None and policy in (IfExists.RESUME, IfExists.RESUME_ONLY):
        link = link_of(known, store, session, session_id, scene.graph.types)
        result = await go_on(known, scene, world, wanted=wanted, link=link, lease_s=lease_s)
        return _ignoring(evolve(result, warnings=(*left, *result.warnings)), known, input)
    scene.held = Held(max_turns=agent.max_turns).changed(wanted, scene.graph)
    scene.max_turns = scene.held.max_turns
    must_have_systems(scene.graph, world)
    scene.activate(agent.name)
    registry = registry_of(scene.graph, scene.held)
    link = link_to(store, session, scene.graph.types)
    fresh = policy is not IfExists.RESUME_ONLY and not (known is not None and policy is IfExists.FAIL)
    if known is not None and policy is IfExists.RESTART and known.status is RunStatus.COMPLETED:
        await land_first(store, known, scene.graph.types)
    begun = await link.begin(session_id, run_id) if session_id is not None and fresh else None
    point = _point(resume_from)

    async def review(record: RunRecord, savepoint: Savepoint) -> Reviewed:
        link_of(record, store, session, session_id, scene.graph.types)  # another process may have begun it just now
        return await reviewing(scene, wanted=wanted, link=link)(record, savepoint)

    if begun is not None and point is not None:
        begun = await _standing_on(begun, await read_form(store, point, registry))
    with on_stage(scene):
        found = await run_program(
            take_turns.at(agent.name, scene.fingerprint, 0, 0 if begun is None else len(begun.history))
            if point is None
            else point,
            store=store,
            run_id=run_id,
            world=world_of(world, scene.held),
            registry=registry,
            if_run_exists=if_run_exists,
            recovery=recovery,
            lease_s=lease_s,
            meta=_meta(agent, input if point is None else "", scene.held, begun, delete_on_success=delete_on_success),
            state={TRANSCRIPT.name: (Log[Any]() if begun is None else begun.history).extend([User(content=input)])},
            abandon=abandon,
            on_claim=lambda record: announce(scene, record),
            review=review,
            also=_pending(link, begun, run_id),
        )
    healed = () if begun is None else begun.warnings
    found = evolve(found, warnings=(*left, *healed, *found.warnings))
    result = await finished(scene, link, found, registry)
    if point is None or not input:
        return result
    why = "the savepoint has an input of its own, and the one given now was ignored"
    return evolve(result, input_ignored=True, warnings=(*result.warnings, why))


def _ignoring(result: Result, record: RunRecord, said: str) -> Result:
    """Says that a run which exists did not take the new input. No input, or the one that it has, is not ignored."""
    if not said or said == record.meta.get("input"):
        return result
    why = f"run {record.run_id} exists, so its own input counts, and the one given now was ignored"
    return evolve(result, input_ignored=True, warnings=(*result.warnings, why))


async def _recovered(
    agent: Agent,
    run_id: str,
    store: Store,
    world: World | None,
    deps: object,
    model: Model | str | None,
    session: Session | None,
) -> tuple[str, ...]:
    """Continues the orphans of `agent`; says what became of those that did not complete."""
    found = await resume_all(agent, store=store, world=world, deps=deps, model=model, session=session)
    return tuple(
        f"run {each.run_id} lost its process and is {each.result.status if each.result is not None else each.error}"
        for each in found
        if each.run_id != run_id and (each.result is None or each.result.status is not RunStatus.COMPLETED)
    )


def _must_name(session: Session | None, session_id: str | None) -> None:
    if session is not None and session_id is None:
        raise Usage("session= without session_id=", next="name the conversation: session_id='u1'")


def _meta(agent: Agent, said: str, held: Held, begun: Begun | None, *, delete_on_success: bool) -> dict[str, object]:
    session = {} if begun is None else begun.stake.meta
    return {"agent": agent.name, "input": said, **held.meta, **session} | ({DELETE: True} if delete_on_success else {})


def _pending(link: Link, begun: Begun | None, run_id: str) -> Any:
    """The row that says that the run is to land in its session, for the commit that creates it."""

    def rows(tx: Transaction) -> None:
        if begun is not None and link.own is not None:
            link.own.pending(tx, begun.stake.session_id, run_id, anew=begun.anew)

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
