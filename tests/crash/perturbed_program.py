"""A free program that performs whatever calls its process is told, and the processes that run it.

What it does depends on the process, not on its state: a program that was changed, or a model that asks for almost
the same, between two processes of one run.
"""

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import outside
from outside import TAG, enter
from programs import WrongResult
from rig import Json

from effects import Call, Effect, Idempotency, NotPerformed, Performed, effect
from effects._call import CURRENT
from effects._question import Choice, Decision, QuestionKind
from effects._receipt import Receipt, Status
from savepoint import KeyValue, Registry, World, resumable, run_program, savepoint
from savepoint._past import read_marks
from savepoint._point import current_world
from savepoint._questions import arguments_of, open_questions, record_decision
from savepoint._resumable import OURS
from savepoint._run_result import find_run
from savepoint._sqlite import SqliteStore, open_store
from savepoint.crash._observe import asked, decided_questions, idempotency_key, receipts

RUN = "run"
EARLIER = "result"
"""`{"result": name}` as an argument: the result of the body's call of that name; None where it has no such call."""


class Setting:
    """What the rig says of this process."""

    turns: Sequence[Sequence[Json]] = ()
    """per step its calls: `effect`, `x`, `y`, `name`, `keywords` (`y` first), `inner` (a body's calls)"""
    version: int = 1
    """of the effects of this process's program"""


# -- what was asked for, as text ----------------------------------------------------------------------------------------


def shown(value: object) -> str:
    """A value as text that differs where the values do: 1, 1.0, True and "1" are four, the order of keys is none."""
    match value:
        case dict():
            return "{" + ", ".join(sorted(f"{shown(key)}: {shown(each)}" for key, each in value.items())) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(shown, value)) + "]"
        case _:
            return ascii(value)


def said(name: str, x: object, y: object) -> str:
    """What the call returns: its own name and arguments."""
    return f"{name}({shown(x)}, {shown(y)})"


# -- effects ----------------------------------------------------------------------------------------------------------


def _act(name: str, x: object, y: object, **more: float) -> str:
    enter()
    token = TAG.set(said(name, x, y))
    outside.act(**more)
    TAG.reset(token)
    return said(name, x, y)


def _found() -> Performed[str] | NotPerformed:
    current = CURRENT.get()
    assert current is not None
    act = outside.performed(outside.here(), current.idempotency_key)
    return NotPerformed(final=True) if act is None else Performed(act.tag)


def _effects(version: int) -> Mapping[str, Effect[..., Any]]:
    """One effect of each class, in one version of the program."""

    @effect("look", version=version, idempotency=Idempotency.READ)
    async def look(x: object, y: object = None) -> str:
        enter()
        return said("look", x, y)

    @effect("mark", version=version, idempotency=Idempotency.CONTAINED)
    async def mark(x: object, y: object = None) -> str:
        enter()
        state: Any = current_world().system("kv")
        state["marks"] = [*state.get("marks", []), said("mark", x, y)]
        return said("mark", x, y)

    @effect("team", version=version, idempotency=Idempotency.COMPOSITE)
    async def team(x: object, y: object = None) -> str:
        """What its inner calls are is a matter of the process, as its own arguments are."""
        await perform(inner(Setting.turns, said("team", x, y)))
        return said("team", x, y)

    @effect("put", version=version, idempotency=Idempotency.IDEMPOTENT)
    async def put(x: object, y: object = None) -> str:
        return _act("put", x, y)

    @effect("pay", version=version, idempotency=Idempotency.KEYED, window_s=3600.0)
    async def pay(x: object, y: object = None) -> str:
        return _act("pay", x, y, now_s=time.time(), window_s=3600.0)

    @effect("send", version=version, idempotency=Idempotency.ONCE)
    async def send(x: object, y: object = None) -> str:
        return _act("send", x, y)

    @effect("sure", version=version, idempotency=Idempotency.ONCE)
    async def sure(x: object, y: object = None) -> str:
        return _act("sure", x, y)

    @sure.probe
    async def _(_call: Call) -> Performed[str] | NotPerformed:
        return _found()

    @effect("loose", version=version)
    async def loose(x: object, y: object = None) -> str:
        """Undeclared: it acts outside and writes the world."""
        state: Any = current_world().system("kv")
        state["loose"] = said("loose", x, y)
        return _act("loose", x, y)

    return {each.name: each for each in (look, mark, team, put, pay, send, sure, loose)}


EFFECTS: Mapping[int, Mapping[str, Effect[..., Any]]] = {version: _effects(version) for version in (1, 2)}


# -- the program --------------------------------------------------------------------------------------------------------


async def perform(calls: Sequence[Json]) -> None:
    """One after the other; each result must be the one of its own call. Raises `WrongResult`."""
    results: dict[str, str] = {}
    for call in calls:
        x, y = arguments(call, results)
        performed = EFFECTS[Setting.version][call["effect"]]
        found = await (performed(y=y, x=x) if call.get("keywords") else performed(x, y))
        if found != said(call["effect"], x, y):
            raise WrongResult(f"{said(call['effect'], x, y)} got {found}")
        results[call.get("name", "")] = found


def arguments(call: Json, results: Mapping[str, str]) -> tuple[Any, Any]:
    """What a call is made with, given the results before it."""
    given = (call["x"], call.get("y"))
    x, y = (results.get(each[EARLIER]) if isinstance(each, dict) and EARLIER in each else each for each in given)
    return x, y


def inner(turns: Sequence[Sequence[Json]], outer: str) -> Sequence[Json]:
    """The calls of a body: written down with its call, or one ONCE call about what it was called with."""
    for call in (each for turn in turns for each in turn):
        if "inner" in call and outer == said(call["effect"], *arguments(call, {})):
            return call["inner"]
    return [{"effect": "send", "x": f"for {outer}"}]


@resumable("perturbed/program")
async def program(world: World, step: int) -> int:
    while step < len(Setting.turns):
        await perform(Setting.turns[step])
        step += 1
        await savepoint("turn", key={"step": step}, resume=program.at(step))
    return step


def registry() -> Registry:
    return Registry([program], effects=EFFECTS[Setting.version].values())


# -- one process --------------------------------------------------------------------------------------------------------


def live(request: Json) -> Json:
    """Lives through one attempt: first the answers (the truth) to what is open, then the run."""
    Setting.turns, Setting.version = request["turns"], request.get("version", 1)
    place = Path(request["place"])
    outside.live_at(place / "outside")
    return asyncio.run(_attempt(place))


def warm_up() -> None:
    with tempfile.TemporaryDirectory() as place:
        live({"place": place, "turns": [[{"effect": "send", "x": 1}]]})


async def _attempt(place: Path) -> Json:
    async with open_store(place / "store", durability="process") as store:
        await _answer(store)
        report: Json = {"before": await _known(store)}
        try:
            result = await run_program(
                program.at(0), store=store, run_id=RUN, world=World({"kv": KeyValue()}), registry=registry()
            )
        except WrongResult as wrong:
            return {**report, "status": f"wrong: {wrong}", "questions": [], "after": report["before"]}
        record = await find_run(store, RUN)
        assert record is not None
        return {
            **report,
            "status": result.status.value,
            "error": None if result.error is None else result.error.kind,
            "questions": [
                [each.kind.value, each.effect, _of(each.effect, each.arguments)] for each in result.questions
            ],
            "keys": asked(result.questions),
            "after": await _known(store),
        }


def _of(name: str, arguments: object) -> str:
    assert isinstance(arguments, dict)
    return said(name, arguments["x"], arguments["y"])


async def _known(store: SqliteStore) -> Json:
    """Step of the newest savepoint, what receipts say, and what was decided."""
    record = await find_run(store, RUN)
    if record is None:
        return {"step": 0, "receipts": [], "decided": []}
    decided = await decided_questions(store, record, registry())
    return {
        "step": max(await read_marks(store, record.lineage)),
        "receipts": [await _plain(store, key, each) for key, each in (await receipts(store, record)).items()],
        "decided": [
            [each.kind.value, decision.choice.value, idempotency_key(record.lineage, each.step, each.key), each.tried]
            for each, decision in decided
        ],
    }


async def _plain(store: SqliteStore, key: str, each: Receipt) -> Json:
    given = await arguments_of(store, each.arguments, each.arguments_object, OURS)
    return {
        "effect": each.effect,
        "call": _of(each.effect, given),
        "path": each.key.hex(),
        "status": each.status.value,
        "version": each.version,
        "step": each.step,
        "tried": each.tried,
        "key": key,
    }


async def _answer(store: SqliteStore) -> None:
    """With the truth. Of a call that was never made, and that this version cannot make, it is that it failed."""
    record = await find_run(store, RUN)
    if record is None:
        return
    known = await receipts(store, record)
    for question in await open_questions(store, record.lineage, OURS):
        key = idempotency_key(record.lineage, question.step, question.key)
        act, receipt = outside.performed(outside.here(), key), known[key]
        settled = receipt.status is Status.PERFORMED
        choice, value = Choice.PERFORMED, None if act is None or settled else act.tag
        if act is None and question.kind is QuestionKind.IN_DOUBT:
            choice = Choice.REDO
        elif act is None and not settled and receipt.version != Setting.version:
            choice = Choice.FAIL
        decision = Decision(question=question.id, choice=choice, value=value)
        await record_decision(store, record.lineage, question, decision, OURS)
