"""Random trees and operations: what is captured comes back, incrementally as in full, and the host stays as it is."""

# ruff: noqa: PTH101, PTH103, PTH108, PTH112, PTH114, PTH115, PTH118, PTH120, PTH123, PTH211  names are raw bytes, which a Path cannot hold

import asyncio
import os
import random
import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from savepoint._contents import MemoryContents
from savepoint._packs import Packs
from savepoint._statcache import StatCache
from savepoint._workspace import Workspace

NAMES = [b"a", b"b", b"\xff\xfe", "\u00e9".encode(), "e\u0301".encode(), b"a b", b"-x", b"A", b".h", b"z\n"]
names = st.sampled_from(NAMES)
paths = st.lists(names, min_size=1, max_size=3).map(b"/".join)
files = st.tuples(st.just("file"), paths, st.binary(max_size=40))
operations = st.one_of(
    files,
    files,
    st.tuples(st.just("dir"), paths, st.none()),
    st.tuples(st.just("link"), paths, paths),
    st.tuples(st.just("remove"), paths, st.none()),
    st.tuples(st.just("mode"), paths, st.sampled_from([0o600, 0o644, 0o755, 0o777, 0o4711])),
    st.tuples(st.just("time"), paths, st.integers(0, 2**60)),
)


def perform(root: bytes, operation: tuple[str, bytes, object]) -> None:
    """What cannot be done on this tree is nothing."""
    what, path, value = operation
    here = os.path.join(root, path)
    try:
        match what, value:
            case "file", bytes(data):
                os.makedirs(os.path.dirname(here), exist_ok=True)
                with open(os.open(here, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW), "wb") as file:
                    file.write(data)
            case "dir", _:
                os.makedirs(here, exist_ok=True)
            case "link", bytes(target):
                os.symlink(target, here)
            case "remove", _:
                shutil.rmtree(here) if os.path.isdir(here) and not os.path.islink(here) else os.unlink(here)
            case "mode", int(mode):
                os.chmod(here, mode | (0o700 if os.path.isdir(here) else 0), follow_symlinks=True)
            case "time", int(stamp):
                os.utime(here, ns=(stamp, stamp), follow_symlinks=False)
            case _:
                raise AssertionError(what)
    except (FileNotFoundError, NotADirectoryError, FileExistsError, IsADirectoryError):
        pass
    except OSError as error:
        if error.errno != 40:  # a loop of links
            raise


def state(root: Path) -> list[tuple[object, ...]]:
    """All that `find -printf '%P %y %m %s %T@'` would print, and the bytes."""
    found: list[tuple[object, ...]] = []
    base = os.fsencode(root)
    for where, directories, entries in os.walk(base):
        for name in [b".", *entries, *(d for d in directories if os.path.islink(os.path.join(where, d)))]:
            path = os.path.join(where, name)
            info = os.lstat(path)
            link = os.path.islink(path)
            body = os.readlink(path) if link else None
            if body is None and name != b".":
                with open(path, "rb") as file:
                    body = file.read()
            found.append((os.path.relpath(path, base), info.st_mode, info.st_mtime_ns, body))
    return sorted(found, key=repr)


async def full(workspace: Workspace, contents: MemoryContents) -> bytes:
    return await Workspace(workspace.path).snapshot(contents)


def confined(root: bytes, operation) -> bool:
    """Operations pass through links that earlier ones made; those that would leave the tree are left out."""
    path = os.path.join(root, operation[1])
    return os.path.realpath(path).startswith(os.path.realpath(root))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(operations, max_size=8), min_size=1, max_size=4))
def test_capture_fork_capture(rounds):
    async def story(base: Path) -> None:
        (base / "host").mkdir()
        packs = Packs(base / "packs")
        host = Workspace(base / "host")
        seen: list[tuple[bytes, list[tuple[object, ...]]]] = []
        for number, changes in enumerate(rounds):
            for change in changes:
                if confined(os.fsencode(base / "host"), change):
                    perform(os.fsencode(base / "host"), change)
            before = state(base / "host")
            snapshot = await host.snapshot(packs)
            assert snapshot == await full(host, MemoryContents())
            assert snapshot == await host.snapshot(packs)
            seen.append((snapshot, before))
            fork = await host.fork(packs, at=snapshot, place=base / f"fork{number}")
            assert state(fork.path) == before == state(base / "host")
            assert snapshot == await fork.snapshot(packs) == await full(fork, MemoryContents())
        await packs.flush()
        for number, (snapshot, _) in enumerate(seen):
            again = await host.fork(Packs(base / "packs"), at=snapshot, place=base / f"again{number}")
            assert await full(again, MemoryContents()) == snapshot

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(story(Path(directory)))


@settings(max_examples=60, deadline=None)
@given(st.lists(operations, max_size=8), st.lists(operations, max_size=8))
def test_a_merge_over_an_unchanged_host_is_the_fork_and_back_again(first, then):
    async def story(base: Path) -> None:
        (base / "host").mkdir()
        contents = MemoryContents()
        host = Workspace(base / "host")
        for change in first:
            if confined(os.fsencode(base / "host"), change):
                perform(os.fsencode(base / "host"), change)
        old = await host.snapshot(contents)
        fork = await host.fork(contents, at=old, place=base / "fork")
        for change in then:
            if confined(os.fsencode(fork.path), change):
                perform(os.fsencode(fork.path), change)
        new = await fork.snapshot(contents)
        assert bool(await host.diff(contents, old, new)) == (old != new)
        await host.apply(contents, old, new)
        assert await host.snapshot(contents) == new
        await host.apply(contents, new, old)
        assert await full(host, MemoryContents()) == old

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(story(Path(directory)))


async def test_writes_within_one_tick_are_never_missed(tmp_path):
    """The same size, at once, again and again: only the racy rule tells these apart."""
    file = tmp_path / "f"
    host, contents = Workspace(tmp_path), MemoryContents()
    letters = random.Random(7)
    for _ in range(200):
        file.write_bytes(letters.randbytes(4))
        stamp = file.stat().st_mtime_ns
        os.utime(file, ns=(stamp, stamp))
        assert await host.snapshot(contents) == await full(host, MemoryContents())


class Counting(MemoryContents):
    def __init__(self) -> None:
        super().__init__()
        self.puts = 0

    async def put(self, data):
        self.puts += 1
        return await super().put(data)


async def test_unchanged_files_are_neither_read_nor_stored(tmp_path):
    (tmp_path / "d").mkdir()
    for name in ("f", "d/g"):
        (tmp_path / name).write_text(name)
    host, contents = Workspace(tmp_path), Counting()
    snapshot = await host.snapshot(contents)
    while host._cache.files.keys() != {b"f", b"d/g"}:  # until they are older than a tick: each turn reads them again
        await host.snapshot(contents)
    contents.puts = 0
    assert await host.snapshot(contents) == snapshot
    assert contents.puts == 1  # the root entry, which is not cached
    other = Counting()
    assert await host.snapshot(other) == snapshot  # what is cached for one contents is not believed for another
    assert other.puts > 4


async def test_a_snapshot_that_could_not_be_stored_teaches_nothing(tmp_path):
    class Full(MemoryContents):
        async def put(self, data):
            raise OSError("full")

    (tmp_path / "f").write_text("x")
    host, broken = Workspace(tmp_path), Full()
    try:
        await host.snapshot(broken)
    except OSError:
        assert host._cache == StatCache()
    else:
        raise AssertionError("a full store took it")
