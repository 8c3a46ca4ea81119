"""Processes that fight for one run: each begins, is stopped, wakes up and dies where the story says.

`races:live` is a life of the fork server that forks the racers itself.
"""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import outside
import programs
import rig
from attrs import frozen
from race_acts import RUN, Json, acted, warm_up
from sabotage import SABOTAGES

from savepoint import (
    RunStatus,
    _past,
)
from savepoint._run_result import find_run
from savepoint._sqlite import open_store
from savepoint.crash._ends import die_with_parent
from savepoint.crash._observe import at_end, decided_questions, receipts
from savepoint.testing import CrashPoint, arm

__all__ = ["live", "warm_up"]


# -- racers as processes ------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Racer:
    """A process that acts; stopped at a point where it was told to."""

    pid: int
    pipe: int

    def stopped(self) -> bool:
        """Waits until it stops or ends; whether it stopped."""
        return os.WIFSTOPPED(os.waitpid(self.pid, os.WUNTRACED)[1])

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def said(self) -> Json:
        """What it said when it ended; nothing where it was killed."""
        with os.fdopen(self.pipe) as pipe:
            text = pipe.read()
        with contextlib.suppress(ChildProcessError):  # it was waited for
            os.waitpid(self.pid, 0)
        return json.loads(text) if text else {"said": "killed"}


def racer(act: Json, place: Path, *, close: Sequence[int] = ()) -> Racer:
    """`act`: what it does; `stop`, `kill`: point and number of the arrival where it does so to itself; `sabotage`: the
    fault that it has.
    """
    pipe, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(pipe)
        for each in close:
            os.close(each)
        _lived(act, place, into)
    os.close(into)
    return Racer(pid=pid, pipe=pipe)


def _lived(act: Json, place: Path, into: int) -> None:
    """Never returns."""
    die_with_parent()
    code = 1
    try:
        arrivals: list[str] = []
        counts: Counter[str] = Counter()

        def hook(point: CrashPoint) -> None:
            counts[point] += 1
            arrivals.append(f"{point}:{counts[point]}")
            for how, number in (("stop", signal.SIGSTOP), ("kill", signal.SIGKILL)):
                if arrivals[-1] == act.get(how):
                    _signal(number)

        arm(hook)
        if act.get("sabotage"):
            SABOTAGES[act["sabotage"]]()
        if act.get("stop") in ("act.before", "act.after"):
            _stop_around_act(act["stop"], act["tag"])
        if act.get("stop") == "reading":
            _stop_while_reading()
        outside.live_at(place / "outside")
        report = {**asyncio.run(acted(act, place)), "arrivals": arrivals}
        os.write(into, json.dumps(report).encode())
        code = 0
    finally:
        os._exit(code)


def _signal(number: int) -> None:
    """Stops or kills this process exactly here: one sent to the process may be taken by another thread of it, and
    this one goes on for a moment.
    """
    signal.pthread_kill(threading.get_ident(), number)


def _stop_around_act(when: str, tag: str) -> None:
    """Inside the body: before the request reaches the outside, or between its deed and its answer."""
    act = outside.act

    def stopping(*arguments: object, **more: float) -> str:
        if when == "act.before" and outside.TAG.get() == tag:
            _signal(signal.SIGSTOP)
        value = act(*arguments, **more)
        if when == "act.after" and outside.TAG.get() == tag:
            _signal(signal.SIGSTOP)
        return value

    outside.act = stopping  # type: ignore[assignment]


def _stop_while_reading() -> None:
    """Once: after the head of a lineage was read, before its events are."""
    read, stopped = _past._events, list[bool]()

    async def stopping(*arguments: Any) -> Any:
        if not stopped:
            stopped.append(True)
            _signal(signal.SIGSTOP)
        return await read(*arguments)

    _past._events = stopping


# -- stories ------------------------------------------------------------------------------------------------------------


def live(request: Json) -> Json:
    place = Path(request["place"])
    before = [racer(_in(request, act), place).said() for act in request.get("prior", ())]
    told = {"alone": _alone, "sleeper": _sleeper, "barrier": _barrier}[request["story"]](request, place)
    told["prior"] = before
    if request.get("finish", True):
        told["finish"] = racer(_in(request, {"do": "finish"}), place).said()
    return {**told, **asyncio.run(_seen(place)), "acts": [[a.tag, a.kind, a.key] for a in outside.ledger(place / "outside")],
            "files": _files(place)}  # fmt: skip


def _in(request: Json, act: Json) -> Json:
    return {"scenario": request["scenario"], **act}


def _alone(request: Json, place: Path) -> Json:
    """One racer, undisturbed: where it could be stopped."""
    return {"owner": racer(_in(request, request["owner"]), place).said()}


def _sleeper(request: Json, place: Path) -> Json:
    """The owner stops; the other one does its part, or stops too; the owner wakes up, or dies; the other one goes on."""
    owner = racer(_in(request, request["owner"]), place)
    if not owner.stopped():
        return {"owner": owner.said(), "unreached": True}
    time.sleep(request.get("pause_s", 0.0))
    other = racer(_in(request, request["other"]), place)
    told: Json = {"between": request["other"].get("stop") is not None and other.stopped()}
    if not told["between"]:
        told["other"] = other.said()
    rows, entered = _rows(place), outside.entered(place / "outside")
    told["acts_before"] = len(outside.ledger(place / "outside"))
    owner.kill() if request.get("ends") == "killed" else owner.wake()
    told["owner"] = owner.said()
    told["written"] = [name for name, each in _rows(place).items() if each != rows[name]]
    told["entered"] = outside.entered(place / "outside")[len(entered) :]
    if told["between"]:
        other.wake()
        told["other"] = other.said()
    return told


def _barrier(request: Json, place: Path) -> Json:
    ready, is_ready = os.pipe()
    go, let_go = os.pipe()
    acts = [{**_in(request, each), "gate": [is_ready, go]} for each in request["racers"]]
    racers = [racer(each, place, close=[ready, let_go]) for each in acts]
    for _ in racers:
        os.read(ready, 1)
    os.write(let_go, b"." * len(racers))
    said = [each.said() for each in racers]
    for each in (ready, is_ready, go, let_go):
        os.close(each)
    return {"said": said}


def _rows(place: Path) -> dict[str, object]:
    """Every row of the store."""
    path = place / "store" / "store.db"
    if not path.exists():
        return {"ledger": [], "object": []}
    with sqlite3.connect(path) as db:
        return {
            "ledger": db.execute("select place, body from ledger order by place").fetchall(),
            "object": db.execute("select name from object order by name").fetchall(),
        }


def _files(place: Path) -> dict[str, str]:
    files = place / "files"
    return {each.name: each.read_text() for each in files.iterdir()} if files.exists() else {}


async def _seen(place: Path) -> Json:
    """How the run stands, and what was decided on the way."""
    async with open_store(place / "store", durability="process") as store:
        record = await find_run(store, RUN)
        if record is None:
            return {"status": None}
        known = await receipts(store, record)
        decided = await decided_questions(store, record, programs.REGISTRY)
        told: Json = {
            "status": record.status.value,
            "attempts": record.attempts,
            "decided": [[question.kind.value, said.choice.value, said.value] for question, said in decided],
            "doubted": [
                key for key, each in known.items() if (each.step, each.key) in {(q.step, q.key) for q, _ in decided}
            ],
            "performed": [key for key, each in known.items() if each.status.value == "performed"],
        }
        if record.status is RunStatus.COMPLETED:
            told["ended"] = await at_end(
                store, record, programs.REGISTRY, value=None, shown=rig._shower(store), renamed=rig.renaming
            )
        return told
