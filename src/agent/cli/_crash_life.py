"""One process of an agent's run under the crash rig: what it is told, what it does, what it reports.

It is a child of the rig's fork server (`savepoint.crash`), so what is said here is JSON.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from agent import Agent, Result, decide, resume, run
from agent._entries import paired
from agent._nested import registry_for
from effects._call import CURRENT
from effects._question import Choice, Question, QuestionKind
from effects._receipt import Receipt, Status
from savepoint import RunStatus, SavepointError, Workspace, World, dumps, loads, open_store
from savepoint._crashpoint import CrashPoint, arm
from savepoint._form import Savepoint
from savepoint._questions import open_questions
from savepoint._run_result import find_run, get_run
from savepoint._sqlite import SqliteStore
from savepoint._stored import get_value
from savepoint.crash import _observe as observe
from savepoint.crash._ledger import LedgerFault, parse_ledger, read_ledger

from ._crash_truth import Known, Passed, were_performed, written_by
from ._start import MODEL, model_of
from ._target import load_agent

RUN = "crash"
TARGET, PROJECT = "SAVEPOINT_CRASH_TARGET", "SAVEPOINT_CRASH_PROJECT"
"""Environment of the fork server: the agent, and where its module is found."""
Json = dict[str, Any]


def warm_up() -> None:
    """Imports the target once, for all children."""
    _load()


def _load() -> Agent:
    return load_agent(os.environ[TARGET], Path(os.environ[PROJECT]))


def live(request: Json) -> Json:
    """Lives through one attempt in `place`; the report, unless the process is killed before."""
    place = Path(request["place"])
    _redirect(place / "out", request["index"])
    os.chdir(place / "work")
    ledger = place / "work" / request["ledger"]
    passed: list[Passed] = []
    _watch_bodies(ledger, passed)
    try:
        return asyncio.run(_attempt(request, place, ledger, passed))
    except SavepointError as error:
        return {"status": "refused", "error": f"{error.code}: {error}", "next": error.next}


def _redirect(out: Path, index: int) -> None:
    """What the agent's tools print goes where the rig looks for it."""
    for handle, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(out / f"{index}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, handle)
        os.close(file)


def _watch_bodies(ledger: Path, passed: list[Passed]) -> None:
    """From here on: how long the ledger was whenever a body was entered or left."""
    sides = {CrashPoint.BODY_BEFORE: False, CrashPoint.BODY_AFTER: True}

    def hook(point: CrashPoint) -> None:
        if former is not None:
            former(point)
        current = CURRENT.get()
        if point in sides and current is not None:
            passed.append(Passed(key=current.idempotency_key, left=sides[point], lines=len(lines_of(ledger))))

    former = arm(hook)


def lines_of(ledger: Path) -> list[str]:
    """The ledger's lines, in order; none where it cannot be read (the judge says why)."""
    try:
        content = read_ledger(ledger)
        parse_ledger(content)
    except LedgerFault:
        return []
    return content.decode().splitlines()


async def _attempt(request: Json, place: Path, ledger: Path, passed: Sequence[Passed]) -> Json:
    worker = _load()
    model = model_of(worker, os.environ.get(MODEL))
    world = _world(worker, place)
    async with open_store(place / "store", durability="process") as store:
        report = await observe.at_start(store, RUN)
        known = {call: Known(**each) for call, each in request["known"].items()}
        report["answered"] = await _answer(store, worker, known, ledger)
        registry = registry_for(worker)
        report |= await observe.once_answered(store, RUN, registry)
        if await find_run(store, RUN) is None:
            result = await run(worker, request["text"], run_id=RUN, store=store, world=world, model=model)
        else:
            result = await resume(RUN, agent=worker, store=store, world=world, model=model)
        return {**report, **await _report(store, worker, result, ledger, passed)}


def _world(worker: Agent, place: Path) -> World | None:
    host = place / "workspace"
    needed = "files" in worker.systems or any(host.iterdir())
    return World({"files": Workspace(host)}) if needed else None


# -- answers ----------------------------------------------------------------------------------------------------------


def call_id(step: int, key: bytes) -> str:
    """The same for one call in every run: the idempotency key is another one in each."""
    return f"{step}:{key.hex()}"


async def _answer(store: SqliteStore, worker: Agent, known: Mapping[str, Known], ledger: Path) -> list[str]:
    """Approves, and settles every doubt with the truth; the verdicts. What cannot be known stays open."""
    record = await find_run(store, RUN)
    if record is None:
        return []
    asked = await open_questions(store, record.lineage, registry_for(worker).types)
    found = await observe.receipts_of(store, record.lineage)
    performed = [call_id(each.step, each.key) for each in found.values() if each.status is Status.PERFORMED]
    # In a nested run a call of the same id may be another one: nothing is known of those.
    doubts = [each for each in asked if each.kind is QuestionKind.IN_DOUBT and each.lineage == record.lineage]
    truths = were_performed([call_id(each.step, each.key) for each in doubts], performed, known, lines_of(ledger))
    said: list[tuple[Question, Choice, object]] = [
        (each, Choice.APPROVE, None) for each in asked if each.kind is QuestionKind.APPROVAL
    ]
    for question, done in zip(doubts, truths, strict=True):
        if done:
            result = known[call_id(question.step, question.key)].result
            said.append((question, Choice.PERFORMED, _value(result, worker)))
        else:
            said.append((question, Choice.REDO, None))
    for question, choice, value in said:
        await decide(RUN, question.id, choice, store=store, value=value, agent=worker, by="the rig")
    return [f"{question.effect}: {choice}" for question, choice, _ in said]


def _value(result: str, worker: Agent) -> object:
    return loads(bytes.fromhex(result), types=registry_for(worker).types) if result else None


# -- report -----------------------------------------------------------------------------------------------------------


async def _report(store: SqliteStore, worker: Agent, result: Result, ledger: Path, passed: Sequence[Passed]) -> Json:
    record = await get_run(store, RUN)
    registry = registry_for(worker)
    report: Json = {
        "status": result.status.value,
        "error": None if result.error is None else f"{result.error.kind}: {result.error.message}",
        "questions": observe.asked(result.questions),
        "why": [f"{each.kind.value} about {each.effect}" for each in result.questions],
    }
    if result.status is not RunStatus.COMPLETED:
        return report
    report["ended"] = await observe.at_end(
        store,
        record,
        registry,
        value=[result.output, list(result.transcript)],
        shown=_identities,
        unpaired=_unpaired,
    )
    written = written_by(passed, lines_of(ledger))
    report["known"] = {
        call_id(each.step, each.key): await _known(store, each, written.get(key, ()), worker)
        for key, each in (await observe.receipts_of(store, record.lineage)).items()
    }
    return report


async def _identities(ids: Mapping[str, Any]) -> object:
    return {name: each.id.hex() for name, each in ids.items()}


def _unpaired(form: Savepoint) -> list[str]:
    transcript = form.state.get("transcript", ())
    return paired(list(cast("Sequence[object]", transcript)))


async def _known(store: SqliteStore, receipt: Receipt, lines: Sequence[str], worker: Agent) -> Json:
    """What later processes of other runs are told of this call."""
    result = ""
    if receipt.status is Status.PERFORMED and receipt.outcome is not None and lines:
        types = registry_for(worker).types
        result = dumps(await get_value(store, receipt.outcome, types)).hex()
    return {"lines": list(lines), "result": result}
