"""What is asked before a run goes on from a savepoint: whether it may, and what has changed since."""

from collections.abc import Awaitable, Callable, Mapping

from attrs import frozen

from ._form import Savepoint
from ._run import RunRecord


@frozen(kw_only=True)
class Reviewed:
    """What was found."""

    warnings: tuple[str, ...] = ()
    meta: Mapping[str, object] | None = None
    """to be kept with the run from now on; None: as it was"""


Review = Callable[[RunRecord, Savepoint], Awaitable[Reviewed]]
"""Asked before anything is claimed or written; what it raises refuses to go on."""


async def accept(_: RunRecord, __: Savepoint) -> Reviewed:
    """The review of a program that has nothing to compare."""
    return Reviewed()
