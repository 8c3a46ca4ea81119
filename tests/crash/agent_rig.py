"""One attempt of a process of the agents' crash suite: what it is told, what it does, what it reports."""

import asyncio
import contextlib
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import agents
import outside
from agent_session import SESSION, conversation, converse
from agent_task import Task, agent_for
from agent_tasks import TASKS
from agent_world import host
from attrs import evolve
from rig import renaming
from sabotage import SABOTAGES

import agent
from agent import Agent, Result, StoredSession, Tool
from agent._entries import paired
from agent._nested import registry_for
from effects import Idempotency, handler
from effects._question import Question, QuestionKind
from effects._receipt import Status
from savepoint import RunStatus, SavepointError
from savepoint._crashpoint import CrashPoint, arm
from savepoint._questions import open_questions
from savepoint._run import RunRecord
from savepoint._run_result import find_run, get_run
from savepoint._sqlite import SqliteStore, open_store
from savepoint.crash import _observe as observe
from savepoint.crash._observe import idempotency_key, receipts

RUN = "run"
Json = dict[str, Any]


def live(request: Json) -> Json:
    """Lives through one attempt; the report, unless the process is killed before."""
    agents.Setting.ranks = tuple(request.get("ranks", (3, 2, 1, 0) if request.get("reversed") else ()))
    agents.Setting.refuse = request.get("refuse", True)
    agents.Setting.work = tuple(request.get("work", agents.Setting.work))
    agents.Setting.away = request.get("away", False)
    agents.Setting.halt = request.get("halt", "")
    if request.get("sabotage"):
        SABOTAGES[request["sabotage"]]()
    place = Path(request["place"])
    outside.live_at(place / "outside")
    if request.get("interrupt") and request["first"]:
        _interrupt_at(CrashPoint(request["interrupt"][0]), request["interrupt"][1])
    try:
        report = asyncio.run(_terminable(_attempt(request, place)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        report = {"interrupted": True}
    return report


def _interrupt_at(point: CrashPoint, nth: int) -> None:
    """This process gets SIGINT, as from Ctrl-C, at the `nth` arrival at `point`."""
    arrivals: Counter[CrashPoint] = Counter()

    def hook(reached: CrashPoint) -> None:
        arrivals[reached] += 1
        if reached is point and arrivals[point] == nth:
            os.kill(os.getpid(), signal.SIGINT)

    arm(hook)


async def _terminable(attempt: Any) -> Json:
    """As a command line does it: SIGTERM cancels the run."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await attempt


async def _attempt(request: Json, place: Path) -> Json:
    task = _task(request)
    worker = evolve(agent_for(task, tools=_tools(request.get("changed", {}))), name=request.get("renamed", "crash"))
    async with open_store(place / "store", durability="process", wal=request.get("wal")) as store:
        if task.session:
            await converse(store, worker, place)
        # What was durable when this process began: none of it may be asked again.
        outside._append("asked", await _replied(store, await find_run(store, RUN)))
        report: Json = {
            **await observe.at_start(store, RUN),
            "answered": await _answer(store, worker, request, task) if request.get("answer") else [],
        }
        report["decided"] = [await _decide(store, worker, *each) for each in request.get("decide", ())]
        report |= await observe.once_answered(store, RUN, registry_for(worker))
        if request.get("only_decide"):
            return report
        if "rewind" in request:
            await StoredSession(store).rewind(SESSION, keep_entries=request["rewind"])
        with handler(agents.post, _forward) if task.handled else contextlib.nullcontext():
            try:
                result = await _go(request, worker, store, place, task)
            except SavepointError as error:
                if not {"renamed", "rewind"} & request.keys():
                    raise
                return {**report, "refused": error.code}
        report |= await _report(store, worker, result)
    return report


def _task(request: Json) -> Task:
    return evolve(TASKS[request["scenario"]], **request.get("task", {}))


def _tools(changed: Mapping[str, Json | None]) -> tuple[Tool[..., Any], ...]:
    """The tools as another version of the program declares them; `None`: it has no such tool."""
    found: list[Tool[..., Any]] = []
    for each in agents.TOOLS:
        how = changed.get(each.name, {})
        if how is None:
            continue
        how = {**how, "idempotency": Idempotency(how["idempotency"])} if "idempotency" in how else how
        made = evolve(each, **how) if how else each
        if how and each.prober is not None:
            made.probe(each.prober)
        found.append(made)
    return tuple(found)


async def _forward(what: str) -> str:
    return await agents.post(what)


async def _go(request: Json, worker: Agent, store: SqliteStore, place: Path, task: Task) -> Result:
    more: Json = {"store": store, "world": host(place / "files")}
    if request.get("fork") is not None:
        return await agent.fork(RUN, agent=worker, at=request["fork"], fork_id="fork", **more)
    if await find_run(store, RUN) is None or request.get("way") == "run" or "anew" in request:
        more |= {"session_id": SESSION if task.session else None, "recovery": "strict" if task.strict else "reuse"}
        return await agent.run(worker, agents.INPUT, run_id=request.get("anew", RUN), **more)
    return await agent.resume(RUN, agent=worker, **more)


async def _replied(store: SqliteStore, record: RunRecord | None) -> list[int | str]:
    """The replies that are durable: their steps; of a nested run, behind what it was asked."""
    if record is None:
        return []
    found: list[int | str] = []
    for each in await observe.lineages(store, record):
        asked = agents.inside(str(each.meta["input"]))
        performed = (
            receipt.step
            for receipt in (await observe.receipts_of(store, each.lineage)).values()
            if receipt.effect == "agent/model" and receipt.status is Status.PERFORMED
        )
        found += [f"{asked}{step}" if asked else step for step in sorted(performed)]
    return found


async def _open(store: SqliteStore, worker: Agent) -> list[Question]:
    record = await find_run(store, RUN)
    return [] if record is None else await open_questions(store, record.lineage, registry_for(worker).types)


async def _answer(store: SqliteStore, worker: Agent, request: Json, task: Task) -> list[tuple[str, str]]:
    """Answers with the truth: what the outside's own ledger says, and what the task says of approvals."""
    record = await find_run(store, RUN)
    if record is None:
        return []
    said: list[tuple[str, str]] = []
    for question in (await _open(store, worker))[: 1 if request["answer"] == "one" else None]:
        act = outside.performed(outside.here(), idempotency_key(question.lineage, question.step, question.key))
        choice, value = _truth(question, act, task, request)
        await agent.decide(RUN, question.id, choice, store=store, value=value, note="no",
                           agent=None if request.get("blind") else worker)  # fmt: skip
        said.append((question.effect, choice))
    return said


async def _decide(store: SqliteStore, worker: Agent, question: str, choice: str, value: object = None) -> str:
    """One decision as a person gives it; what came of it."""
    try:
        return (
            await agent.decide(RUN, question, choice, store=store, value=value, note="no", agent=worker)
        ).choice.value
    except SavepointError as error:
        return error.code


def _truth(question: Question, act: outside.Act | None, task: Task, request: Json) -> tuple[str, object]:
    match question.kind:
        case QuestionKind.APPROVAL:
            return task.approval, request.get("edit", {"what": "edited"}) if task.approval == "edit" else None
        case QuestionKind.BUDGET:
            choice = request.get("budget", "grant")
            return choice, request.get("grant", 1) if choice == "grant" else None
        case QuestionKind.IN_DOUBT if act is None:
            return "redo", None
        case _:
            return "performed", None if act is None else act.value


async def _report(store: SqliteStore, worker: Agent, result: Result) -> Json:
    record = await get_run(store, result.run_id)
    found = await receipts(store, record)
    report: Json = {
        "status": result.status.value,
        "recorded": record.status.value,
        "error": None if result.error is None else f"{result.error.kind}: {result.error.message}",
        "warnings": list(result.warnings),
        "step": result.step,
        "may_repeat": list(result.may_repeat),
        "questions": observe.asked(result.questions),
        "shown": [{"id": q.id, "kind": q.kind.value, "effect": q.effect, "arguments": q.arguments, "why": q.why,
                   "verdicts": [str(v) for v in q.verdicts]} for q in result.questions],
        "receipts": {key: [each.effect, each.status.value] for key, each in found.items()},
    }  # fmt: skip
    if result.status is RunStatus.COMPLETED:
        report["transcript"] = repr(list(result.transcript))
        session, wrong = await conversation(store, worker)
        report["ended"] = await observe.at_end(
            store,
            record,
            registry_for(worker),
            value=[result.output, list(result.transcript), session],
            shown=_shower(store),
            renamed=renaming,
            unpaired=lambda form: paired(list(form.state["transcript"])),  # type: ignore[call-overload]
        )
        report["session"] = [run_id for run_id, _ in session]
        report["ended"]["unpaired"] += [*paired(list(result.transcript)), *wrong]
    return report


def _shower(store: SqliteStore) -> Any:
    async def shown(ids: Mapping[str, Any]) -> object:
        """The content of map and directory."""
        with tempfile.TemporaryDirectory(dir=store.forks) as place:
            fork = await host(Path(place) / "host").fork(store.contents, at=ids, place=Path(place) / "fork")
            files: Any = fork.system("files")
            kv: Any = fork.system("kv")
            seen = {path.name: path.read_text() for path in sorted(files.path.iterdir())}
            return [seen, dict(kv.items()), ids["files"].id.hex(), ids["kv"].id.hex()]

    return shown
