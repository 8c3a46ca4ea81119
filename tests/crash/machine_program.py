"""The program of the state machine: its steps stand in a file, and it leaves a trail as it goes.

The trail is written outside the store, so that it tells what happened also where nobody is left to report.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import outside
from machine_model import WINDOW_S
from outside import TAG, enter
from programs import TRANSCRIPT, at, bump, composite, gone, line, pure, put, send, sure

from effects import Effect, Idempotency, branch, effect
from savepoint import KeyValue, Registry, Workspace, World, resumable, savepoint
from savepoint._errors import Stopped
from savepoint._point import current_world
from savepoint._resumable import CURRENT_RUN


class NotYet(Exception):
    """The script goes no further, so far."""


def note(word: str, *more: object) -> None:
    """One line of the trail: who, where in the program, what."""
    outside._append("trail", [os.getpid(), word, TAG.get(), *more])


# -- effects of its own -------------------------------------------------------------------------------------------


@effect("machine/seen", idempotency=Idempotency.READ)
async def seen() -> str:
    """Reads something else each time."""
    enter()
    note("read", value := outside.read())
    return value


@effect("machine/pay", idempotency=Idempotency.KEYED, window_s=WINDOW_S)
async def pay(x: object) -> str:
    enter()
    return outside.act(x, now_s=time.time(), window_s=WINDOW_S)


@effect("machine/tool")
async def tool(text: str) -> str:
    """Undeclared: it acts outside and writes a file of the world."""
    enter()
    said = outside.act(text)
    files = current_world().system("files")
    assert isinstance(files, Workspace)
    (files.path / "tool.txt").write_text(text)
    return said


@composite("machine/team")
async def team(text: str) -> list[Any]:
    """One after the other, a ONCE call of what was read among them."""
    first = [await at("b", bump, "n"), value := await at("r", seen)]
    return [*first, await at("o", send, value), await at("l", line, text)]


async def _both(step: int) -> list[Any]:
    """A ONCE call beside one that changes the world, each in a branch of its own."""

    async def one(name: str, performed: Effect[..., Any], argument: object) -> Any:
        with branch(name):
            return await _or_error(at(name, performed, argument))

    return list(await asyncio.gather(one("o", send, step), one("b", bump, "n")))


_CALLS: dict[str, tuple[str, Effect[..., Any], Callable[[int, str], tuple[object, ...]]]] = {
    "pure": ("p", pure, lambda step, _: (step,)),
    "read": ("r", seen, lambda *_: ()),
    "bump": ("b", bump, lambda *_: ("n",)),
    "line": ("l", line, lambda _, text: (text,)),
    "idem": ("i", put, lambda step, _: (step,)),
    "keyed": ("k", pay, lambda step, _: (step,)),
    "once": ("o", send, lambda step, _: (step,)),
    "sure": ("s", sure, lambda step, _: (step,)),
    "tool": ("t", tool, lambda _, text: (text,)),
    "gone": ("g", gone, lambda step, _: (step,)),
    "team": ("m", team, lambda _, text: (text,)),
}


async def _performed(kind: str, run: str, step: int) -> Any:
    if kind == "both":
        return await _both(step)
    name, performed, arguments = _CALLS[kind]
    return await _or_error(at(name, performed, *arguments(step, f"{run}.{step}")))


async def _or_error(performed: Awaitable[Any]) -> Any:
    """Its result, or that somebody decided that it failed."""
    try:
        return await performed
    except Exception as error:
        if "told to fail" not in str(error):
            raise
        return "error"


# -- the program --------------------------------------------------------------------------------------------------


@resumable("machine/program")
async def program(world: World, run: str, step: int) -> list[Any]:
    while True:
        token = TAG.set(f"{run}.{step}")
        note("step")
        script = (outside.here().parent / "scripts" / run).read_text().split()
        if step >= len(script):
            note("stop")
            raise Stopped(NotYet(f"the script of {run} ends at step {step}"))
        if script[step] == "end":
            note("finish")
            return list(world[TRANSCRIPT])
        kind = script[step].rstrip("!")
        world[TRANSCRIPT] = world[TRANSCRIPT].append(await _performed(kind, run, step))
        key = object() if kind != script[step] else {"step": step + 1}  # an object() cannot be persisted
        await savepoint("turn", key=key, resume=program.at(CURRENT_RUN, step + 1), state=[TRANSCRIPT])
        TAG.reset(token)
        step += 1


REGISTRY = Registry([program], effects=[each for _, each, _ in _CALLS.values()])


def host(place: Path) -> World:
    """The user's own world, which no run may change."""
    return World({"kv": KeyValue(), "files": Workspace(place / "files")})
