"""Faults in how worlds are forked, looked at and merged."""

import contextlib
import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from savepoint import _attempt, _forks, _merge_run, _scan, _statcache
from savepoint._merge_run import Settled
from savepoint._remove import remove_tree
from savepoint._statcache import StatCache
from savepoint._store import Store
from savepoint._workspace import Workspace
from savepoint._world import World


def _hard_links() -> None:
    """A fork's files are links to the host's, where they are equal: one write, two files changed."""
    fork = Workspace.fork

    async def linked(self: Workspace, contents: Any, *, at: bytes | None, place: Path) -> Workspace:
        child = await fork(self, contents, at=at, place=place)
        link(self.path, place)
        return child

    def link(host: Path, place: Path) -> None:
        for copy in (each for each in place.rglob("*") if each.is_file()):
            original = host / copy.relative_to(place)
            if original.is_file() and original.read_bytes() == copy.read_bytes():
                copy.unlink()
                copy.hardlink_to(original)

    Workspace.fork = linked  # type: ignore[method-assign]


def _no_fork() -> None:
    """The program works in the user's own world."""

    @contextlib.asynccontextmanager
    async def forked(store: Store, host: World, savepoint: Any, **_: Any) -> AsyncGenerator[World]:
        host.restore(savepoint.state)
        yield host

    _attempt.forked = forked


def _shared_place() -> None:
    """The directory of a fork of the world is not named after its lineage: another run's is taken for an own one."""

    def place(store: Store, lineage: bytes, epoch: int) -> Path:
        return store.forks / f"world-{epoch}"

    def sweep(store: Store, lineage: bytes, before: int) -> None:
        for left in store.forks.glob("world-*"):
            remove_tree(left)

    _attempt.fork_place = _forks.fork_place = place
    _attempt.sweep_forks = sweep


def _no_ctime() -> None:
    """The stat cache does not look at ctime, and has no racy rule."""

    def key(stat: os.stat_result) -> Any:
        return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_mode)

    def keep(self: StatCache, path: bytes, stat: os.stat_result, entry: Any, _: int) -> None:
        self.files[path] = (key(stat), entry)

    _statcache.stat_key = _scan.stat_key = key
    StatCache.keep = keep  # type: ignore[method-assign]


def _merge_unjournaled() -> None:
    """The run's record does not say that a merge was begun."""
    settle = _merge_run._settle

    async def silent(store: Store, row: Any, record: Any, settled: Settled) -> Any:
        return (row, record) if settled is Settled.MERGING else await settle(store, row, record, settled)

    _merge_run._settle = silent


WORLDS: dict[str, Callable[[], None]] = {
    "hard links": _hard_links,
    "no fork": _no_fork,
    "shared place": _shared_place,
    "no ctime": _no_ctime,
    "merge not journaled": _merge_unjournaled,
}
