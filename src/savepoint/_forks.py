"""Where attempts fork the world: one directory an attempt, gone with it unless its process died."""

from pathlib import Path

from ._remove import remove_tree
from ._store import Store


def fork_place(store: Store, lineage: bytes, epoch: int) -> Path:
    """The directory of an attempt's fork of the world."""
    return store.forks / f"{lineage.hex()}-{epoch}"


def newest_fork(store: Store, lineage: bytes, before: int) -> Path | None:
    """What the newest attempt of an earlier epoch left, if anything."""
    places = (fork_place(store, lineage, epoch) for epoch in range(before - 1, 0, -1))
    return next((place for place in places if place.is_dir()), None)


def sweep_forks(store: Store, lineage: bytes) -> None:
    """Removes what earlier attempts left: their questions are answered, and what counts of it was kept.

    Raises `OSError`.
    """
    for left in store.forks.glob(f"{lineage.hex()}-*"):
        remove_tree(left)
