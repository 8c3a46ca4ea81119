"""Processes that fight for one run: eight resumers behind a barrier, and an owner that is stopped past its lease.

A script: `racing.py race PLACE COUNT` or `racing.py stop PLACE`; it prints what each process met, as JSON.
"""

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import outside

from effects import Idempotency, effect
from savepoint import Held, Registry, World, open_store, resumable, resume_program, run_program, savepoint
from savepoint.testing import CrashPoint, kill_at

RUN = "run"
WAITS_ON: list[int] = []
"""A pipe from which the winner's effect reads a byte for each loser."""
STOPS: list[bool] = []
"""Whether this process stops itself inside its first effect."""


@effect("race/charge", idempotency=Idempotency.ONCE)
async def charge(losers: int) -> str:
    outside.enter()
    if WAITS_ON:
        await asyncio.to_thread(_read_all, WAITS_ON[0], losers)
    return outside.act("charge")


def _read_all(pipe: int, count: int) -> None:
    while count:
        count -= len(os.read(pipe, count))


@effect("race/pause", idempotency=Idempotency.READ)
async def pause() -> str:
    outside.enter()
    if STOPS:
        os.kill(os.getpid(), signal.SIGSTOP)
    return outside.read()


@resumable("race/program")
async def program(world: World, losers: int, step: int) -> str:
    if step == 0:
        await savepoint("turn", resume=program.at(losers, 1))
    return await charge(losers)


@resumable("race/stopping")
async def stopping(world: World) -> str:
    return f"{await pause()} {await charge(0)}"


REGISTRY = Registry([program, stopping], effects=[charge, pause])


async def _started(place: Path, losers: int) -> str:
    async with open_store(place / "store") as store:
        return (await run_program(program.at(losers, 0), store=store, run_id=RUN)).status.value


async def _resumed(place: Path, ready: int, go: int, lost: int) -> str:
    async with open_store(place / "store") as store:
        os.write(ready, b".")
        os.read(go, 1)
        try:
            result = await resume_program(RUN, store=store, registry=REGISTRY)
        except Held as held:
            os.write(lost, b".")
            return f"held: {held}"
        return f"{result.status.value}: {result.value}"


def in_child(place: Path, life: Callable[[], Awaitable[str]], into: int) -> int:
    """A forked process that lives one coroutine and writes what it met."""
    child = os.fork()
    if child == 0:
        outside.live_at(place / "outside")
        said = asyncio.run(life())  # type: ignore[arg-type]
        os.write(into, json.dumps([os.getpid(), said]).encode() + b"\n")
        os._exit(0)
    return child


def race(place: Path, count: int) -> None:
    def dying() -> Awaitable[str]:
        kill_at(CrashPoint.GAP_AFTER)
        return _started(place, count - 1)

    said, into = os.pipe()
    os.waitpid(in_child(place, dying, into), 0)
    ready, is_ready = os.pipe()
    go, let_go = os.pipe()
    lost, is_lost = os.pipe()
    WAITS_ON.append(lost)
    children = [in_child(place, lambda: _resumed(place, is_ready, go, is_lost), into) for _ in range(count)]
    _read_all(ready, count)
    os.write(let_go, b"." * count)
    for child in children:
        os.waitpid(child, 0)
    _report(place, said, into)


def stop(place: Path) -> None:
    async def owner() -> str:
        async with open_store(place / "store") as store:
            try:
                result = await run_program(stopping.at(), store=store, run_id=RUN, registry=REGISTRY, lease_s=0.5)
            except Held as held:
                return f"held: {held}"
            return f"{result.status.value}: {result.value}"

    async def heir() -> str:
        async with open_store(place / "store") as store:
            while True:
                try:
                    result = await resume_program(RUN, store=store, registry=REGISTRY)
                except Held:
                    continue  # the lease still runs
                return f"{result.status.value}: {result.value}"

    said, into = os.pipe()
    STOPS.append(True)
    stopped = in_child(place, owner, into)
    os.waitpid(stopped, os.WUNTRACED)
    STOPS.clear()
    os.waitpid(in_child(place, heir, into), 0)
    before = _rows(place)
    entered = len(outside.entered(place / "outside"))
    os.kill(stopped, signal.SIGCONT)
    os.waitpid(stopped, 0)
    _report(
        place, said, into, written=_rows(place) != before, entered=len(outside.entered(place / "outside")) - entered
    )


def _rows(place: Path) -> list[object]:
    with sqlite3.connect(place / "store" / "store.db") as db:
        return db.execute("select place, body from ledger order by place").fetchall()


def _report(place: Path, said: int, into: int, **more: object) -> None:
    os.close(into)
    with os.fdopen(said) as pipe:
        met = [json.loads(line)[1] for line in pipe]
    acts = len(outside.ledger(place / "outside"))
    sys.stdout.write(json.dumps({"met": met, "acts": acts, "all": len(outside.entered(place / "outside")), **more}))


if __name__ == "__main__":
    if sys.argv[1] == "race":
        race(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        stop(Path(sys.argv[2]))
