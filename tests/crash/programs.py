"""The effects and programs that the crash suite kills: a port of the scenarios of the recovery model.

Each performance has a tag, its logical place in the program; the outside counts by tags.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import outside
from attrs import frozen
from outside import TAG, enter

from effects import Call, Effect, Idempotency, NotPerformed, Performed, Unknown, branch, effect
from effects._call import CURRENT
from savepoint import Cell, KeyValue, Log, Registry, Workspace, World, resumable, savepoint
from savepoint._point import current_world

TRANSCRIPT = Cell("transcript", Log, default=Log())
WINDOW_S = 10.0
MAX_AGE_S = 5.0


class Setting:
    """What the rig says of this process."""

    first = True
    """it is the run's first process"""
    refuse = True
    """savepoints that the scenario refuses are refused"""


# -- leaves ---------------------------------------------------------------------------------------------------------


@effect("pure", idempotency=Idempotency.PURE)
async def pure(x: int) -> int:
    return x * 2


@effect("clock", idempotency=Idempotency.READ)
async def clock() -> str:
    enter()
    return outside.read()


@effect("old", idempotency=Idempotency.READ, max_age_s=MAX_AGE_S)
async def old() -> str:
    enter()
    return outside.read()


@effect("bump", idempotency=Idempotency.CONTAINED)
async def bump(key: str) -> str:
    """Not idempotent on the world: doing it twice shows."""
    enter()
    state = current_world().system("kv")
    state[key] = state.get(key, 0) + 1  # type: ignore[index]
    return f"{key}={state[key]}"  # type: ignore[index]


@effect("note", idempotency=Idempotency.CONTAINED)
async def note(key: str, value: str) -> str:
    enter()
    current_world().system("kv")[key] = value  # type: ignore[index]
    return "noted"


@effect("cat", idempotency=Idempotency.CONTAINED)
async def cat(key: str) -> str:
    enter()
    return f"{key}:{current_world().system('kv').get(key, '-')}"  # type: ignore[attr-defined]


@effect("line", idempotency=Idempotency.CONTAINED)
async def line(text: str) -> int:
    """Appends to a file of the workspace."""
    enter()
    files = current_world().system("files")
    path = files.path / "notes.txt"  # type: ignore[attr-defined]
    path.write_text((path.read_text() if path.exists() else "") + text + "\n")
    return len(path.read_text().splitlines())


@effect("put", idempotency=Idempotency.IDEMPOTENT)
async def put(x: object) -> str:
    enter()
    return outside.act(x)


@effect("pay", idempotency=Idempotency.KEYED, window_s=WINDOW_S)
async def pay(x: object) -> str:
    enter()
    return outside.act(x, now_s=time.time(), window_s=WINDOW_S)


@effect("send", idempotency=Idempotency.ONCE)
async def send(x: object) -> str:
    enter()
    return outside.act(x)


@effect("bad", idempotency=Idempotency.ONCE)
async def bad(x: object) -> str:
    enter()
    raise ValueError("refused")


@effect("tool")
async def tool(key: str, value: int) -> str:
    """Undeclared: it acts outside and writes the world."""
    enter()
    said = outside.act(key, value)
    current_world().system("kv")[key] = value  # type: ignore[index]
    return said


@effect("sure", idempotency=Idempotency.ONCE)
async def sure(x: object) -> str:
    enter()
    return outside.act(x)


@effect("weak", idempotency=Idempotency.ONCE)
async def weak(x: object) -> str:
    enter()
    return outside.act(x)


@effect("shy", idempotency=Idempotency.ONCE)
async def shy(x: object) -> str:
    """Its probe cannot tell the first time."""
    enter()
    return outside.act(x)


@shy.probe
async def _shy(call: Call) -> Performed[str] | NotPerformed | Unknown:
    return Unknown() if outside.first_time(f"probe of {call.arguments['x']}") else _found(final=True)


def _found(*, final: bool) -> Performed[str] | NotPerformed:
    current = CURRENT.get()
    assert current is not None
    act = outside.performed(outside.here(), current.idempotency_key)
    return NotPerformed(final=final) if act is None else Performed(act.value)


@sure.probe
async def _sure(call: Call) -> Performed[str] | NotPerformed:
    return _found(final=True)


@weak.probe
async def _weak(call: Call) -> Performed[str] | NotPerformed:
    return _found(final=False)


@effect("lost", idempotency=Idempotency.ONCE)
async def lost(x: object) -> str:
    """Ends ambiguously the first time, not performed."""
    enter()
    if outside.first_time(TAG.get()):
        raise TimeoutError
    return outside.act(x)


@effect("gone", idempotency=Idempotency.ONCE)
async def gone(x: object) -> str:
    """Ends ambiguously the first time, performed."""
    enter()
    said = outside.act(x)
    if outside.first_time(TAG.get()):
        raise ConnectionError
    return said


@effect("klost", idempotency=Idempotency.KEYED, window_s=WINDOW_S)
async def klost(x: object) -> str:
    enter()
    said = outside.act(x, now_s=time.time(), window_s=WINDOW_S)
    if outside.first_time(TAG.get()):
        raise TimeoutError
    return said


# -- how programs are written -----------------------------------------------------------------------------------------


class WrongResult(BaseException):
    """A call was answered with the result of another one."""


async def at(tag: str, performed: Effect[..., Any], *arguments: object) -> Any:
    """Performs an effect at the logical place `tag`, below the present one."""
    token = TAG.set(f"{TAG.get()}.{tag}")
    try:
        found = await performed(*arguments)
        if isinstance(found, str) and "!" in found and not found.startswith(TAG.get()):
            raise WrongResult(f"{TAG.get()} got {found}")
        return found
    finally:
        TAG.reset(token)


async def together(*parts: tuple[str, Effect[..., Any], object], apart: bool = True) -> list[Any]:
    """Concurrent calls, in branches of their own or as mere siblings; what they raised is returned."""

    async def one(name: str, performed: Effect[..., Any], argument: object) -> Any:
        arguments = argument if isinstance(argument, tuple) else (argument,)
        try:
            if not apart:
                return await at(name, performed, *arguments)
            with branch(name):
                return await at(name, performed, *arguments)
        except Exception as error:
            return f"error {error}"

    return list(await asyncio.gather(*(one(*each) for each in parts)))


def composite(name: str) -> Callable[[Callable[[int], Any]], Effect[..., Any]]:
    return effect(name, idempotency=Idempotency.COMPOSITE)


@composite("read_send")
async def read_send(x: int) -> str:
    return await at("send", send, await at("clock", clock))


@composite("read_put")
async def read_put(x: int) -> str:
    return await at("put", put, await at("clock", clock))


@composite("old_put")
async def old_put(x: int) -> str:
    return await at("put", put, await at("old", old))


@composite("old_send")
async def old_send(x: int) -> str:
    return await at("send", send, await at("old", old))


@composite("same_send")
async def same_send(x: int) -> str:
    return await at("send", send, "same")


@composite("other_send")
async def other_send(x: int) -> str:
    return await at("send", send, x)


@composite("bump_send")
async def bump_send(x: int) -> str:
    return await at("send", send, await at("bump", bump, "n"))


@composite("send_bump_send")
async def send_bump_send(x: int) -> str:
    await at("send", send, "first")
    return await at("send2", send, await at("bump", bump, "n"))


@composite("bumps")
async def bumps(x: int) -> str:
    await at("b1", bump, "n")
    return await at("b2", bump, "n")


@composite("slow_bumps")
async def slow_bumps(x: int) -> list[str]:
    return [await at(f"b{turn}", bump, f"n{x}") for turn in range(3)]


@composite("put_and_send")
async def put_and_send(x: int) -> list[str]:
    return await together(("put", put, 1), ("send", send, 2))


@composite("teams")
async def teams(x: int) -> list[str]:
    return await together(("1", other_send, 1), ("2", other_send, 2), apart=False)


@composite("late_branch")
async def late_branch(x: int) -> str:
    """Asks something before it opens its branch."""
    await at("clock", clock)
    with branch(f"late {x}"):
        return await at("send", send, x)


@composite("try_send")
async def try_send(x: int) -> str:
    try:
        return await at("bad", bad, x)
    except ValueError:
        return await at("send", send, x)


@composite("moody")
async def moody(x: int) -> str:
    """Not deterministic: it sends something else in another process."""
    await at(f"send {Setting.first}", send, "a" if Setting.first else "b")
    return "moody"


@composite("moody_deep")
async def moody_deep(x: int) -> str:
    await at(f"other {Setting.first}", other_send, 1 if Setting.first else 2)
    return "moody"


EFFECTS: Sequence[Effect[..., Any]] = (
    *(clock, old, bump, note, cat, line, put, pay, send, bad, tool, sure, weak, shy, lost, gone, klost),
    *(read_send, read_put, old_put, old_send, same_send, other_send, bump_send, send_bump_send, bumps, slow_bumps),
    *(put_and_send, teams, late_branch, try_send, moody, moody_deep),
)


# -- the program ----------------------------------------------------------------------------------------------------

Turn = Callable[[list[Any]], Awaitable[Any]]


@frozen(kw_only=True)
class Scenario:
    """One program and what may be asked of it."""

    turns: Sequence[Turn]
    refused: frozenset[int] = frozenset()
    """steps whose savepoint cannot be persisted"""
    refused_first: bool = False
    """only in the first process"""
    jumps: tuple[float, ...] = (0.0,)
    """by how many seconds the wall clock may have moved in the next process"""
    perturbed: bool = False
    """the program is *not* deterministic: divergence is right, equivalence is not asked"""
    strict: bool = False
    no_questions: bool = False
    """a truthful and final probe settles every doubt"""
    loses_world: bool = False
    """a question about a call that writes the world, answered `performed`, loses what it wrote"""
    files: bool = False
    """the world is a directory"""
    retried: bool = False
    """reads may be taken again, so their number differs from an unkilled run's"""


def turn(
    *calls: tuple[str, Effect[..., Any], object] | Callable[[list[Any]], tuple[str, Effect[..., Any], object]],
) -> Turn:
    """One call, or several concurrent ones in branches; a function makes its call from the transcript."""

    async def run(said: list[Any]) -> Any:
        made = [each(said) if callable(each) else each for each in calls]
        if len(made) > 1:
            return await together(*made)
        name, performed, argument = made[0]
        try:
            return await at(name, performed, *(argument if isinstance(argument, tuple) else (argument,)))
        except Exception as error:
            return f"error {error}"

    return run


@resumable("crash/program")
async def program(world: World, name: str, step: int, extra: object = None) -> list[Any]:
    from scenarios import SCENARIOS

    scenario = SCENARIOS[name]
    while step < len(scenario.turns):
        token = TAG.set(f"{step}")
        out = await scenario.turns[step](list(world[TRANSCRIPT]))
        TAG.reset(token)
        world[TRANSCRIPT] = world[TRANSCRIPT].append(out)
        step += 1
        refused = step in scenario.refused and Setting.refuse and (Setting.first or not scenario.refused_first)
        rest = program.at(name, step, object() if refused else None)
        await savepoint("turn", key={"step": step}, resume=rest, state=[TRANSCRIPT])
    return [f"done {step}", list(world[TRANSCRIPT])]


REGISTRY = Registry([program], effects=EFFECTS)


def host(scenario: Scenario, place: Any) -> World:
    """The user's world: a map, or a directory."""
    if not scenario.files:
        return World({"kv": KeyValue()})
    place.mkdir(exist_ok=True)
    return World({"files": Workspace(place)})
