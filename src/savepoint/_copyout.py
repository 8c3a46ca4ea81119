"""A stored tree written out as a new directory: under a temporary name, then renamed, so that half is never taken for whole."""

import os
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path

from attrs import define, field, frozen

from ._ambient import fresh_bytes
from ._contents import get_many, noted
from ._errors import Corrupt, NotWritable, Usage
from ._manifest import CHUNK, Entry, EntryKind, Times, decode_node, decode_times, display, join
from ._remove import remove_tree
from ._statcache import Node, StatCache, now_ns
from ._system import Contents
from ._thread import in_thread
from ._tree import pieces, read_root

_BATCH_BYTES = 8 << 20
_BATCH_FILES = 256
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@frozen(kw_only=True)
class _Item:
    """An entry to write; `mtime_ns` is `None` where the snapshot's times are not known."""

    path: bytes
    entry: Entry
    mtime_ns: int | None
    times_ref: bytes | None = None


async def copy_out(contents: Contents, snapshot: bytes, place: Path) -> StatCache:
    """Makes `place` from a snapshot and returns what its first scan may believe. Nothing is left where it fails.

    Not synced: a fork can be made again from its snapshot. Raises `Usage` where `place` exists, `Missing`, `Corrupt`,
    `NotWritable`.
    """
    building = place.with_name(f".making-{fresh_bytes(8).hex()}")
    try:
        await in_thread(_make, building, place)
        copy = _Copy(contents=contents, target=os.fsencode(building))
        await copy.run(snapshot)
        await in_thread(building.rename, place)
    except OSError as error:
        await in_thread(remove_tree, building)
        raise NotWritable(
            f"{place}: cannot fork: {error.strerror}", next="free space or permissions, then retry"
        ) from error
    except BaseException:
        await in_thread(remove_tree, building)
        raise
    return copy.learned()


def _make(building: Path, place: Path) -> None:
    if os.path.lexists(place):
        raise Usage(f"{place}: a fork is made at a path that does not exist", next="choose another place")
    building.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    building.mkdir(mode=0o700)


@define(kw_only=True)
class _Copy:
    contents: Contents
    target: bytes
    _directories: list[_Item] = field(factory=list["_Item"], init=False)
    _stats: list[tuple[_Item, os.stat_result]] = field(factory=list["tuple[_Item, os.stat_result]"], init=False)
    _cache: StatCache = field(factory=StatCache, init=False)

    async def run(self, snapshot: bytes) -> None:
        self._cache.contents = self.contents
        level = [await self._root(snapshot)]
        while level:
            self._directories += level
            children = [child async for batch in self._children(level) for child in batch]
            await self._write_all([item for item in children if item.entry.kind is not EntryKind.DIRECTORY])
            level = [item for item in children if item.entry.kind is EntryKind.DIRECTORY]
            await in_thread(self._make_directories, level)
        await in_thread(self._finish)

    def learned(self) -> StatCache:
        """Nobody else could write before the rename, so whatever is older than now was read as it is."""
        now = now_ns()
        for item, stat in self._stats:
            self._cache.keep(item.path, stat, item.entry, now)
        return self._cache

    async def _root(self, snapshot: bytes) -> _Item:
        entry = await read_root(self.contents, snapshot)
        remark = await noted(self.contents, snapshot)
        if remark is None:
            return _Item(path=b"", entry=entry, mtime_ns=None)
        times = decode_times(remark, (entry,))
        return _Item(path=b"", entry=entry, mtime_ns=times.entries[0], times_ref=times.nodes[0])

    async def _children(self, level: Sequence[_Item]) -> AsyncGenerator[list[_Item]]:
        for start in range(0, len(level), _BATCH_FILES):
            batch = level[start : start + _BATCH_FILES]
            nodes = await get_many(self.contents, [item.entry.ref for item in batch])
            refs = [item.times_ref for item in batch if item.times_ref is not None]
            times = dict(zip(refs, await get_many(self.contents, refs), strict=True))
            for item, data in zip(batch, nodes, strict=True):
                yield self._entries(item, data, None if item.times_ref is None else times[item.times_ref])

    def _entries(self, parent: _Item, data: bytes, times_data: bytes | None) -> list[_Item]:
        entries = decode_node(data)
        if times_data is None or parent.times_ref is None:
            return [_Item(path=join(parent.path, e.name), entry=e, mtime_ns=None) for e in entries]
        times = decode_times(times_data, entries)
        self._cache.nodes[parent.path] = Node(
            entries=entries, ref=parent.entry.ref, times=times, times_ref=parent.times_ref
        )
        return list(_timed(parent.path, entries, times))

    async def _write_all(self, items: Sequence[_Item]) -> None:
        batch: list[_Item] = []
        size = 0
        for item in items:
            if item.entry.size > CHUNK:
                await self._write_large(item)
                continue
            batch.append(item)
            size += item.entry.size
            if size >= _BATCH_BYTES or len(batch) >= _BATCH_FILES:
                await self._write_batch(batch)
                batch, size = [], 0
        await self._write_batch(batch)

    async def _write_batch(self, batch: Sequence[_Item]) -> None:
        files = [item for item in batch if item.entry.kind is EntryKind.FILE]
        data = await get_many(self.contents, [item.entry.ref for item in files])
        for item, body in zip(files, data, strict=True):
            if len(body) != item.entry.size:
                raise _wrong_size(item, len(body))
        links = [item for item in batch if item.entry.kind is EntryKind.LINK]
        await in_thread(self._put_batch, list(zip(files, data, strict=True)), links)

    async def _write_large(self, item: _Item) -> None:
        fd = await in_thread(os.open, join(self.target, item.path), _NEW_FILE, 0o600)
        try:
            await pour(self.contents, item.entry, item.path, fd)
            await in_thread(self._seal, item, fd)
        finally:
            os.close(fd)

    def _put_batch(self, files: Sequence[tuple[_Item, bytes]], links: Sequence[_Item]) -> None:
        for item, body in files:
            fd = os.open(join(self.target, item.path), _NEW_FILE, 0o600)
            try:
                write_all(fd, body, 0)
                self._seal(item, fd)
            finally:
                os.close(fd)
        for item in links:
            path = join(self.target, item.path)
            os.symlink(item.entry.ref, path)
            if item.mtime_ns is not None:
                os.utime(path, ns=(item.mtime_ns, item.mtime_ns), follow_symlinks=False)

    def _seal(self, item: _Item, fd: int) -> None:
        os.fchmod(fd, item.entry.mode)
        if item.mtime_ns is not None:
            os.utime(fd, ns=(item.mtime_ns, item.mtime_ns))
        self._stats.append((item, os.fstat(fd)))

    def _make_directories(self, level: Sequence[_Item]) -> None:
        for item in level:
            os.mkdir(join(self.target, item.path), 0o700)

    def _finish(self) -> None:
        """Modes and times of directories, the deepest first: writing into them is over."""
        for item in reversed(self._directories):
            path = join(self.target, item.path) if item.path else self.target
            if item.mtime_ns is not None:
                os.utime(path, ns=(item.mtime_ns, item.mtime_ns))
            os.chmod(path, item.entry.mode)


async def pour(contents: Contents, entry: Entry, path: bytes, fd: int) -> None:
    """Writes a file's content to an empty file, holes as holes."""
    async for offset, data in pieces(contents, entry, path):
        await in_thread(write_all, fd, data, offset)
    await in_thread(os.ftruncate, fd, entry.size)


def write_all(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def _timed(path: bytes, entries: Sequence[Entry], times: Times) -> Iterator[_Item]:
    nodes = iter(times.nodes)
    for entry, stamp in zip(entries, times.entries, strict=True):
        node = next(nodes) if entry.kind is EntryKind.DIRECTORY else None
        yield _Item(path=join(path, entry.name), entry=entry, mtime_ns=stamp, times_ref=node)


def _wrong_size(item: _Item, size: int) -> Corrupt:
    return Corrupt(
        f"{display(item.path)}: {size} bytes are stored where the snapshot names {item.entry.size}",
        next="use an earlier savepoint",
    )
