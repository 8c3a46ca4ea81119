"""The agents that the crash suite kills: tools of every idempotency class, and the tasks that use them.

A body's tag is its place in the transcript (`step.index`, and the effect within it), equal in every attempt.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import outside
from attrs import field, frozen
from outside import TAG, enter

from agent import Agent, Context, Tool, tool
from agent._context import current_context
from agent._model import Request
from agent._scripted import Script, ScriptedModel, Turn, call, calls, say
from effects import Call, Effect, Idempotency, NotPerformed, Performed, branch, effect
from effects._call import CURRENT
from savepoint import KeyValue, Missing, Workspace, World

WINDOW_S = 3600.0


class Setting:
    """What the rig says of this process."""

    ranks: tuple[int, ...] = ()
    """by index in the reply: who ends first"""
    refuse = True
    """a sulking map refuses its snapshot"""
    work: tuple[str, ...] = ("R", "W", "V")
    """what `work` performs, in order: a program that was changed between two processes"""
    halt = ""
    """the tag before whose act this process sends itself SIGTERM"""


# -- order ----------------------------------------------------------------------------------------------------------

_running: set[int] = set()
_left = asyncio.Event()
_STARTING = 3
"""Passes of the event loop in which the calls of one reply all start."""


async def in_turn() -> None:
    """Returns when those who run beside this call and should end before it have ended."""
    index = int(current_context().call_id.rpartition(".")[2])
    rank = Setting.ranks[index] if index < len(Setting.ranks) else index
    _running.add(rank)
    try:
        for _ in range(_STARTING):
            await asyncio.sleep(0)
        while min(_running) < rank:
            _left.clear()
            await _left.wait()
    finally:
        _running.discard(rank)
        _left.set()


def began(name: str = "") -> None:
    """A body was entered."""
    TAG.set(current_context().call_id + name)
    enter()


# -- what bodies perform --------------------------------------------------------------------------------------------


@effect("inner/read", idempotency=Idempotency.READ)
async def inner_read() -> str:
    began(".read")
    return outside.read()


@effect("inner/send", idempotency=Idempotency.ONCE)
async def inner_send(what: str) -> str:
    began(f".send{what if what in 'abPRWV' else ''}")
    return outside.act(what)


@effect("inner/pay", idempotency=Idempotency.KEYED, window_s=WINDOW_S)
async def inner_pay(what: str) -> str:
    began(".pay")
    return outside.act(what, now_s=time.time(), window_s=WINDOW_S)


@effect("inner/note", idempotency=Idempotency.CONTAINED)
async def inner_note(text: str) -> int:
    began(".note")
    return append(current_context().world, text, f"{text}.txt")


def append(world: World, text: str, name: str = "notes.txt") -> int:
    """Appends a line to a file of the workspace: doing it twice shows. Returns how many there are."""
    files: Any = world.system("files")
    path = files.path / name
    path.write_text((path.read_text() if path.exists() else "") + text + "\n")
    return len(path.read_text().splitlines())


# -- tools ----------------------------------------------------------------------------------------------------------


@tool(idempotency=Idempotency.READ)
async def look(what: str) -> str:
    began()
    await in_turn()
    return f"saw {what}"


@tool(idempotency=Idempotency.CONTAINED)
async def bump(context: Context[Any], key: str) -> int:
    began()
    await in_turn()
    state: Any = context.world.system("kv")
    state[key] = state.get(key, 0) + 1
    return state[key]


@tool(idempotency=Idempotency.CONTAINED)
async def note(context: Context[Any], text: str) -> int:
    began()
    await in_turn()
    return append(context.world, text)


@tool(idempotency=Idempotency.IDEMPOTENT)
async def put(what: str) -> str:
    began()
    await in_turn()
    return outside.act(what)


@tool(idempotency=Idempotency.KEYED, window_s=WINDOW_S)
async def pay(what: str) -> str:
    began()
    await in_turn()
    return outside.act(what, now_s=time.time(), window_s=WINDOW_S)


@tool(idempotency=Idempotency.ONCE)
async def post(what: str) -> str:
    began()
    await in_turn()
    if Setting.halt == TAG.get():
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()
    return outside.act(what)


@tool(idempotency=Idempotency.ONCE)
def post_in_a_thread(what: str) -> str:
    began()
    return outside.act(what)


@tool
async def loose(context: Context[Any], text: str) -> str:
    """Declares nothing: it acts outside and writes the world."""
    began()
    await in_turn()
    said = outside.act(text)
    append(context.world, text)
    return said


@tool(idempotency=Idempotency.ONCE, approval=True)
async def approved_post(what: str) -> str:
    began()
    await in_turn()
    return outside.act(what)


@tool(idempotency=Idempotency.CONTAINED, approval=True)
async def approved_note(context: Context[Any], text: str) -> int:
    began()
    return append(context.world, text)


@tool(idempotency=Idempotency.ONCE, approval=True)
async def publish(context: Context[Any], path: str) -> str:
    """Posts what the file says."""
    began()
    files: Any = context.world.system("files")
    return outside.act(path, (files.path / path).read_text())


@tool(idempotency=Idempotency.ONCE)
async def sure(what: str) -> str:
    began()
    await in_turn()
    return outside.act(what)


@tool(idempotency=Idempotency.ONCE)
async def unsure(what: str) -> str:
    began()
    return outside.act(what)


def _found(*, final: bool) -> Performed[str] | NotPerformed:
    current = CURRENT.get()
    assert current is not None
    act = outside.performed(outside.here(), current.idempotency_key)
    return NotPerformed(final=final) if act is None else Performed(act.value)


@sure.probe
async def _sure(call: Call) -> Performed[str] | NotPerformed:
    return _found(final=True)


@unsure.probe
async def _unsure(call: Call) -> Performed[str] | NotPerformed:
    return _found(final=False)


@tool(idempotency=Idempotency.ONCE)
async def gone(what: str) -> str:
    """Acts, and loses the answer the first time."""
    began()
    await in_turn()
    said = outside.act(what)
    if outside.first_time(TAG.get()):
        raise ConnectionError
    return said


@tool(idempotency=Idempotency.ONCE)
async def broken(what: str) -> str:
    began()
    raise ValueError(f"no {what}")


@tool(idempotency=Idempotency.COMPOSITE)
async def orchestrate(what: str) -> list[object]:
    """Sends what it read: reading again would send something else."""
    seen = await inner_read()
    return [await inner_send(f"{what} {seen}"), await inner_note(what), await inner_pay(what)]


@tool(idempotency=Idempotency.COMPOSITE)
async def team(what: str) -> list[str]:
    async def one(name: str) -> str:
        with branch(name):
            return await inner_send(name)

    return list(await asyncio.gather(one("a"), one("b")))


@tool(idempotency=Idempotency.COMPOSITE)
async def work() -> list[str]:
    """R, W, V, or what the setting makes of it."""
    return [await inner_send(each) for each in Setting.work]


@tool(idempotency=Idempotency.CONTAINED)
async def sulk(context: Context[Any], *, on: bool) -> str:
    """From here on, or no longer, the world cannot be snapshotted."""
    began()
    state: Any = context.world.system("kv")
    state["sulks"] = on
    return "hm"


TOOLS: tuple[Tool[..., Any], ...] = (
    *(look, bump, note, put, pay, post, post_in_a_thread, loose, approved_post, approved_note, publish),
    *(sure, unsure, gone, broken, orchestrate, team, work, sulk),
)
EFFECTS: tuple[Effect[..., Any], ...] = (inner_read, inner_send, inner_pay, inner_note)


# -- the world ------------------------------------------------------------------------------------------------------


class Moody(KeyValue):
    """A map that refuses its snapshot while it holds that it sulks."""

    async def snapshot(self, contents: Any) -> bytes:
        if Setting.refuse and self.get("sulks"):
            raise Missing("the map sulks", next="cheer it up")
        return await super().snapshot(contents)

    async def fork(self, contents: Any, *, at: bytes | None, place: Path) -> "Moody":
        child = await super().fork(contents, at=at, place=place)
        moody = Moody(dict(child.items()))
        moody._owned = True
        return moody


def host(place: Path) -> World:
    """The user's world."""
    place.mkdir(exist_ok=True)
    return World({"files": Workspace(place), "kv": Moody()})


# -- tasks ----------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Task:
    """One script of a model, and what may be asked of its run."""

    turns: Script
    approval: str = "approve"
    """the truth about approvals"""
    handled: bool = False
    """a handler stands around the run and forwards every post"""
    no_questions: bool = False
    loses_world: bool = False
    """a question about a call that writes the world, answered `performed`, loses what it wrote"""
    fresh: bool = False
    """observations differ from run to run, so identities do"""
    max_turns: int = 50
    jumps: tuple[float, ...] = field(default=(0.0,), init=False)
    strict: bool = field(default=False, init=False)
    perturbed: bool = field(default=False, init=False)


def _one(turn: Turn, **more: Any) -> Task:
    return Task(turns=[turn, say("done")], **more)


def _last(request: Request) -> Turn:
    """A reply that depends on what was said before."""
    return call("post", what=f"after {getattr(request.messages[-1], 'text', '')}")


ONE_CALL: Mapping[str, Task] = {
    "READ": _one(call("look", what="x")),
    "CONTAINED, map": _one(call("bump", key="n")),
    "CONTAINED, file": _one(call("note", text="one")),
    "COMPOSITE": _one(call("orchestrate", what="x"), fresh=True),
    "COMPOSITE with branches": _one(call("team", what="x")),
    "IDEMPOTENT": _one(call("put", what="x")),
    "KEYED": _one(call("pay", what="x")),
    "ONCE": _one(call("post", what="x")),
    "ONCE in a thread": _one(call("post_in_a_thread", what="x")),
    "ONCE that fails": _one(call("broken", what="x")),
    "ONCE, ambiguous": _one(call("gone", what="x")),
    "ONCE with a final probe": _one(call("sure", what="x"), no_questions=True),
    "ONCE with a probe that is not final": _one(call("unsure", what="x")),
    "ONCE, approved": _one(call("approved_post", what="x")),
    "ONCE, denied": _one(call("approved_post", what="x"), approval="deny"),
    "ONCE, edited": _one(call("approved_post", what="x"), approval="edit"),
    "CONTAINED, approved": _one(call("approved_note", text="x")),
    "ONCE, handled": _one(call("post", what="x"), handled=True),
    "undeclared": _one(call("loose", text="x"), loses_world=True),
}

THREE_CALLS: Mapping[str, Task] = {
    "ONCE x 3": _one(calls(call("post", what="a"), call("post", what="a"), call("post", what="b"))),
    "READ, ONCE, CONTAINED": _one(calls(call("look", what="a"), call("post", what="b"), call("bump", key="n"))),
    "KEYED, IDEMPOTENT, CONTAINED file": _one(
        calls(call("pay", what="a"), call("put", what="b"), call("note", text="c"))
    ),
    "approvals first": _one(
        calls(call("post", what="a"), call("approved_post", what="b"), call("approved_post", what="c"))
    ),
    "what the model did wrong": _one(
        calls(call("post", what="a"), call("nothing", x=1), call("post", _raw='{"what": '), call("bump", key="n"))
    ),
    "barrier": _one(
        calls(call("note", text="a"), call("loose", text="b"), call("note", text="c"), call("post", what="d")),
        loses_world=True,
    ),
    "COMPOSITE x 2, ONCE": _one(
        calls(call("orchestrate", what="x"), call("orchestrate", what="y"), call("post", what="z")), fresh=True
    ),
    "ambiguous beside ONCE": _one(calls(call("gone", what="a"), call("post", what="b"), call("look", what="c"))),
    "handled beside": _one(calls(call("post", what="a"), call("look", what="b"), call("post", what="c")), handled=True),
}

LONGER: Mapping[str, Task] = {
    "savepoint refused": Task(
        turns=[
            calls(call("bump", key="n"), call("post", what="a")),
            call("sulk", on=True),
            calls(call("bump", key="n"), call("post", what="b")),
            _last,
            call("sulk", on=False),
            say("done"),
        ]
    ),
    "replies that depend": Task(turns=[call("bump", key="n"), _last, call("put", what="x"), _last, say("done")]),
    "each class in turn": Task(
        turns=[
            *(call("look", what="1"), call("bump", key="n"), call("note", text="3"), call("put", what="4")),
            *(call("pay", what="5"), call("post", what="6"), call("sure", what="7"), call("team", what="8")),
            say("done"),
        ],
    ),
}

MANY_TURNS: Mapping[str, Task] = {
    "many turns": Task(turns=[*(call("put", what=str(turn)) for turn in range(14)), say("done")], max_turns=10),
    "two approvals": _one(calls(call("approved_post", what="A"), call("approved_post", what="B"))),
    "three puts": _one(calls(call("put", what="a"), call("put", what="b"), call("put", what="c"))),
    "work": _one(call("work")),
    "publish": _one(call("publish", path="draft.txt")),
}

TASKS: Mapping[str, Task] = {**ONE_CALL, **THREE_CALLS, **LONGER, **MANY_TURNS}


class Counted(ScriptedModel):
    """A model whose every question is written down outside."""

    async def reply(self, request: Request, *, on_text: Callable[[str], None] | None = None) -> Any:
        outside._append("asked", request.turn)
        return await super().reply(request, on_text=on_text)


def agent_for(task: Task, *, tools: tuple[Tool[..., Any], ...] = TOOLS) -> Agent:
    return Agent(name="crash", model=Counted(task.turns), tools=tools, effects=EFFECTS, max_turns=task.max_turns)
