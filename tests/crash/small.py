"""One attempt of the small program, in a process of its own.

`python small.py JSON` lives it and prints its report as one line of JSON; the keys are those of `Request`.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from attrs import field, frozen
from small_program import REGISTRY, Json, host, lines, live_at, said_of, work

from effects._question import Choice, Decision, Question
from savepoint import SavepointError, open_store, run_program
from savepoint import _ambient as ambient
from savepoint._crashpoint import CrashPoint, arm
from savepoint._events import read_mark
from savepoint._form import read_form
from savepoint._past import read_marks
from savepoint._questions import open_questions, record_decision
from savepoint._run_result import RunResult, find_run, get_run
from savepoint._sqlite import SqliteStore

RUN = "run"


@frozen(kw_only=True)
class Request:
    """One attempt."""

    place: str
    plan: str
    """calls: `note a;send 1|read 2`, with a savepoint at each bar"""
    run: str = RUN
    store: str = "store"
    """below `place`, or absolute"""
    outside: str = "outside"
    how: dict[str, Any] = field(factory=dict[str, Any])
    """of `open_store`"""
    lease_s: float = 30.0
    decide: str = ""
    """the answer to every open question before the run goes on; `truth`: what the outside's ledger says"""
    die: tuple[str, int] | None = None
    """the crash point, and which arrival at it"""
    stop: tuple[str, int] | None = None
    """where the process stops itself (SIGSTOP) until somebody lets it go on"""
    small_files: tuple[str, int] | None = None
    """from this arrival on, no file may grow beyond what `store.db` is now: the kernel kills who tries"""
    wall_s: float | None = None
    """by how much the wall clock is off"""
    boot_s: float | None = None
    """the same of the boot clock"""
    frozen: bool = False
    """both clocks stand still"""
    rights: bool = True
    """root means nothing to files: their modes count"""
    leave: bool = False
    """the process ends at once after the run, as if it were killed: nothing is closed"""


async def attempt(request: Request) -> Json:
    """Answers what is to be decided, runs the program on, and tells how it ended."""
    place = Path(request.place)
    live_at(place / request.outside)
    try:
        async with open_store(place / request.store, **{"durability": "process", **request.how}) as store:
            if request.decide:
                await _decide(store, request)
            result = await run_program(
                work.at(request.plan, 0),
                store=store,
                run_id=request.run,
                world=host(place),
                registry=REGISTRY,
                lease_s=request.lease_s,
            )
            report = {**_report(result), "points": await _points(store, request.run)}
            if request.leave:
                _die_reporting(report)
            return report
    except Exception as error:
        return said_of(error)


async def _decide(store: SqliteStore, request: Request) -> None:
    record = await find_run(store, request.run)
    if record is None:
        return
    for question in await open_questions(store, record.lineage, REGISTRY.types):
        choice, value = _answer(request.decide, question, Path(request.place) / request.outside)
        decision = Decision(question=question.id, choice=choice, value=value)
        await record_decision(store, record.lineage, question, decision, REGISTRY.types)


def _answer(how: str, question: Question, place: Path) -> tuple[Choice, object]:
    if how != "truth":
        return Choice(how), f"{how} by decision" if how == "performed" else None
    name, what = question.effect.partition("/")[2], question.arguments["what"]  # type: ignore[index]
    if f"{name} {what}" not in lines(place, "ledger"):
        return Choice.REDO, None
    return Choice.PERFORMED, {"send": f"sent {what}", "pay": f"paid {what}"}.get(name, f"{name} {what}")


async def _points(store: SqliteStore, run: str) -> list[Json]:
    """The savepoints of the run: their step, their identity, their state, or what is wrong with it."""
    record = await get_run(store, run)
    points: list[Json] = []
    for step, row in sorted((await read_marks(store, record.lineage)).items()):
        point = read_mark(row).point
        try:
            form = await read_form(store, point, REGISTRY)
        except SavepointError as error:
            points.append({"step": step, "id": point.hex(), "what": said_of(error)})
            continue
        state = {name: list(log) for name, log in form.state.items()}  # type: ignore[call-overload]
        points.append({"step": step, "id": point.hex(), "what": repr((form.name, form.key, state))})
    return points


def _report(result: RunResult) -> Json:
    return {
        "status": result.status.value,
        "value": result.value,
        "step": result.step,
        "questions": [question.kind.value for question in result.questions],
        "warnings": list(result.warnings),
        "replayed": result.replayed,
        "failure": None if result.error is None else f"{result.error.kind}: {result.error.message}",
    }


def _die_reporting(report: Json) -> None:
    tell(report)
    os.kill(os.getpid(), signal.SIGKILL)


def _arm(request: Request) -> None:
    counts: Counter[CrashPoint] = Counter()

    def hook(point: CrashPoint) -> None:
        counts[point] += 1
        here = (point.value, counts[point])
        if here == request.small_files:
            _grow_no_more(Path(request.place) / request.store / "store.db")
        if here == request.stop:
            os.kill(os.getpid(), signal.SIGSTOP)
        if here == request.die:
            os.kill(os.getpid(), signal.SIGKILL)

    arm(hook)


def _grow_no_more(path: Path) -> None:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size,) * 2)


def _turn_clocks(request: Request) -> None:
    """What this process is told by its clocks. They are real in the packages: only here they are not."""
    real_wall, real_boot = time.time, ambient.boot_clock_s
    wall_s, boot_s = real_wall(), real_boot()

    def wall() -> float:
        return (wall_s if request.frozen else real_wall()) + (request.wall_s or 0.0)

    def boot() -> float:
        return (boot_s if request.frozen else real_boot()) + (request.boot_s or 0.0)

    time.time = wall
    for name, module in list(sys.modules.items()):
        if name.startswith("savepoint.") and getattr(module, "boot_clock_s", None) is real_boot:
            module.boot_clock_s = boot  # type: ignore[attr-defined]


def live(request: Request) -> Json:
    _arm(request)
    if request.frozen or request.wall_s is not None or request.boot_s is not None:
        _turn_clocks(request)
    return asyncio.run(attempt(request))


def asked(plain: Json) -> Request:
    pairs = {name: tuple(plain[name]) for name in ("die", "stop", "small_files") if plain.get(name)}
    return Request(**{**plain, **pairs})


def tell(report: Json) -> None:
    os.write(1, json.dumps(report).encode() + b"\n")


if __name__ == "__main__":
    tell(live(asked(json.loads(sys.argv[1]))))
