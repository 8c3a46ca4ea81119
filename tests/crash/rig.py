"""Processes that run one attempt each and die where they are told: a server that forks one child per attempt.

The server has everything imported, one thread and no event loop, so a child is ready within a millisecond. Run as a
script it serves attempts (`--serve`) or lives through a single one (`--once`, for a truly fresh interpreter).
"""

import asyncio
import contextlib
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import outside
import programs
from oracle import renamed
from sabotage import SABOTAGES
from scenarios import SCENARIOS

from effects._question import Choice, Decision, Question, QuestionKind
from effects._receipt import UNSETTLED, Receipt
from savepoint import Corrupt, KeyValue, run_program
from savepoint._codec import dumps
from savepoint._crashpoint import CrashPoint, arm
from savepoint._digest import Domain, seal
from savepoint._events import Called, event_key, read_events, read_mark
from savepoint._form import read_form, snapshot_ids
from savepoint._past import read_lineage, read_marks
from savepoint._program import find_run, get_run
from savepoint._questions import open_questions, read_decisions, read_questions, record_decision
from savepoint._run import RunRecord, RunStatus
from savepoint._sqlite import SqliteStore, open_store
from savepoint._store import Space
from savepoint._stored import get_value
from savepoint.testing import kill_at

RUN = "run"
Json = dict[str, Any]


# -- one attempt, in its own process ----------------------------------------------------------------------------------


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
    arrivals = _watch(place)
    if request.get("kill"):
        kill_at(CrashPoint(request["kill"][0]), request["kill"][1])
    return {**asyncio.run(_attempt(request, place)), "arrivals": arrivals}


def _watch(place: Path) -> list[tuple[str, int, str]]:
    """Every arrival at a named point from here on: the point, how often it was reached, what would last if the process
    died there.
    """
    arrivals: list[tuple[str, int, str]] = []
    counts: Counter[str] = Counter()

    def hook(point: CrashPoint) -> None:
        counts[point] += 1
        arrivals.append((point, counts[point], _lasting(place)))

    arm(hook)
    return arrivals


def _lasting(place: Path) -> str:
    """Tells states apart by the sizes of what only grows: the store's log and packs, the outside's files."""
    grown = [*place.glob("store/store.db-wal"), *place.glob("store/packs/*"), *place.glob("outside/*")]
    forks = sum(1 for _ in place.glob("store/forks/*"))
    return repr([forks, *sorted((each.name, each.stat().st_size) for each in grown)])


async def _attempt(request: Json, place: Path) -> Json:
    scenario = SCENARIOS[request["scenario"]]
    async with open_store(place / "store", durability="process") as store:
        if request.get("answer"):
            await _answer(store, only_one=request["answer"] == "one")
        report: Json = {"unsettled": await _unsettled(store), "open_before": len(await _open(store))}
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
        lineage = record.lineage
        report |= {
            "resumed_from": record.resumed_from,
            "status": result.status.value,
            "error": None if result.error is None else f"{result.error.kind}: {result.error.message}",
            "warnings": list(result.warnings),
            "replayed": result.replayed,
            "questions": [
                (question.kind.value, question.effect, idempotency_key(lineage, question.step, question.key))
                for question in result.questions
            ],
        }
        if result.status is RunStatus.COMPLETED:
            report["ended"] = await _ended(store, result.value)
    return report


def idempotency_key(lineage: bytes, step: int, key: bytes) -> str:
    """As the journal makes it, stated again."""
    return seal(Domain.IDEMPOTENCY, dumps([lineage, step, key])).hex()


async def _record(store: SqliteStore) -> RunRecord | None:
    return await find_run(store, RUN)


async def _open(store: SqliteStore) -> list[Question]:
    record = await _record(store)
    return [] if record is None else await open_questions(store, record.lineage, programs.REGISTRY.types)


async def _answer(store: SqliteStore, *, only_one: bool) -> None:
    """Answers with the truth: what the outside's own ledger says."""
    record = await _record(store)
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


async def _receipts(store: SqliteStore, lineage: bytes) -> dict[str, Receipt]:
    """Idempotency key -> newest receipt of the whole lineage, by a naive replay."""
    found: dict[str, Receipt] = {}
    for number in range((await read_lineage(store, lineage))[0].count):
        with contextlib.suppress(Corrupt):
            row = await store.read(Space.EVENT, event_key(lineage, number))
            for event in read_events(row) if row is not None else ():
                if isinstance(event, Called):
                    found[idempotency_key(lineage, event.receipt.step, event.receipt.key)] = event.receipt
    return found


async def _unsettled(store: SqliteStore) -> list[str]:
    record = await _record(store)
    if record is None:
        return []
    decided = {
        (idempotency_key(record.lineage, question.step, question.key), question.tried)
        for question, _ in await _decided(store, record)
    }
    receipts = await _receipts(store, record.lineage)
    return [
        key
        for key, each in receipts.items()
        if each.idempotency.doubtful and each.status in UNSETTLED and (key, each.tried) not in decided
    ]


async def _ended(store: SqliteStore, value: object) -> Json:
    record = await get_run(store, RUN)
    points: dict[int, str] = {}
    ids: dict[int, str] = {}
    for step, row in (await read_marks(store, record.lineage)).items():
        mark = read_mark(row)
        form = await read_form(store, mark.point, programs.REGISTRY)
        state = {name: list(value) for name, value in form.state.items()}  # type: ignore[call-overload]
        points[step] = renamed(repr((form.name, form.key, state, await _shown(store, form.world))))
        ids[step] = mark.point.hex()
    assert record.final is not None
    world = await _shown(store, snapshot_ids(await get_value(store, record.final, programs.REGISTRY.types)))
    names: dict[str, str] = {}
    return {
        "value": renamed(repr(value), names),
        "world": renamed(repr(world), names),
        "points": points,
        "ids": ids,
        "answered": [
            (question.kind.value, question.effect, said.choice.value)
            for question, said in await _decided(store, record)
        ],
        "receipts": {key: each.status.value for key, each in (await _receipts(store, record.lineage)).items()},
    }


async def _decided(store: SqliteStore, record: RunRecord) -> list[tuple[Question, Decision]]:
    questions = await read_questions(store, record.lineage, programs.REGISTRY.types)
    decisions = await read_decisions(store, record.lineage, programs.REGISTRY.types)
    return [(each, decisions[each.id]) for each in questions if each.id in decisions]


async def _shown(store: SqliteStore, ids: Mapping[str, Any]) -> object:
    """The content of a map; the identity of a directory."""
    if "kv" not in ids:
        return {name: each.id.hex() for name, each in ids.items()}
    return dict((await KeyValue().fork(store.contents, at=ids["kv"].id, place=Path())).items())


# -- the server -------------------------------------------------------------------------------------------------------


def serve() -> None:
    """Answers each request line with `{killed, report}`; a child that fails reports its traceback."""
    _warm_up()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_forked(json.loads(line))) + "\n")
        sys.stdout.flush()


def _warm_up() -> None:
    """One attempt here, so that no child pays for what happens once; it must leave no thread behind."""
    with tempfile.TemporaryDirectory() as place:
        live({"scenario": "each class in turn", "place": place})
    assert threading.active_count() == 1
    arm(None)
    gc.collect()
    gc.freeze()


def _forked(request: Json) -> Json:
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        _die_reporting(request, into)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return {"killed": os.WIFSIGNALED(status), "report": json.loads(said) if said else None}


def _die_reporting(request: Json, into: int) -> None:
    try:
        report = live(request)
    except BaseException:
        report = {"fault": traceback.format_exc()}
    view = memoryview(json.dumps(report).encode())
    while view:
        view = view[os.write(into, view) :]
    os._exit(0)


class Server:
    """The client's end of one fork server."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env(),
        )

    def attempt(self, request: Json) -> Json:
        """One process's life. Raises `RuntimeError` with the traceback of a child that failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        reply = json.loads(self._process.stdout.readline())
        if reply["report"] and "fault" in reply["report"]:
            raise RuntimeError(f"{request}\n{reply['report']['fault']}")
        return reply

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


def env(**more: str) -> dict[str, str]:
    """The environment of a process of the suite."""
    here = Path(__file__).parent
    return {**os.environ, "PYTHONPATH": f"{here.parents[1] / 'src'}:{here}", **more}


def fresh(request: Json, seed: int) -> Json:
    """Like `Server.attempt`, in an interpreter that was started for it, with another order of hashes."""
    done = subprocess.run(
        [sys.executable, "-P", __file__, "--once", json.dumps(request)],
        env=env(PYTHONHASHSEED=str(seed)),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode > 0:
        raise RuntimeError(f"{request}\n{done.stderr}")
    return {"killed": done.returncode < 0, "report": json.loads(done.stdout) if done.stdout else None}


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve()
    else:
        sys.stdout.write(json.dumps(live(json.loads(sys.argv[2]))))
