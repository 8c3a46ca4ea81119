"""The outside of a crash test: append-only files that no store knows, written so that a kill loses nothing.

Its count is the truth that every law is checked against.
"""

import json
import os
import re
from contextvars import ContextVar
from pathlib import Path

from attrs import frozen

from effects import current_call


@frozen(kw_only=True)
class Act:
    """One change of the outside."""

    kind: str
    """the idempotency class"""
    tag: str
    """the logical place in the program: equal for the same call of every attempt, whatever its arguments"""
    arguments: list[object]
    key: str
    """idempotency key"""
    value: str
    """what the call returns"""


TAG: ContextVar[str] = ContextVar("crash_tag", default="")
_place: Path | None = None


def live_at(place: Path) -> None:
    """Puts the outside of this process into the directory `place`."""
    global _place  # noqa: PLW0603  one process, one outside
    place.mkdir(exist_ok=True)
    _place = place


def _file(name: str) -> Path:
    assert _place is not None
    return _place / name


def _append(name: str, line: object) -> None:
    handle = os.open(_file(name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, json.dumps(line).encode() + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)


def _lines(path: Path) -> list[object]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def ledger(place: Path) -> list[Act]:
    """Every act, in order."""
    return [Act(**line) for line in _lines(place / "ledger")]  # type: ignore[arg-type]


def entered(place: Path) -> list[str]:
    """The tag of every body that was entered, in order."""
    return [str(line) for line in _lines(place / "entered")]


def asked(place: Path) -> list[object]:
    """Per process the steps whose model reply was durable when it began, then those that it asked the model for."""
    return _lines(place / "asked")


def enter() -> None:
    _append("entered", TAG.get())


def act(*arguments: object, now_s: float = 0.0, window_s: float = 0.0) -> str:
    """Changes the outside once; a key that the remote still remembers changes nothing."""
    call = current_call()
    kind, value = call.call.effect.idempotency.value, f"{TAG.get()}!{list(arguments)}"
    key = call.idempotency_key
    if kind == "keyed":
        if any(now_s - seen < window_s for seen in _seen(key)):
            return value
        _append("remote", [key, now_s])
    assert _place is not None
    entry = Act(kind=kind, tag=TAG.get(), arguments=list(arguments), key=key, value=value)
    _append("ledger", {name: getattr(entry, name) for name in ("kind", "tag", "arguments", "key", "value")})
    return value


def _seen(key: str) -> list[float]:
    return [at for each, at in _lines(_file("remote")) if each == key]  # type: ignore[misc]


def read() -> str:
    """Observes the outside: every observation is another one."""
    number = len(_lines(_file("reads"))) + 1
    _append("reads", number)
    return f"r{number}"


def first_time(what: str) -> bool:
    """Whether this happens for the first time, over all processes."""
    if what in _lines(_file("unclear")):
        return False
    _append("unclear", what)
    return True


def performed(place: Path, key: str) -> Act | None:
    """The act with this idempotency key."""
    return next((each for each in ledger(place) if each.key == key), None)


def here() -> Path:
    assert _place is not None
    return _place


def renamed(text: str, names: dict[str, str] | None = None) -> str:
    """`text` with values that were observed anew renamed by first appearance."""
    known: dict[str, str] = {} if names is None else names
    return re.sub(r"\br\d+\b", lambda found: known.setdefault(found[0], f"R{len(known)}"), text)
