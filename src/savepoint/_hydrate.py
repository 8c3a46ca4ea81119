"""Hydration: a host world forked at a savepoint's snapshots, its declared state written, ready to be entered.

It starts a new lineage: there are no receipts here. Continuing a run, with its receipts, is `resume_program`.
"""

import contextlib
from collections.abc import AsyncGenerator, Generator
from typing import Any

from attrs import field, mutable

from effects._call import CURRENT
from effects._layer import LAYER

from ._ambient import fresh_bytes
from ._errors import Usage
from ._forks import forked
from ._form import Savepoint, read_form
from ._frame import Frame, in_frame
from ._play import call
from ._point import Abandoned, End, publish_end, using_world
from ._resumable import Bound, Registry
from ._store import Store
from ._world import World


@mutable(kw_only=True, eq=False)
class Revived:
    """A hydrated savepoint."""

    savepoint: Savepoint
    world: World
    """the fork; gone when the block of `hydrate` ends"""
    _entered: bool = field(default=False, init=False)

    async def enter(self, **more: Any) -> Any:
        """Calls the resume function in the fork, once; `more` are further arguments by name (`value=...`).

        Its savepoints go to the handlers in scope, and its end is published to them. Inside a run it is no part of
        that run: nothing here is receipted. Raises `Usage` for a second time: the fork is not at the savepoint any more.
        """
        resume = self.savepoint.resume.having(more)
        if self._entered:
            raise Usage(
                f"this fork at savepoint {self.savepoint.name!r} was entered already",
                next="hydrate or fork once for each continuation",
            )
        self._entered = True
        try:
            result = await self._run(resume)
        except Abandoned as abandoned:
            await _tell(End(status="abandoned"), self.world, abandoned)
            raise
        except Exception as error:
            await _tell(End(status="error", value=error), self.world, error)
            raise
        await publish_end(End(status="result", value=result), self.world)
        return result

    async def _run(self, resume: Bound) -> Any:
        with using_world(self.world), _no_run():
            return await call(resume, self.world, "")


async def _tell(end: End, world: World, cause: BaseException) -> None:
    for raised in await publish_end(end, world):
        cause.add_note(raised)


@contextlib.contextmanager
def _no_run() -> Generator[None]:
    """A continuation has a lineage of its own: no receipt and no idempotency key of a surrounding run is its own."""
    layer, current = LAYER.set(None), CURRENT.set(None)
    try:
        with in_frame(Frame()):
            yield
    finally:
        CURRENT.reset(current)
        LAYER.reset(layer)


@contextlib.asynccontextmanager
async def hydrate(
    point: bytes, *, store: Store, host: World | None = None, registry: Registry
) -> AsyncGenerator[Revived]:
    """Forks `host` at the savepoint `point` (the id that `persist` returned) for the time of the block.

    Raises `Missing`, `Corrupt`, `Foreign` (a resume function or class that is not registered), `Newer`, `Usage` (a
    host without the systems of the savepoint). The host is not changed.
    """
    savepoint = await read_form(store, point, registry)
    async with revived(savepoint, store=store, host=host or World()) as continuation:
        yield continuation


@contextlib.asynccontextmanager
async def revived(savepoint: Savepoint, *, store: Store, host: World) -> AsyncGenerator[Revived]:
    """A savepoint with a fork of `host` at it, for the time of the block."""
    place = store.forks / f"hydrated-{fresh_bytes(8).hex()}"
    async with forked(store, host, savepoint, at=savepoint.world, place=place) as world:
        yield Revived(savepoint=savepoint, world=world)
