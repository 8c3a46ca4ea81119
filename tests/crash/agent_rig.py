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
from agent_oracle import renamed
from agent_tasks import TASKS, Task, agent_for, host
from attrs import evolve
from rig import idempotency_key
from sabotage import SABOTAGES

import agent
from agent import Agent, Result, Tool
from agent._entries import paired
from effects import Idempotency, handler
from effects._question import Question, QuestionKind
from effects._receipt import UNSETTLED, Receipt, Status
from savepoint import RunStatus, SavepointError
from savepoint._crashpoint import CrashPoint
from savepoint._events import Called, read_events, read_mark
from savepoint._form import read_form, snapshot_ids
from savepoint._past import read_marks
from savepoint._program import find_run
from savepoint._questions import open_questions
from savepoint._sqlite import SqliteStore, open_store
from savepoint._store import Space
from savepoint._stored import get_value
from savepoint.testing import arm, count_points, kill_at

RUN = "run"
Json = dict[str, Any]


def live(request: Json) -> Json:
    """Lives through one attempt; the report, unless the process is killed before."""
    agents.Setting.ranks = tuple(request.get("ranks", (3, 2, 1, 0) if request.get("reversed") else ()))
    agents.Setting.refuse = request.get("refuse", True)
    agents.Setting.work = tuple(request.get("work", agents.Setting.work))
    agents.Setting.halt = request.get("halt", "")
    if request.get("sabotage"):
        SABOTAGES[request["sabotage"]]()
    place = Path(request["place"])
    outside.live_at(place / "outside")
    arrivals = count_points()
    if request.get("kill"):
        kill_at(CrashPoint(request["kill"][0]), request["kill"][1])
    if request.get("interrupt") and request["first"]:
        _interrupt_at(CrashPoint(request["interrupt"][0]), request["interrupt"][1])
    try:
        report = asyncio.run(_terminable(_attempt(request, place)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        report = {"interrupted": True}
    return {**report, "arrivals": dict(arrivals)}


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
    async with open_store(place / "store", durability="process") as store:
        receipts = await _receipts(store)
        record = await find_run(store, RUN)
        # What was durable when this process began: none of it may be asked again.
        outside._append("asked", _replied(receipts))
        report: Json = {
            "was": None if record is None else record.status.value,
            "unsettled": [k for k, r in receipts.items() if r.idempotency.doubtful and r.status in UNSETTLED],
            "answered": await _answer(store, worker, request, task) if request.get("answer") else [],
        }
        report["decided"] = [await _decide(store, worker, *each) for each in request.get("decide", ())]
        report["open_before"] = len(await _open(store, worker))
        if request.get("only_decide"):
            return report
        with handler(agents.post, _forward) if task.handled else contextlib.nullcontext():
            try:
                result = await _go(request, worker, store, place)
            except SavepointError as error:
                if "renamed" not in request:
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


async def _go(request: Json, worker: Agent, store: SqliteStore, place: Path) -> Result:
    more: Json = {"store": store, "world": host(place / "files")}
    if request.get("fork") is not None:
        return await agent.fork(RUN, agent=worker, at=request["fork"], fork_id="fork", **more)
    if await find_run(store, RUN) is None or request.get("way") == "run":
        return await agent.run(worker, "go", run_id=RUN, **more)
    return await agent.resume(RUN, agent=worker, **more)


async def _receipts(store: SqliteStore, run: str = RUN) -> dict[str, Receipt]:
    """Idempotency key -> newest receipt of the whole lineage, by a naive replay."""
    record = await find_run(store, run)
    if record is None:
        return {}
    found: dict[str, Receipt] = {}
    for row in await store.scan(Space.EVENT, record.lineage):
        for event in read_events(row):
            if isinstance(event, Called):
                found[idempotency_key(record.lineage, event.receipt.step, event.receipt.key)] = event.receipt
    return found


def _replied(receipts: Mapping[str, Receipt]) -> list[int]:
    """The steps whose model reply is durable."""
    performed = (r for r in receipts.values() if r.effect == "agent/model" and r.status is Status.PERFORMED)
    return sorted(each.step for each in performed)


async def _open(store: SqliteStore, worker: Agent) -> list[Question]:
    record = await find_run(store, RUN)
    return [] if record is None else await open_questions(store, record.lineage, worker.registry().types)


async def _answer(store: SqliteStore, worker: Agent, request: Json, task: Task) -> list[tuple[str, str]]:
    """Answers with the truth: what the outside's own ledger says, and what the task says of approvals."""
    record = await find_run(store, RUN)
    if record is None:
        return []
    said: list[tuple[str, str]] = []
    for question in (await _open(store, worker))[: 1 if request["answer"] == "one" else None]:
        act = outside.performed(outside.here(), idempotency_key(record.lineage, question.step, question.key))
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
    record = await find_run(store, result.run_id)
    assert record is not None
    receipts = await _receipts(store, result.run_id)
    report: Json = {
        "status": result.status.value,
        "recorded": record.status.value,
        "error": None if result.error is None else f"{result.error.kind}: {result.error.message}",
        "warnings": list(result.warnings),
        "step": result.step,
        "may_repeat": list(result.may_repeat),
        "questions": [(q.kind.value, q.effect, idempotency_key(record.lineage, q.step, q.key)) for q in result.questions],
        "shown": [{"id": q.id, "kind": q.kind.value, "effect": q.effect, "arguments": q.arguments, "why": q.why,
                   "verdicts": [str(v) for v in q.verdicts]} for q in result.questions],
        "receipts": {key: [each.effect, each.status.value] for key, each in receipts.items()},
    }  # fmt: skip
    if result.status is RunStatus.COMPLETED:
        report["transcript"] = repr(list(result.transcript))
        report |= await _ended(store, worker, result, receipts)
    return report


async def _ended(store: SqliteStore, worker: Agent, result: Result, receipts: Mapping[str, Receipt]) -> Json:
    record = await find_run(store, result.run_id)
    assert record is not None
    assert record.final is not None
    registry = worker.registry(agent._runner.take_turns)
    unpaired = paired(list(result.transcript))
    points: dict[str, str] = {}
    ids: dict[str, str] = {}
    for step, row in (await read_marks(store, record.lineage)).items():
        mark = read_mark(row)
        form = await read_form(store, mark.point, registry)
        transcript: Any = form.state["transcript"]
        unpaired += paired(list(transcript))
        points[str(step)] = renamed(repr((form.name, form.key, list(transcript), await _shown(store, form.world))))
        ids[str(step)] = mark.point.hex()
    names: dict[str, str] = {}
    world = await _shown(store, snapshot_ids(await get_value(store, record.final, registry.types)))
    ended = {
        "value": renamed(repr([result.output, list(result.transcript)]), names),
        "world": renamed(repr(world), names),
        "points": points,
        "ids": ids,
        "receipts": {key: each.status.value for key, each in receipts.items()},
        "unpaired": unpaired,
    }
    return {"ended": ended}


async def _shown(store: SqliteStore, ids: Mapping[str, Any]) -> object:
    """The content of map and directory."""
    with tempfile.TemporaryDirectory(dir=store.forks) as place:
        fork = await host(Path(place) / "host").fork(store.contents, at=ids, place=Path(place) / "fork")
        files: Any = fork.system("files")
        kv: Any = fork.system("kv")
        seen = {path.name: path.read_text() for path in sorted(files.path.iterdir())}
        return [seen, dict(kv.items()), ids["files"].id.hex(), ids["kv"].id.hex()]
