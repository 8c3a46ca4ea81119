"""Runs that lose their process, and processes that continue all of them.

A script: `orphaned.py run PLACE RUN [POINT NTH]`, `orphaned.py all PLACE POISON_AFTER`, `orphaned.py resume PLACE RUN`;
what a process met it prints as JSON, if it lives so long.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import outside

from agent import Agent, Idempotency, Result, resume, resume_all, run, tool
from agent._message import UserMessage
from agent._model import Request
from agent.testing import ScriptedModel, call, say
from effects import Call, NotPerformed, Performed, current_call
from savepoint import Held, open_store
from savepoint.testing import CrashPoint, kill_at

PATIENCE_S = 30.0


@tool(idempotency=Idempotency.ONCE)
async def charge(run_id: str) -> str:
    """Acts once; a run named `slow` waits until another process has met its owner."""
    outside.enter()
    if run_id == "slow":
        await asyncio.wait_for(_until_met(), PATIENCE_S)
    return outside.act(run_id)


@charge.probe
async def charged(call: Call) -> Performed | NotPerformed:
    act = outside.performed(outside.here(), current_call().idempotency_key)
    return NotPerformed(final=True) if act is None else Performed(act.value)


@tool(idempotency=Idempotency.READ)
async def look(run_id: str) -> str:
    """Kills its process for as long as its run is ill."""
    if (outside.here() / f"{run_id} is ill").exists():
        outside.enter()
        os.kill(os.getpid(), signal.SIGKILL)
    return "seen"


def asked(request: Request) -> str:
    """What the run was asked to do."""
    [first, *_] = request.messages
    assert isinstance(first, UserMessage)
    return first.content


def _turn(name: str) -> Any:
    def turn(request: Request) -> Any:
        return call(name, run_id=asked(request))

    return turn


AGENT = Agent(
    name="orphan", tools=(charge, look), model=ScriptedModel([_turn("charge"), _turn("look"), say("all done")])
)


async def _until_met() -> None:
    while not (outside.here() / "met").exists():  # noqa: ASYNC110  another process makes it
        await asyncio.sleep(0.01)


def said(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def told(result: Result) -> dict[str, Any]:
    return {
        "status": result.status.value,
        "replayed": result.replayed,
        "error": None if result.error is None else result.error.kind,
        "questions": [[each.id, each.kind.value, each.step, each.why] for each in result.questions],
    }


async def started(place: Path, run_id: str) -> dict[str, Any]:
    async with open_store(place / "store", durability="process") as store:
        return told(await run(AGENT, run_id, run_id=run_id, store=store))


async def resumed(place: Path, run_id: str) -> dict[str, Any]:
    async with open_store(place / "store", durability="process") as store:
        return told(await resume(run_id, agent=AGENT, store=store))


async def recovered(place: Path, poison_after: int) -> dict[str, Any]:
    async with open_store(place / "store", durability="process") as store:
        said("ready")
        await asyncio.to_thread(sys.stdin.readline)
        found = await resume_all(AGENT, store=store, poison_after=poison_after, backoff_s=0.01)
    if any(isinstance(each.error, Held) for each in found):
        (outside.here() / "met").touch()
    return {each.run_id: str(type(each.error).__name__) if each.result is None else told(each.result) for each in found}


def main(what: str, where: str, *rest: str) -> None:
    place = Path(where)
    outside.live_at(place / "outside")
    match what:
        case "run":
            if rest[1:]:
                kill_at(CrashPoint(rest[1]), int(rest[2]))
            life = started(place, rest[0])
        case "resume":
            life = resumed(place, rest[0])
        case _:
            life = recovered(place, int(rest[0]))
    said(json.dumps(asyncio.run(life)))


if __name__ == "__main__":
    main(*sys.argv[1:])
