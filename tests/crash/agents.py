"""The tools that the crash suite's agents use: every idempotency class, and what their bodies perform.

A body's tag is its place in the transcript (`step.index`, and the effect within it), equal in every attempt; in a run
that is nested in another one, behind what that run was asked.
"""

import asyncio
import os
import signal
import time
from typing import Any

import outside
from outside import TAG, enter

from agent import Context, Tool, tool
from agent._context import current_context
from agent._entries import User
from agent._scene import TRANSCRIPT
from effects import Call, Effect, Idempotency, NotPerformed, Performed, branch, effect
from effects._call import CURRENT
from savepoint import World

WINDOW_S = 3600.0
INPUT = "go"
"""what the outermost run is asked"""


class Setting:
    """What the rig says of this process."""

    ranks: tuple[int, ...] = ()
    """by index in the reply: who ends first"""
    refuse = True
    """a sulking map refuses its snapshot"""
    work: tuple[str, ...] = ("R", "W", "V")
    """what `work` performs, in order: a program that was changed between two processes"""
    away = False
    """whom an agent hands over to cannot be set up"""
    halt = ""
    """the tag before whose act this process sends itself SIGTERM"""


# -- order ----------------------------------------------------------------------------------------------------------

_running: list[int] = []
_left = asyncio.Event()
_STARTING = 3
"""Passes of the event loop in which the calls of one reply all start."""


async def in_turn() -> None:
    """Returns when those who run beside this call and should end before it have ended."""
    index = int(current_context().call_id.rpartition(".")[2])
    rank = Setting.ranks[index] if index < len(Setting.ranks) else index
    _running.append(rank)
    try:
        for _ in range(_STARTING):
            await asyncio.sleep(0)
        while min(_running) < rank:
            _left.clear()
            await _left.wait()
    finally:
        _running.remove(rank)
        _left.set()


def began(name: str = "") -> None:
    """A body was entered."""
    context = current_context()
    asked = next(each for each in reversed(context.world[TRANSCRIPT]) if isinstance(each, User))
    TAG.set(f"{inside(asked.content)}{context.call_id}{name}")
    enter()


def inside(asked: str) -> str:
    """What a place begins with in the run that was asked this: a run's id differs from lineage to lineage."""
    return "" if asked == INPUT else f"{asked}/"


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
