"""What a probe may answer when it asks the outside whether a call in doubt happened."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeAlias, TypeVar

from attrs import frozen

from ._call import Call

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@frozen
class Performed(Generic[R_co]):
    """It happened, with this result. Positional, because it reads like the sentence."""

    result: R_co


@frozen(kw_only=True)
class NotPerformed:
    """The outside does not show it."""

    final: bool = False
    """It never will: the idempotency key can no longer be used. Otherwise it may still be on its way."""


@frozen
class Unknown:
    """The outside cannot tell."""


Finding: TypeAlias = Performed[R] | NotPerformed | Unknown
Probe: TypeAlias = Callable[[Call], Awaitable[Finding[R]]]
