"""Agents that talk in sessions, hand over and ask each other, in processes that are killed: one life does some acts.

What an agent does is what its run's input says, so every process knows it: turns are parted by `;`, calls of one turn
by `+`, and a word that is no tool is said. To the helper they are `,` and `&`.
"""

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import outside
from races import Racer

import agent
from agent import Agent, Idempotency, Result, StoredSession, as_tool, tool
from agent._context import Context
from agent._entries import paired
from agent._model import Request
from agent.testing import ScriptedModel, Turn, call, calls, say
from savepoint import SavepointError, Workspace, World, cancel_run, remove_run
from savepoint._nested import nested_in
from savepoint._run_result import find_run, get_run
from savepoint._sqlite import SqliteStore, open_store
from savepoint.crash._ends import die_with_parent

Json = dict[str, Any]


# -- tools --------------------------------------------------------------------------------------------------------------


@tool(idempotency=Idempotency.ONCE)
async def charge(what: str) -> str:
    return outside.act(what)


@tool(idempotency=Idempotency.IDEMPOTENT)
async def put(what: str) -> str:
    return outside.act(what)


@tool(idempotency=Idempotency.ONCE, approval=True)
async def publish(what: str) -> str:
    return outside.act(what)


@tool(idempotency=Idempotency.IDEMPOTENT)
async def die(what: str) -> str:
    """Kills its process the first time, and acts after that."""
    if outside.first_time(what):
        os.kill(os.getpid(), signal.SIGKILL)
    return outside.act(what)


@tool(idempotency=Idempotency.CONTAINED)
async def note(context: Context[Any], what: str) -> str:
    files: Any = context.world.system("files")
    (files.path / what).write_text(what)
    return "noted"


TOOLS = (charge, put, publish, die, note)


# -- agents -------------------------------------------------------------------------------------------------------------


class Model(ScriptedModel):
    """Does what the input of its run says; notes outside whose model was asked, and what it was shown."""

    def __init__(self, name: str) -> None:
        super().__init__([], name=f"model of {name}")
        self._agent = name

    async def reply(self, request: Request, **more: Any) -> Any:
        seen = [str(getattr(each, "content", getattr(each, "text", ""))) for each in request.messages]
        told = {"agent": self._agent, "told": request.instructions, "turn": request.turn, "seen": seen}
        outside._append("asked", told)
        return await super().reply(request, **more)

    def _turn(self, request: Request) -> Turn:
        said: Any = request.messages[request.history]
        turns = said.content.split(";")
        return calls(*(self._part(each.split()) for each in turns[request.turn].split("+")))

    def _part(self, words: Sequence[str]) -> Turn:
        match words:
            case ["helper", *rest]:
                return call("helper", input=" ".join(rest).replace(",", ";").replace("&", "+"))
            case [name, what] if name in {each.name for each in TOOLS}:
                return call(name, what=what)
            case [transfer] if transfer.startswith("transfer_to_"):
                return call(transfer)
            case _:
                return say(f"{self._agent}: {' '.join(words)}")


def one(name: str, *, away: bool = False, **more: Any) -> Agent:
    def instructions(_: object) -> str:
        if away:
            raise OSError(f"{name} cannot be set up")
        return f"you are {name}"

    return Agent(name=name, instructions=instructions, model=Model(name), tools=TOOLS, **more)


def graph(how: str) -> Agent:
    """Agent `a`, who asks the helper and hands over to `b`, who hands back; or what became of them since."""
    match how:
        case "twins":
            others = (one("b", handoffs=("a",)), one("b"))
        case "renamed":
            others = (one("bee", handoffs=("a",)),)
        case "removed":
            others = ()
        case _:
            others = (one("b", away=how == "b is away", handoffs=("a",)),)
    helper = as_tool(one("helper"))
    name = "z" if how == "another entry" else "a"
    handoffs = () if name == "z" else others
    return Agent(
        name=name, instructions=f"you are {name}", model=Model(name), tools=(*TOOLS, helper), handoffs=handoffs
    )


# -- a life -------------------------------------------------------------------------------------------------------------


def warm_up() -> None:
    with tempfile.TemporaryDirectory() as place:
        live({"place": place, "acts": [{"do": "run", "input": "charge x; helper note y, done; done", "session": "u"}]})


def live(request: Json) -> Json:
    """Does `acts` one after the other, or `racers` (a list of such lists) at once, each in a process of its own."""
    place = Path(request["place"])
    if "racers" in request:
        return {"said": at_once(request["racers"], place)}
    return {"said": _lived(request["acts"], place)}


def _lived(acts: Sequence[Json], place: Path) -> list[Json]:
    outside.live_at(place / "outside")
    return asyncio.run(acted(acts, place))


async def acted(acts: Sequence[Json], place: Path) -> list[Json]:
    """What came of each, or why it was refused."""
    async with open_store(place / "store", durability="process") as store:
        return [await _act(each, store, place) for each in acts]


async def _act(act: Json, store: SqliteStore, place: Path) -> Json:
    if "gate" in act:
        os.write(act["gate"][0], b".")
        os.read(act["gate"][1], 1)
        return {}
    try:
        return await _done(act, store, place)
    except SavepointError as error:
        return {"refused": error.code, "why": error.message, "next": error.next}


async def _done(act: Json, store: SqliteStore, place: Path) -> Json:
    run_id, session_id = act.get("run_id", "r"), act.get("session")
    session = StoredSession(store)
    match act["do"]:
        case "run" | "resume":
            return told(await _went_on(act, run_id, store, place))
        case "decide":
            more = {"note": act.get("note", ""), "value": act.get("value")}
            decided = await agent.decide(run_id, act["question"], act["verdict"], store=store, **more)
            return {"decided": decided.choice.value}
        case "rewind":
            return {"removed": await session.rewind(act["session"], keep_entries=act["keep"])}
        case "clear":
            await session.clear(act["session"])
        case "cancel":
            await cancel_run(store, run_id)
        case "remove":
            await remove_run(store, run_id)
        case "nested":
            found = await nested_in(store, (await get_run(store, run_id)).lineage)
            return {"nested": [each.run_id for each in found]}
        case "show":
            record = await find_run(store, run_id)
            return {"status": record and record.status.value, "attempts": record and record.attempts}
        case _:
            return await _shown(session, str(session_id))
    return {}


async def _went_on(act: Json, run_id: str, store: SqliteStore, place: Path) -> Result:
    (place / "files").mkdir(exist_ok=True)
    more: Json = {"store": store, "world": World({"files": Workspace(place / "files")})}
    entry = graph(act.get("graph", ""))
    if act["do"] == "resume":
        return await agent.resume(run_id, agent=entry, **more)
    policy = act.get("policy", "resume")
    return await agent.run(
        entry, act["input"], run_id=run_id, session_id=act.get("session"), if_run_exists=policy, **more
    )


def told(result: Result) -> Json:
    return {
        "status": result.status.value,
        "output": result.output,
        "error": None if result.error is None else result.error.message,
        "replayed": result.replayed,
        "ignored": result.input_ignored,
        "warnings": list(result.warnings),
        "step": result.step,
        "questions": [
            {"id": q.id, "kind": q.kind, "effect": q.effect, "arguments": q.arguments} for q in result.questions
        ],
        "transcript": [repr(each) for each in result.transcript],
    }


async def _shown(session: StoredSession, session_id: str) -> Json:
    segments = await session.segments(session_id)
    entries = list(await session.load(session_id))
    return {
        "runs": [each.run_id for each in segments],
        "counts": [len(each.entries) for each in segments],
        "timed": [bool(each.meta.get("timing")) for each in segments],
        "entries": [repr(each) for each in entries],
        "unpaired": paired(entries),
        "pending": await session.pending_runs(session_id),
    }


# -- several at once ----------------------------------------------------------------------------------------------------


def at_once(racers: Sequence[Sequence[Json]], place: Path) -> list[list[Json]]:
    """Each opens the store, waits until all have, and does its acts; what each said, nothing of one that was killed."""
    ready, is_ready = os.pipe()
    go, let_go = os.pipe()
    gate = {"do": "wait", "gate": [is_ready, go]}
    started = [_forked([gate, *acts], place) for acts in racers]
    for _ in started:
        os.read(ready, 1)
    os.write(let_go, b"." * len(started))
    said: list[Mapping[str, Any]] = [each.said() for each in started]
    for each in (ready, is_ready, go, let_go):
        os.close(each)
    return [[] if each["said"] == "killed" else each["said"][1:] for each in said]


def _forked(acts: Sequence[Json], place: Path) -> Racer:
    pipe, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        try:
            os.write(into, json.dumps({"said": _lived(acts, place)}).encode())
        finally:
            os._exit(0)
    os.close(into)
    return Racer(pid=pid, pipe=pipe)
