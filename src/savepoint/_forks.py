"""Where worlds are forked: a directory an attempt or hydration, gone with it unless its process died."""

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

from ._form import Savepoint
from ._remove import remove_tree
from ._store import Store
from ._thread import in_thread
from ._world import Snapshot, World


def fork_place(store: Store, lineage: bytes, epoch: int) -> Path:
    """The directory of an attempt's fork of the world."""
    return store.forks / f"{lineage.hex()}-{epoch}"


def newest_fork(store: Store, lineage: bytes, before: int) -> Path | None:
    """What the newest attempt of an earlier epoch left, if anything."""
    places = (fork_place(store, lineage, epoch) for epoch in range(before - 1, 0, -1))
    return next((place for place in places if place.is_dir()), None)


def sweep_forks(store: Store, lineage: bytes, before: int) -> None:
    """Removes what attempts of epochs before this one left: their questions are answered, and what counts of it was
    kept. Never what a later one has: who slept past its lease may be the one who sweeps.

    Raises `OSError`.
    """
    for left in store.forks.glob(f"{lineage.hex()}-*"):
        epoch = left.name.rpartition("-")[2]
        if epoch.isdecimal() and int(epoch) < before:
            remove_tree(left)


@contextlib.asynccontextmanager
async def forked(
    store: Store, host: World, savepoint: Savepoint, *, at: Snapshot, place: Path
) -> AsyncGenerator[World]:
    """A fork of `host` at the snapshot `at` with the savepoint's declared state, for the time of the block."""
    try:
        fork = await host.fork(store.contents, at=at, place=place)
        try:
            fork.restore(savepoint.state)
            yield fork
        finally:
            if fork.systems:
                await fork.discard()
    finally:
        if host.systems:
            with contextlib.suppress(OSError):  # what is left is swept by a later attempt
                await in_thread(remove_tree, place)
