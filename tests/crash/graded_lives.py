"""The processes that faults are planted into: programs, agents, and what is done to a finished run, from one server.

A request's `kind` says which; `audit` (`[event, nth]`) kills the process at an event of the interpreter, `room` lets
the store's database grow by so many pages only.
"""

import asyncio
import contextlib
import io
import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import agent_rig
import outside
import racing
import racing_more
import rig
from sabotage import SABOTAGES

from savepoint import SavepointError, Workspace, World, merge_run, open_store, run_program
from savepoint._crashpoint import CrashPoint, arm
from savepoint._engine import Engine
from savepoint._merge_run import discard_run

Json = dict[str, Any]
PARKED = "-- it has parked --"
"""Between the bodies that a process entered: from here on the run waits, durably."""

warm_up = rig.warm_up


def live(request: Json) -> Json:
    """One process's life. What stops a run with a name is reported as `refused`."""
    for name, prepare in _PREPARED.items():
        if request.get(name):
            prepare(request[name])
    try:
        return _KINDS[request["kind"]](request)
    except SavepointError as error:
        return {"refused": error.code, "message": error.message, "status": "refused", "questions": []}


def _die_at(event: list[Any]) -> None:
    name, nth = event
    numbers = count(1)

    def hook(seen: str, _: object) -> None:
        if seen == name and next(numbers) == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _little_room(pages: int) -> None:
    settle = Engine.settle

    def small(self: Engine, **how: Any) -> None:
        settle(self, **how)
        (now,) = self.execute("pragma page_count").fetchone()
        self.execute(f"pragma max_page_count={now + pages}").fetchone()

    Engine.settle = small  # type: ignore[method-assign]


def _say_parked(_: object) -> None:
    from savepoint import _crashpoint

    inner = _crashpoint._armed

    def hook(point: CrashPoint) -> None:
        if inner is not None:
            inner(point)
        if point is CrashPoint.PARK_AFTER:
            outside._append("entered", PARKED)

    arm(hook)


def _anew(_: object) -> None:
    rig.run_program = partial(run_program, if_run_exists="restart", abandon=True)


def _of_run(run_id: str) -> None:
    agent_rig.RUN = run_id


_PREPARED: dict[str, Callable[[Any], None]] = {
    "audit": _die_at,
    "room": _little_room,
    "says_parked": _say_parked,
    "restart": _anew,
    "run_id": _of_run,
}


def _finish(request: Json) -> Json:
    """Merges or discards the world of the finished run of a program."""
    if request.get("sabotage"):
        SABOTAGES[request["sabotage"]]()
    how = {"merge": _merge, "discard": _discard}[request["kind"]]
    asyncio.run(how(Path(request["place"])))
    return {"status": "completed"}


async def _merge(place: Path) -> None:
    async with open_store(place / "store", durability="process") as store:
        await merge_run(store, rig.RUN, World({"files": Workspace(place / "files")}))


async def _discard(place: Path) -> None:
    async with open_store(place / "store", durability="process") as store:
        await discard_run(store, rig.RUN)


_RACES: dict[str, Callable[[Path], None]] = {
    "stop": racing.stop,
    "late": racing_more.late,
    "beside": racing_more.beside,
    "claimants": racing_more.claimants,
}


def _raced(request: Json) -> Json:
    """Processes of this one fight for a run: what they met."""
    if request.get("sabotage"):
        SABOTAGES[request["sabotage"]]()
    arm(None)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        _RACES[request["scenario"]](Path(request["place"]))
    return {"status": "completed", **json.loads(said.getvalue())}


_KINDS: dict[str, Callable[[Json], Json]] = {
    "program": rig.live,
    "agent": agent_rig.live,
    "merge": _finish,
    "discard": _finish,
    "race": _raced,
}
