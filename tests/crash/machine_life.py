"""What a process of the state machine does: `live` is the function of its fork server."""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import outside
import programs
from machine_look import hydrated, look
from machine_program import REGISTRY, host, note, program
from machine_ways import OnClaim, in_small_disk, twice
from sabotage import SABOTAGES

from effects._question import Choice, Decision, QuestionKind
from savepoint import SavepointError, fork_program, open_store, resume_program, run_program
from savepoint import _crashpoint as crashpoint
from savepoint._crashpoint import CrashPoint
from savepoint._questions import open_questions, read_decisions, read_questions, record_decision
from savepoint._resumable import CURRENT_RUN
from savepoint._run_result import RunResult, find_run, get_run
from savepoint.crash._observe import idempotency_key

Json = dict[str, Any]


def warm_up() -> None:
    """One life in the server, so that no child pays for what happens once."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        prepare(place)
        (place / "scripts" / "r0").write_text("team once end")
        live({"place": name, "do": "run", "run": "r0"})
        live({"place": name, "do": "look", "runs": ["r0"], "known": []})


def prepare(place: Path) -> None:
    """The directories of one machine."""
    for name in ("scripts", "files", "outside"):
        (place / name).mkdir(parents=True, exist_ok=True)


def live(request: Json) -> Json:
    """`do`: what the process does. Its report; an error of the project is reported by name, any other one is raised."""
    place = Path(request["place"])
    if shift := request.get("clock_s", 0):
        real = time.time
        time.time = lambda: real() + shift  # type: ignore[assignment]  # this process's wall clock was moved
    if request.get("sabotage"):
        SABOTAGES[request["sabotage"]]()
    outside.live_at(place / "outside")
    if request["do"] != "look":
        _leave_trail()
    if request["do"] == "twice":
        return {"both": twice(lambda on_claim: _reported(request, place, on_claim))}
    if request["do"] == "full":
        return in_small_disk(place, request["spare_kb"], lambda: _reported(request, place))
    return _reported(request, place)


def _leave_trail() -> None:
    armed = crashpoint._armed

    def hook(point: CrashPoint) -> None:
        note(point.value)
        if armed is not None:
            armed(point)

    crashpoint.arm(hook)


def _reported(request: Json, place: Path, on_claim: OnClaim = lambda _: None) -> Json:
    dos: dict[str, Any] = {
        "run": _run,
        "full": _run,
        "twice": _run,
        "decide": _decide,
        "hydrate": hydrated,
        "look": look,
    }
    try:
        return asyncio.run(dos[request["do"]](request, place, on_claim))
    except SavepointError as error:
        return {"error": type(error).__name__, "message": str(error), "next": error.next}
    except programs.WrongResult as wrong:
        return {"error": "WrongResult", "message": str(wrong), "next": "-"}


async def _run(request: Json, place: Path, on_claim: OnClaim) -> Json:
    """Starts, forks or continues a run, whatever there is."""
    run = request["run"]
    async with open_store(place / "store", durability="process") as store:
        common: Json = {"store": store, "world": host(place), "registry": REGISTRY, "on_claim": on_claim}
        if await find_run(store, run) is not None:
            result = await resume_program(run, **common)
        elif request.get("fork"):
            parent, step = request["fork"]
            result = await fork_program(parent, at=step, fork_id=run, **common)
        else:
            result = await run_program(program.at(CURRENT_RUN, 0), run_id=run, **common)
    return _result(result)


def _result(result: RunResult) -> Json:
    return {
        "status": result.status.value,
        "value": result.value,
        "replayed": result.replayed,
        "step": result.step,
        "error_of_run": None if result.error is None else f"{result.error.kind}: {result.error.message}",
        "questions": sorted([each.kind.value, each.effect] for each in result.questions),
        "warnings": [*result.warnings],
        "may_repeat": [*result.may_repeat],
    }


async def _decide(request: Json, place: Path, _: object) -> Json:
    """Answers the oldest open question with what the outside's ledger says, or as `how` says.

    `fail`: where it was not performed, it shall fail. `again`, `against`: the newest decision, repeated or contradicted.
    """
    async with open_store(place / "store", durability="process") as store:
        record = await get_run(store, request["run"])
        how = request["how"]
        if how in ("again", "against"):
            decisions = await read_decisions(store, record.lineage, REGISTRY.types)
            asked = {each.id: each for each in await read_questions(store, record.lineage, REGISTRY.types)}
            first = [each for each in decisions.values() if each.question in asked][-1]
            said = first if how == "again" else _contrary(first)
            await record_decision(store, record.lineage, asked[first.question], said, REGISTRY.types)
            return {"said": said.choice.value}
        question = (await open_questions(store, record.lineage, REGISTRY.types))[0]
        act = outside.performed(outside.here(), idempotency_key(record.lineage, question.step, question.key))
        doubt = question.kind is QuestionKind.IN_DOUBT
        choice = Choice.PERFORMED if act else Choice.FAIL if how == "fail" and doubt else Choice.REDO
        told = Decision(
            question=question.id,
            choice=choice,
            value=act.value if act else None,
            note="told to fail" if choice is Choice.FAIL else "",
        )
        await record_decision(store, record.lineage, question, told, REGISTRY.types)
        about = [question.kind.value, question.effect]
        return {"said": choice.value, "about": about, "tag": act.tag if act else None}


def _contrary(first: Decision) -> Decision:
    choice = Choice.REDO if first.choice is not Choice.REDO else Choice.FAIL
    return Decision(question=first.question, choice=choice)
