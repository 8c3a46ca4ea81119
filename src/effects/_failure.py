"""An observed error as data, and back: what a receipt keeps of an exception.

Live and resumed runs must meet the same exception class. So a class that cannot be rebuilt by name (neither built in
nor declared with `raises=`) reaches the program as `CallFailed` the first time too.
"""

import builtins
from collections.abc import Iterable

from attrs import frozen

from ._errors import CallFailed, Compensated, ConcurrentCalls, Refused

_OURS: dict[str, type[Compensated | ConcurrentCalls | Refused]] = {
    kind.__name__: kind for kind in (Compensated, ConcurrentCalls, Refused)
}


@frozen(kw_only=True)
class Failure:
    """How a call failed. `kind` is the exception's class name, `message` what it said."""

    kind: str
    message: str
    details: tuple[str, ...] = ()
    """what this package's own errors are made of"""


def _builtin(name: str) -> type[Exception] | None:
    found = getattr(builtins, name, None)
    if isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, UnicodeError):
        return found
    return None


def failure_of(error: Exception) -> Failure:
    """What a receipt keeps of `error`."""
    match error:
        case CallFailed():
            return Failure(kind=error.type_name, message=error.reason)
        case Refused():
            details = (error.effect, error.reason)
        case Compensated():
            details = (error.effect,)
        case ConcurrentCalls():
            details = (error.effect, error.running)
        case _:
            details = ()
    message = str(error.args[0]) if len(error.args) == 1 else str(error)
    return Failure(kind=type(error).__name__, message=_text(message), details=tuple(map(_text, details)))


def _text(message: str) -> str:
    """`message` without lone surrogates (of an undecodable file name), which no store can keep."""
    return message.encode("utf-8", "backslashreplace").decode()


def error_of(failure: Failure, raises: Iterable[type[Exception]] = ()) -> Exception:
    """The exception that a program meets for `failure`: of the observed class if it can be rebuilt by name."""
    declared = {kind.__name__: kind for kind in raises}
    try:
        if failure.kind in _OURS:
            return _OURS[failure.kind](*failure.details)
        kind = declared.get(failure.kind) or _builtin(failure.kind)
        return kind(failure.message) if kind else CallFailed(failure.kind, failure.message)
    except Exception:  # noqa: BLE001
        return CallFailed(failure.kind, failure.message)
