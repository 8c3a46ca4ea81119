"""A directory tree as a part of a world: captured by content, forked by copying, merged path by path.

Format, ignore rules, stat cache and merge: `design/0004-worlds.md`.
"""

import os
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from ._ambient import fresh_bytes
from ._apply import Apply
from ._conflict import MergeConflict
from ._contents import note
from ._copyout import copy_out
from ._errors import Missing, Usage
from ._ignore import Ignore
from ._manifest import FORMAT
from ._merge import Plan, plan
from ._remove import remove_tree
from ._scan import Captured, Scan, rules_at
from ._statcache import StatCache
from ._system import Change, Contents
from ._thread import in_thread
from ._tree import Delta, deltas

_BATCH_BYTES = 8 << 20
_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Workspace:
    """The directory `path`, as the user's own tree: `apply` alone changes it. Forks are made by `fork`.

    `exclude` names paths inside it that are never captured, such as a store that is kept there.
    """

    kind: ClassVar[str] = "workspace"
    format: ClassVar[int] = FORMAT

    def __init__(self, path: Path, *, exclude: Iterable[Path] = ()) -> None:
        self.path = path.resolve()
        self.unsupported: tuple[tuple[str, str], ...] = ()
        """Path and reason of what the last snapshot could not hold: sockets, fifos, devices."""
        self._excluded = frozenset(_inside(self.path, other) for other in exclude) - {b""}
        self._owned = False
        self._cache = StatCache()

    @classmethod
    def _forked(cls, place: Path, cache: StatCache) -> "Workspace":
        child = cls(place)
        child._owned = True
        child._cache = cache
        return child

    async def snapshot(self, contents: Contents) -> bytes:
        """The id of the present tree. Unchanged files are neither read nor stored.

        Raises `Missing` where the directory is not there, `Unreadable` naming a path that cannot be captured.
        """
        known = self._cache if self._cache.contents is contents else StatCache()
        scan = Scan(path=os.fsencode(self.path), known=known, excluded=self._excluded)
        captured = await self._store(scan.blobs(), contents)
        await note(contents, captured.root, captured.times)
        captured.cache.contents = contents
        # Only now: had storing failed, the new cache would name what is not there.
        self._cache = captured.cache
        self.unsupported = captured.unsupported
        return captured.root

    async def fork(self, contents: Contents, *, at: bytes | None, place: Path) -> "Workspace":
        """A copy at `place`, which must not exist. Raises `Usage`, `Missing`, `Corrupt`, `NotWritable`."""
        snapshot = await self.snapshot(contents) if at is None else at
        cache = await copy_out(contents, snapshot, place)
        return await in_thread(Workspace._forked, place, cache)

    async def diff(self, contents: Contents, old: bytes, new: bytes) -> Sequence[Change]:
        return [delta.change() for delta in await deltas(contents, old, new)]

    async def conflicts(self, contents: Contents, old: bytes, new: bytes) -> Sequence[str]:
        """The paths that `apply` would refuse, nothing written."""
        return (await self._plan(await deltas(contents, old, new))).conflicts

    async def apply(self, contents: Contents, old: bytes, new: bytes) -> Sequence[Change]:
        """Merges. Raises `MergeConflict` with all paths before anything is written; a killed merge is repeated."""
        todo = await self._plan(await deltas(contents, old, new))
        if todo.conflicts:
            raise MergeConflict(str(self.path), todo.conflicts)
        root = await in_thread(os.open, self.path, _ROOT)
        try:
            await Apply(root=root, contents=contents).run(todo)
        finally:
            os.close(root)
        return [delta.change() for delta in todo.wanted]

    async def left(self, contents: Contents, *, place: Path) -> bytes | None:
        if not await in_thread(place.is_dir):
            return None
        return await (await in_thread(Workspace, place)).snapshot(contents)

    async def discard(self) -> None:
        """Removes a fork's directory. Raises `Usage` for the user's own."""
        if not self._owned:
            raise Usage(f"{self.path}: only a fork can be discarded", next="discard the fork, not its parent")
        await in_thread(_discard, self.path)

    async def _plan(self, changes: Sequence[Delta]) -> Plan:
        return await in_thread(_plan, self.path, changes, self._excluded)

    async def _store(self, blobs: Generator[bytes, None, Captured], contents: Contents) -> Captured:
        try:
            while True:
                batch, captured = await in_thread(_take, blobs)
                for data in batch:
                    await contents.put(data)
                if captured is not None:
                    return captured
        except FileNotFoundError as error:
            raise Missing(f"{self.path}: no such directory", next="make it, or name another workspace") from error
        finally:
            blobs.close()


def _take(blobs: Generator[bytes, None, Captured]) -> tuple[list[bytes], Captured | None]:
    """The next few bytes to store, and what was found at the end."""
    batch: list[bytes] = []
    size = 0
    try:
        while size < _BATCH_BYTES:
            data = next(blobs)
            batch.append(data)
            size += len(data)
    except StopIteration as end:
        return batch, end.value
    return batch, None


def _plan(path: Path, changes: Sequence[Delta], excluded: frozenset[bytes]) -> Plan:
    root = os.open(path, _ROOT)
    try:
        return plan(root, changes, _present_rules(root, excluded))
    finally:
        os.close(root)


def _present_rules(root: int, excluded: frozenset[bytes]) -> Ignore:
    return Ignore.parse(rules_at(root), excluded)


def _discard(path: Path) -> None:
    # First out of sight, in one step: a killed discard leaves nothing that looks like a whole fork.
    going = path.with_name(f".gone-{fresh_bytes(8).hex()}")
    try:
        path.rename(going)
    except FileNotFoundError:
        return
    remove_tree(going)


def _inside(root: Path, other: Path) -> bytes:
    path = other.resolve()
    return os.fsencode(path.relative_to(root)) if path.is_relative_to(root) and path != root else b""
