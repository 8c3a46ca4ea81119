"""One attempt of a process of the programs' crash suite: what it is told, what it does, what it reports."""

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import outside
import programs
from sabotage import SABOTAGES
from scenarios import SCENARIOS

from effects._question import Choice, Decision, Question, QuestionKind
from savepoint import KeyValue, run_program
from savepoint._questions import open_questions, record_decision
from savepoint._run import RunStatus
from savepoint._run_result import find_run, get_run
from savepoint._sqlite import SqliteStore, open_store
from savepoint.crash import ForkServer, Kill
from savepoint.crash._observe import asked, at_end, at_start, idempotency_key, once_answered

HERE = Path(__file__).parent
RUN = "run"
Json = dict[str, Any]


def warm_up() -> None:
    """One attempt in the server, so that no child pays for what happens once."""
    with tempfile.TemporaryDirectory() as place:
        live({"scenario": "each class in turn", "place": place})


def live(request: Json) -> Json:
    """Lives through one attempt; the report, unless the process is killed before."""
    if shift := request.get("clock_s", 0):
        real = time.time
        time.time = lambda: real() + shift  # type: ignore[assignment]  # this process's wall clock was moved
    for name in ("first", "refuse"):
        setattr(programs.Setting, name, request.get(name, getattr(programs.Setting, name)))
    if request.get("sabotage"):
        SABOTAGES[request["sabotage"]]()
    place = Path(request["place"])
    outside.live_at(place / "outside")
    return asyncio.run(_attempt(request, place))


async def _attempt(request: Json, place: Path) -> Json:
    scenario = SCENARIOS[request["scenario"]]
    wal = request.get("wal")
    async with open_store(place / "store", durability="process", wal=wal) as store:
        report = await at_start(store, RUN)
        if request.get("answer"):
            await _answer(store, only_one=request["answer"] == "one")
        report |= await once_answered(store, RUN, programs.REGISTRY)
        try:
            result = await run_program(
                programs.program.at(request["scenario"], 0),
                store=store,
                run_id=RUN,
                world=programs.host(scenario, place / "files"),
                registry=programs.REGISTRY,
                recovery="strict" if scenario.strict else "reuse",
            )
        except programs.WrongResult as wrong:
            return {**report, "status": f"wrong: {wrong}"}
        record = await get_run(store, RUN)
        report |= {
            "resumed_from": record.resumed_from,
            "status": result.status.value,
            "error": None if result.error is None else f"{result.error.kind}: {result.error.message}",
            "warnings": list(result.warnings),
            "replayed": result.replayed,
            "questions": asked(result.questions),
        }
        if result.status is RunStatus.COMPLETED:
            report["ended"] = await at_end(
                store, record, programs.REGISTRY, value=result.value, shown=_shower(store), renamed=renaming
            )
    return report


def renaming() -> Callable[[str], str]:
    names: dict[str, str] = {}
    return lambda text: outside.renamed(text, names)


async def _open(store: SqliteStore) -> list[Question]:
    record = await find_run(store, RUN)
    return [] if record is None else await open_questions(store, record.lineage, programs.REGISTRY.types)


async def _answer(store: SqliteStore, *, only_one: bool) -> None:
    """Answers with the truth: what the outside's own ledger says."""
    record = await find_run(store, RUN)
    if record is None:
        return
    for question in (await _open(store))[: 1 if only_one else None]:
        key = idempotency_key(record.lineage, question.step, question.key)
        act = outside.performed(outside.here(), key)
        choice = _truth(question.kind, performed=act is not None)
        value = act.value if act is not None and choice is Choice.PERFORMED else None
        decision = Decision(question=question.id, choice=choice, value=value)
        await record_decision(store, record.lineage, question, decision, programs.REGISTRY.types)


def _truth(kind: QuestionKind, *, performed: bool) -> Choice:
    if kind in (QuestionKind.DIVERGED, QuestionKind.PERFORMED):
        return Choice.PERFORMED
    return Choice.PERFORMED if performed else Choice.REDO


def _shower(store: SqliteStore) -> Callable[[Mapping[str, Any]], Any]:
    async def shown(ids: Mapping[str, Any]) -> object:
        """The content of a map; the identity of a directory."""
        if "kv" not in ids:
            return {name: each.id.hex() for name, each in ids.items()}
        return dict((await KeyValue().fork(store.contents, at=ids["kv"].id, place=Path())).items())

    return shown


# -- its processes ----------------------------------------------------------------------------------------------------


class Server:
    """A fork server for this suite's attempts: `[point, nth]` under `kill` says where one dies."""

    def __init__(self, life: str = "rig:live") -> None:
        self.forks = ForkServer(life, path=[HERE])

    def attempt(self, request: Json) -> Json:
        """One forked process's life. Raises `LifeFailed` with the traceback of a child that failed."""
        reply = self.forks.attempt(request, _kill(request))
        return {"killed": reply.killed, "report": _report(reply)}

    def fresh(self, request: Json, **env: str) -> Json:
        """The same in an interpreter that is started for it."""
        reply = self.forks.fresh(request, _kill(request), **env)
        return {"killed": reply.killed, "report": _report(reply)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.forks.__exit__()


def _kill(request: Json) -> Kill | None:
    return Kill(*request["kill"]) if request.get("kill") else None


def _report(reply: Any) -> Json | None:
    return None if reply.killed else {**reply.report, "arrivals": [[each.at, each.nth] for each in reply.arrivals]}


def env(**more: str) -> dict[str, str]:
    """The environment of a process of the suite."""
    return {**os.environ, "PYTHONPATH": f"{HERE.parents[1] / 'src'}:{HERE}", **more}
