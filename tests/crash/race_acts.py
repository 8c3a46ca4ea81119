"""What one racer does with a run: it starts, resumes, cancels, forks, decides, merges, or finishes it."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import outside
import programs
import rig
from scenarios import SCENARIOS

from effects import Idempotency, effect
from effects._question import Choice, Decision
from savepoint import (
    Registry,
    RunStatus,
    SavepointError,
    World,
    cancel_run,
    discard_run,
    fork_program,
    merge_run,
    resume_program,
    run_program,
)
from savepoint._point import current_world
from savepoint._questions import open_questions, record_decision
from savepoint._run_result import find_run
from savepoint._sqlite import SqliteStore, open_store

RUN, FORK = "run", "fork"
PATIENCE_S = 10.0
"""How long an heir waits for a lease"""
Json = dict[str, Any]


@effect("peek", idempotency=Idempotency.READ)
async def peek() -> str:
    """Reads a file of the workspace."""
    outside.enter()
    files: Any = current_world().system("files")
    return (files.path / "notes.txt").read_text()


def warm_up() -> None:
    """In the server alone: other suites list the scenarios."""
    programs.REGISTRY = Registry([programs.program], effects=[*programs.REGISTRY._effects.values(), peek])
    SCENARIOS["READ of a file"] = programs.Scenario(
        turns=[
            programs.turn(("l", programs.line, "one")),
            programs.turn(("p", peek, ())),
            programs.turn(("s", programs.send, 1)),
        ],
        files=True,
    )
    rig.warm_up()


async def acted(act: Json, place: Path) -> Json:
    """One attempt at the run, by any door; how it ended, in a word."""
    async with open_store(place / "store", durability="process") as store:
        if (gate := act.get("gate")) is not None:
            os.write(gate[0], b".")
            os.read(gate[1], 1)
            until = time.monotonic() + act.get("late_s", 0.0)
            while time.monotonic() < until:
                pass
        deadline = time.monotonic() + act.get("patience_s", 0.0)
        while True:
            try:
                return await _do(act, store, place)
            except SavepointError as error:
                if error.code != "held" or time.monotonic() > deadline:
                    return {"said": error.code, "why": error.message}
            await asyncio.sleep(0.005)


async def _do(act: Json, store: SqliteStore, place: Path) -> Json:
    scenario = SCENARIOS[act["scenario"]]
    world = programs.host(scenario, place / "files")
    more: Json = {"store": store, "world": world, "registry": programs.REGISTRY, "lease_s": act.get("lease_s", 30.0)}
    program = programs.program.at(act["scenario"], 0)
    match act["do"]:
        case "run":
            result = await run_program(program, run_id=RUN, **more)
        case "restart" | "abandon" as how:
            result = await run_program(program, run_id=RUN, if_run_exists="restart", abandon=how == "abandon", **more)
        case "resume":
            if act.get("answer"):
                await rig._answer(store, only_one=False)
            result = await resume_program(RUN, **more)
        case "fork":
            result = await fork_program(RUN, fork_id=FORK, at=act.get("at"), **more)
        case "finish":
            return await _finished(store, more, act)
        case _:
            return await _settled(act, store, world)
    return {"said": "replayed" if result.replayed else result.status.value, "value": repr(result.value)}


async def _settled(act: Json, store: SqliteStore, world: World) -> Json:
    """A wish that runs nothing."""
    match act["do"]:
        case "cancel":
            return {"said": (await cancel_run(store, RUN)).value}
        case "merge":
            return {"said": "merged" if await merge_run(store, RUN, world) else "nothing"}
        case "discard":
            await discard_run(store, RUN)
            return {"said": "discarded"}
        case "decide":
            return await _decided(store, act)
        case other:
            raise AssertionError(other)


async def _decided(store: SqliteStore, act: Json) -> Json:
    record = await find_run(store, RUN)
    assert record is not None
    [question, *_] = await open_questions(store, record.lineage, programs.REGISTRY.types) or [None]
    if question is None:
        return {"said": "nothing to decide"}
    decision = Decision(question=question.id, choice=Choice(act["choice"]), value=act.get("value"))
    await record_decision(store, record.lineage, question, decision, programs.REGISTRY.types)
    return {"said": "decided", "value": act.get("value")}


async def _finished(store: SqliteStore, more: Json, act: Json) -> Json:
    """Answers and resumes until the run is over, as soon as it is free."""
    deadline, waited, said = time.monotonic() + act.get("patience_s", PATIENCE_S), 0, ""
    while time.monotonic() < deadline:
        try:
            await rig._answer(store, only_one=False)
            if await find_run(store, RUN) is None:
                result = await run_program(programs.program.at(act["scenario"], 0), run_id=RUN, **more)
            else:
                result = await resume_program(RUN, **more)
        except SavepointError as error:
            if error.code != "held":
                return {"said": error.code, "why": error.message, "waited": waited}
            waited, said = waited + 1, error.message
            await asyncio.sleep(0.005)
            continue
        if result.status is not RunStatus.WAITING:
            return {"said": "replayed" if result.replayed else result.status.value, "waited": waited}
    return {"said": "held", "why": said, "waited": waited}
