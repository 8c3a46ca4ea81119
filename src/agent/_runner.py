"""Running agents: `run`, `resume`, `fork`, `decide`. Each is the program of the same name with the loop as the program."""

import json
from collections.abc import Mapping
from typing import Any, cast

from attrs import field, frozen

from effects._failure import Failure
from effects._question import Choice, Decision, Question
from savepoint import Log, MemoryStore, RunResult, World, fork_program, resume_program, run_program
from savepoint._claim import LEASE_S
from savepoint._errors import Missing, Usage
from savepoint._program import find_run, get_run
from savepoint._questions import every_question, record_decision
from savepoint._resumable import OURS
from savepoint._run import IfExists, Recovery, RunRecord, RunStatus
from savepoint._store import Store
from savepoint._stored import get_value

from ._agent import Agent
from ._arguments import BadArguments
from ._entries import TYPES, User
from ._loop import take_turns
from ._model import Model, resolve_model
from ._progress import OnEvent, Started, ignore
from ._scene import SCENE, TRANSCRIPT, Scene


@frozen(kw_only=True)
class Result:
    """How a run stands. `output` is the final text of a completed one."""

    run_id: str
    status: RunStatus
    output: str | None = None
    error: Failure | None = None
    step: int = 0
    """model replies that led to a savepoint"""
    questions: tuple[Question, ...] = ()
    """what a waiting run waits for"""
    transcript: Log[Any] = field(factory=Log[Any], repr=False)
    """of a completed run"""
    replayed: bool = False
    """answered from the store: nothing was run, and the input was ignored"""
    warnings: tuple[str, ...] = ()
    may_repeat: tuple[str, ...] = ()
    """a fork: effects that it may do again"""


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
    if_exists: IfExists | str = IfExists.RESUME,
    recovery: Recovery | str = Recovery.REUSE,
    max_turns: int | None = None,
    lease_s: float = LEASE_S,
    abandon: bool = False,
) -> Result:
    """Runs `agent` on `input` durably. `run_id` is an idempotency key: a completed run is answered from the store.

    `world` is the host: the run works in a fork of it. Without a `store` nothing outlives the process. Raises `Usage`
    (no model, a bad id), `Held`, `Conflict`, `Missing`, `NotWritable`, `Corrupt`, each before anything is performed.
    """
    store = MemoryStore() if store is None else store
    going_on = IfExists(if_exists) in (IfExists.RESUME, IfExists.RESUME_ONLY)
    known = await find_run(store, run_id) if run_id is not None and going_on else None
    limit = agent.max_turns if known is None else _limit(known, agent)
    _can_go_on(agent, known, world)
    scene = _scene(agent, model, deps, on_event, max_turns or limit)
    program = take_turns.at(agent.name, agent.fingerprint(scene.model, deps), 0)
    meta: dict[str, object] = {"agent": agent.name, "input": input, "max_turns": scene.max_turns}
    with _OnStage(scene):
        result = await run_program(
            program,
            store=store,
            run_id=run_id,
            world=world,
            registry=agent.registry(take_turns),
            if_exists=if_exists,
            recovery=recovery,
            lease_s=lease_s,
            meta=meta,
            state={TRANSCRIPT.name: Log([User(content=input)])},
            abandon=abandon,
            on_claim=lambda record: _begun(scene, record),
        )
    return await _result(store, agent, result)


async def resume(
    run_id: str,
    *,
    agent: Agent,
    store: Store,
    world: World | None = None,
    deps: object = None,
    model: Model | str | None = None,
    on_event: OnEvent = ignore,
    max_turns: int | None = None,
    lease_s: float = LEASE_S,
) -> Result:
    """Continues a stopped run in this process. `deps`, handlers and the model are given again.

    A waiting run whose questions are open stays waiting. Raises `Missing`, `Held`, `Conflict`, `Corrupt`, `Foreign`.
    """
    record = await get_run(store, run_id)
    _can_go_on(agent, record, world)
    scene = _scene(agent, model, deps, on_event, max_turns or _limit(record, agent))
    with _OnStage(scene):
        result = await resume_program(
            run_id,
            store=store,
            world=world,
            registry=agent.registry(take_turns),
            lease_s=lease_s,
            on_claim=lambda record: _begun(scene, record),
        )
    return await _result(store, agent, result)


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

    It has no receipts: calls after the savepoint are made anew (`may_repeat`). Raises `Missing` (no such savepoint).
    """
    record = await get_run(store, run_id)
    _same_agent(record, agent)
    _has_systems(agent, world)
    scene = _scene(agent, model, deps, on_event, _limit(record, agent))
    with _OnStage(scene):
        result = await fork_program(
            run_id,
            store=store,
            registry=agent.registry(take_turns),
            at=at,
            fork_id=fork_id,
            world=world,
            lease_s=lease_s,
            on_claim=lambda record: _begun(scene, record),
            enter=enter,
        )
    return await _result(store, agent, result)


async def decide(
    run_id: str,
    question: Question | str,
    verdict: Choice | str,
    *,
    store: Store,
    value: object = None,
    note: str = "",
    by: str = "person",
    agent: Agent | None = None,
) -> Decision:
    """Answers a question (or its id) of a waiting run, durably; `resume` then goes on. The first answer stands.

    `value`: the result that a `performed` call had, the arguments of an `edit` (checked where the `agent` is given), the
    number of a `grant`. Raises `Missing`, `Usage` (a verdict that the question does not offer, a value that does not
    fit), `Conflict` (it was answered otherwise).
    """
    question = question.id if isinstance(question, Question) else question
    record = await get_run(store, run_id)
    types = OURS | TYPES if agent is None else agent.registry().types
    questions = {each.id: each for each in await every_question(store, record.lineage, types)}
    if question not in questions:
        known = ", ".join(questions) or "none"
        raise Missing(f"run {run_id} has no question {question}", next=f"its questions: {known}")
    try:
        choice = Choice(verdict)
    except ValueError:
        offered = ", ".join(questions[question].verdicts)
        raise Usage(f"{verdict!r} is not a verdict", next=f"one of: {offered}") from None
    if choice is Choice.EDIT and agent is not None:
        _must_fit(agent, questions[question].effect, value)
    decision = Decision(question=question, choice=choice, value=value, note=note, by=by)
    return await record_decision(store, record.lineage, questions[question], decision, types)


def _must_fit(agent: Agent, name: str, arguments: object) -> None:
    """Raises `Usage` where a tool cannot be called with the arguments of an `edit`."""
    tool = agent.known_tools.get(name)
    try:
        if tool is not None:
            tool.parse(json.dumps(arguments))
    except (BadArguments, TypeError, ValueError) as error:
        raise Usage(f"{name} cannot be called so: {error}", next="give all its arguments as one JSON object") from None


def _scene(agent: Agent, model: Model | str | None, deps: object, on_event: OnEvent, max_turns: int) -> Scene:
    chosen = resolve_model(model) if isinstance(model, str) else model or agent.model
    if chosen is None:
        raise Usage(
            f"agent {agent.name} has no model", next="give it one (Agent(model=...)), or pass model= (openai:NAME, ...)"
        )
    return Scene(
        agent=agent,
        model=chosen,
        deps=deps,
        run_id="",
        on_event=on_event,
        max_turns=max_turns,
        specs=tuple(each.spec for each in agent.tools),
    )


class _OnStage:
    """The scene of the block."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def __enter__(self) -> None:
        self._token = SCENE.set(self._scene)

    def __exit__(self, *_: object) -> None:
        SCENE.reset(self._token)


def _begun(scene: Scene, record: RunRecord) -> None:
    scene.run_id = record.run_id
    repeat = record.meta.get("may_repeat", [])
    first = record.attempts == 1 and isinstance(repeat, list)
    may_repeat = tuple(map(str, cast("list[object]", repeat))) if first else ()
    scene.on_event(Started(run_id=record.run_id, resumed_from=record.resumed_from, may_repeat=may_repeat))


def _can_go_on(agent: Agent, known: RunRecord | None, world: World | None) -> None:
    """Refuses another agent than the run's own, and a world without what its tools need. A completed run needs none."""
    if known is not None:
        _same_agent(known, agent)
    if known is None or known.status is not RunStatus.COMPLETED:
        _has_systems(agent, world)


def _has_systems(agent: Agent, world: World | None) -> None:
    held = () if world is None else world.systems
    for name in agent.systems:
        if name not in held:
            raise Usage(
                f"agent {agent.name} needs a world with the system {name!r}",
                next="pass world=World({...}), or --workspace DIR on the command line",
            )


def _limit(record: RunRecord, agent: Agent) -> int:
    stored = record.meta.get("max_turns")
    return stored if isinstance(stored, int) else agent.max_turns


def _same_agent(record: RunRecord, agent: Agent) -> None:
    name = record.meta.get("agent")
    if name != agent.name:
        raise Usage(
            f"run {record.run_id} is one of agent {name!r}, not of {agent.name!r}",
            next="pass the agent that it started with",
        )


async def _result(store: Store, agent: Agent, result: RunResult) -> Result:
    record = await find_run(store, result.run_id)
    transcript: Log[Any] = Log()
    if record is not None and record.state is not None:
        state: Mapping[str, Any] = await get_value(store, record.state, agent.registry().types)
        transcript = state.get(TRANSCRIPT.name, transcript)
    return Result(
        run_id=result.run_id,
        status=result.status,
        output=result.value if isinstance(result.value, str) else None,
        error=result.error,
        step=result.step,
        questions=result.questions,
        transcript=transcript,
        replayed=result.replayed,
        warnings=result.warnings,
        may_repeat=result.may_repeat,
    )
