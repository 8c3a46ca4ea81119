"""More scenarios: what no other one reaches, each there because a planted fault went unnoticed without it."""

import os
import signal
import stat
from typing import Any

import outside
import programs
from outside import TAG, enter
from programs import Scenario, at, clock, gone, lost, old, send, turn

from effects import Call, Idempotency, NotPerformed, Parked, Performed, effect
from effects._call import CURRENT
from savepoint import Registry
from savepoint._point import current_world


def _files() -> Any:
    return current_world().system("files").path  # type: ignore[attr-defined]


@effect("script", idempotency=Idempotency.CONTAINED)
async def script(mode: int) -> str:
    """Writes a file that only its mode tells from what it was."""
    enter()
    path = _files() / "script"
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return "written"


@effect("mode", idempotency=Idempotency.CONTAINED)
async def mode() -> str:
    enter()
    return oct(stat.S_IMODE((_files() / "script").stat().st_mode))


@effect("swap", idempotency=Idempotency.CONTAINED)
async def swap(text: str) -> str:
    """Changes a file, and leaves size and time of modification as they were."""
    enter()
    path = _files() / "swapped"
    before = path.stat() if path.exists() else None
    path.write_text(text)
    if before is not None:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return "swapped"


@effect("show", idempotency=Idempotency.CONTAINED)
async def show() -> str:
    enter()
    return (_files() / "swapped").read_text()


@effect("slow", idempotency=Idempotency.ONCE)
async def slow(x: object) -> str:
    """Its process dies as soon as the request has left, the first time; it arrives just after the probe has looked."""
    enter()
    call = CURRENT.get()
    assert call is not None
    if outside.first_time(TAG.get()):
        outside._append("network", [TAG.get(), x, call.idempotency_key])
        os.kill(os.getpid(), signal.SIGKILL)
    return outside.act(x)


@slow.probe
async def _slow(call: Call) -> Performed[str] | NotPerformed:
    current = CURRENT.get()
    assert current is not None
    act = outside.performed(outside.here(), current.idempotency_key)
    if act is not None:
        return Performed(act.value)
    for tag, x, key in outside._lines(outside._file("network")):  # type: ignore[misc]
        if key == current.idempotency_key and outside.first_time(f"arrival of {key}"):
            token = TAG.set(tag)
            outside.act(x)
            TAG.reset(token)
    return NotPerformed(final=False)


@effect("twice", idempotency=Idempotency.COMPOSITE)
async def twice(x: int) -> list[str]:
    """Two equal calls under one parent."""
    return [await at("first", send, x), await at("second", send, x)]


async def _swallowing(_: list[Any]) -> Any:
    """A program that does not let itself be stopped."""
    try:
        return await at("x", gone, 1)
    except Parked:
        return "swallowed"


async def _names(_: list[Any]) -> Any:
    """What Python keeps in another order in every process."""
    return dict.fromkeys({f"name {number}" for number in range(12)}, 1)


@effect("long_way", idempotency=Idempotency.COMPOSITE)
async def long_way(x: int) -> list[str]:
    """Many calls, one after the other: whatever happens beside it happens before the last one."""
    return [await at(f"{number}", send, number) for number in range(x)]


# Whoever asks for the registry looks here when it is needed, not before.
programs.REGISTRY = Registry(
    [programs.program], effects=[*programs.EFFECTS, script, mode, swap, show, slow, long_way, twice]
)

MORE: dict[str, Scenario] = {
    "modes": Scenario(turns=[turn(("w", script, 0o755)), turn(("m", mode, ()))], files=True),
    "equal stats": Scenario(
        turns=[turn(("a", swap, "aaaa")), turn(("b", swap, "bbbb")), turn(("s", show, ()))], files=True
    ),
    "any order": Scenario(turns=[_names, turn(("s", send, 1))]),
    "an end that is swallowed": Scenario(turns=[_swallowing, turn(("y", send, 1))]),
    "a request that arrives late": Scenario(turns=[turn(("a", slow, 1))]),
    "ambiguous beside a long way": Scenario(turns=[turn(("x", lost, 1), ("w", long_way, 8))]),
    "equal ONCE, one after the other": Scenario(turns=[turn(("t", twice, 1))]),
    "READ with max_age, refused": Scenario(
        turns=[turn(("m", old, ())), turn(("c", clock, ()))], refused=frozenset({1}), jumps=(0, 100), retried=True
    ),
    "much": Scenario(turns=[turn(("o", send, "much " * 4000)), turn(("c", clock, ()))]),
}
