"""Hydration: a host world forked at a savepoint's snapshots, its declared state written, ready to be entered.

It starts a new lineage: there are no receipts here. Continuing a run, with its receipts, is `resume_program`.
"""

import contextlib
import shutil
from collections.abc import AsyncGenerator
from typing import Any

from attrs import frozen

from ._ambient import fresh_bytes
from ._form import Savepoint, read_form
from ._play import call
from ._point import Abandoned, End, publish_end, using_world
from ._resumable import Registry
from ._store import Store
from ._thread import in_thread
from ._world import World


@frozen(kw_only=True, eq=False)
class Revived:
    """A hydrated savepoint."""

    savepoint: Savepoint
    world: World
    """the fork; gone when the block of `hydrate` ends"""

    async def enter(self, **more: Any) -> Any:
        """Calls the resume function in the fork; `more` are further arguments by name (`value=...`).

        Its savepoints go to the handlers in scope, and its end is published to them.
        """
        resume = self.savepoint.resume.having(more)
        with using_world(self.world):
            try:
                result = await call(resume, self.world, "")
            except Abandoned:
                await publish_end(End(status="abandoned"), self.world)
                raise
            except Exception as error:
                await publish_end(End(status="error", value=error), self.world)
                raise
            await publish_end(End(status="result", value=result), self.world)
            return result


@contextlib.asynccontextmanager
async def hydrate(point: bytes, *, store: Store, host: World | None = None, registry: Registry) -> AsyncGenerator[Revived]:
    """Forks `host` at the savepoint `point` (the id that `persist` returned) for the time of the block.

    Raises `Missing`, `Corrupt`, `Foreign` (a resume function or class that is not registered), `Newer`, `Usage` (a
    host without the systems of the savepoint). The host is not changed.
    """
    savepoint = await read_form(store, point, registry)
    async with forked(savepoint, store=store, host=host or World()) as world:
        yield Revived(savepoint=savepoint, world=world)


@contextlib.asynccontextmanager
async def forked(savepoint: Savepoint, *, store: Store, host: World) -> AsyncGenerator[World]:
    """A fork of `host` at the savepoint, for the time of the block."""
    place = store.forks / f"hydrated-{fresh_bytes(8).hex()}"
    world = await host.fork(store.contents, at=savepoint.world, place=place)
    try:
        world.restore(savepoint.state)
        yield world
    finally:
        if world.systems:
            await world.discard()
            await in_thread(shutil.rmtree, place, ignore_errors=True)
