"""A small program with one call of each kind, and its outside: a ledger that no store knows."""

import json
import os
import traceback
from pathlib import Path
from typing import Any

from effects import Idempotency, effect
from savepoint import Cell, KeyValue, Log, Registry, SavepointError, Workspace, World, resumable, savepoint
from savepoint._point import current_world

LOG: Cell[Log[Any]] = Cell("log", Log, default=Log())
WINDOW_S = 3600.0
MAX_AGE_S = 60.0
Json = dict[str, Any]


# -- the outside ------------------------------------------------------------------------------------------------------

_outside: list[Path] = []


def live_at(place: Path) -> None:
    """Puts the outside of this process into the directory `place`."""
    place.mkdir(exist_ok=True)
    _outside.append(place)


def _append(name: str, line: object) -> None:
    handle = os.open(_outside[-1] / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, json.dumps(line).encode() + b"\n")
    finally:
        os.close(handle)


def lines(place: Path, name: str) -> list[Any]:
    """What one of the outside's files holds: `ledger` (acts), `entered` (bodies), `reads`."""
    path = place / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _first_time(what: str) -> bool:
    if what in lines(_outside[-1], "unclear"):
        return False
    _append("unclear", what)
    return True


# -- effects ----------------------------------------------------------------------------------------------------------


@effect("small/read", idempotency=Idempotency.READ)
async def read(what: str) -> str:
    _append("entered", f"read {what}")
    _append("reads", what)
    return f"{what} seen {len(lines(_outside[-1], 'reads'))}"


@effect("small/aged", idempotency=Idempotency.READ, max_age_s=MAX_AGE_S)
async def aged(what: str) -> str:
    _append("entered", f"aged {what}")
    _append("reads", what)
    return f"{what} seen {len(lines(_outside[-1], 'reads'))}"


@effect("small/note", idempotency=Idempotency.CONTAINED)
async def note(what: str) -> str:
    _append("entered", f"note {what}")
    files, kv = current_world().system("files"), current_world().system("kv")
    assert isinstance(files, Workspace)
    (files.path / what).write_text(f"note {what}\n" * 5)
    kv[what] = kv.get(what, 0) + 1  # type: ignore[index]
    return f"noted {what} {kv[what]}"  # type: ignore[index]


@effect("small/put", idempotency=Idempotency.IDEMPOTENT)
async def put(what: str) -> str:
    _append("entered", f"put {what}")
    _append("puts", what)
    return f"put {what}"


@effect("small/pay", idempotency=Idempotency.KEYED, window_s=WINDOW_S)
async def pay(what: str) -> str:
    _append("entered", f"pay {what}")
    if _first_time(f"pay {what}"):  # the remote knows the key, which the test need not
        _append("ledger", f"pay {what}")
    return f"paid {what}"


@effect("small/send", idempotency=Idempotency.ONCE)
async def send(what: str) -> str:
    _append("entered", f"send {what}")
    _append("ledger", f"send {what}")
    return f"sent {what}"


@effect("small/gone", idempotency=Idempotency.ONCE)
async def gone(what: str) -> str:
    """It is performed, and nobody hears of it."""
    _append("entered", f"gone {what}")
    _append("ledger", f"gone {what}")
    raise TimeoutError


EFFECTS = {each.name.partition("/")[2]: each for each in (read, aged, note, put, pay, send, gone)}


@resumable("small/work")
async def work(world: World, plan: str, step: int) -> list[Any]:
    turns = plan.split("|")
    while step < len(turns):
        said: list[str] = []
        for each in turns[step].split(";"):
            name, _, what = each.partition(" ")
            said.append(await EFFECTS[name](what))
        world[LOG] = world[LOG].append(said)
        step += 1
        if step < len(turns):
            await savepoint("turn", key={"step": step}, resume=work.at(plan, step), state=[LOG])
    return [list(world[LOG]), shown(world)]


def shown(world: World) -> Json:
    """What the world of a run holds."""
    files = world.system("files")
    assert isinstance(files, Workspace)
    texts = {path.name: path.read_text() for path in sorted(files.path.iterdir())}
    return {**texts, "kv": sorted(world.system("kv").items())}  # type: ignore[attr-defined]


REGISTRY = Registry([work], effects=list(EFFECTS.values()))


def host(place: Path) -> World:
    (place / "host").mkdir(exist_ok=True)
    return World({"files": Workspace(place / "host"), "kv": KeyValue({})})


def said_of(error: BaseException) -> Json:
    """An error as the tests judge it: by name, or leaked."""
    if isinstance(error, SavepointError):
        return {"error": type(error).__name__, "message": error.message, "next": error.next}
    return {"leak": f"{type(error).__name__}: {error}", "trace": "".join(traceback.format_exception(error))}
