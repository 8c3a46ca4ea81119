"""A directory tree is captured and comes back as it was: names, bytes, links, holes, modes, times."""

# ruff: noqa: PTH115, PTH118, PTH123, ASYNC221  names are raw bytes; processes are waited for

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from savepoint._contents import MemoryContents
from savepoint._errors import Corrupt, Missing, Newer, Usage
from savepoint._manifest import Entry, EntryKind, display, encode_node, encode_root
from savepoint._packs import Packs
from savepoint._scan import Unreadable
from savepoint._workspace import Workspace

NAMES = [
    "\u4e2d\u6587.txt".encode(),
    "\u00e9".encode(),
    "e\u0301".encode(),
    b"a\nb",
    b"q\"'.txt",
    b" lead",
    b"trail ",
    b"-rf",
    b".hidden",
    b"n" * 250,
    b"\xff\xfe",
    b"Case",
    b"case",
    b"back\\slash",
]
BODIES = [bytes(range(256)), b"a\r\nb\r\n", b"\xef\xbb\xbfbom", b"", b"\0" * 5000, b"text\n"]


def listing(root: Path, *, times: bool = True) -> list[bytes]:
    """Every path with kind, mode, size (not of directories: the file system's own affair), target, times."""
    form = "%P\\0%y %m %s %l" + (" %T@" if times else "") + "\\0\\0"
    files = subprocess.run(
        ["find", ".", "!", "-type", "d", "-printf", form], cwd=root, check=True, capture_output=True
    ).stdout
    form = form.replace("%s ", "")
    directories = subprocess.run(
        ["find", ".", "-type", "d", "-printf", form], cwd=root, check=True, capture_output=True
    ).stdout
    return sorted((files + directories).split(b"\0\0"))


def bodies(root: Path) -> dict[bytes, bytes]:
    found = {}
    for base, _, names in os.walk(os.fsencode(root)):
        for name in names:
            path = os.path.join(base, name)
            if stat.S_ISREG(os.lstat(path).st_mode) and os.lstat(path).st_size < 1 << 20:
                with open(path, "rb") as file:
                    found[os.path.relpath(path, os.fsencode(root))] = file.read()
    return found


def odd_tree(root: Path) -> None:
    root.mkdir()
    for index, name in enumerate(NAMES):
        path = os.path.join(os.fsencode(root), name)
        with open(path, "wb") as file:
            file.write(BODIES[index % len(BODIES)])
        os.utime(path, ns=(10**9 * index, 10**9 * index + 123_456_789 - 10**18))
    (root / "empty").mkdir()
    (root / "a/b/c").mkdir(parents=True)
    (root / "inner/.git/refs/tags").mkdir(parents=True)
    (root / "inner/.git/objects").mkdir()
    (root / "inner/.git/HEAD").write_text("ref: refs/heads/main\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o4755)
    (root / "secret").write_text("s")
    (root / "secret").chmod(0o600)
    (root / "a/b").chmod(0o1770)
    (root / "inner/.git").chmod(0o555)
    os.utime(root / "empty", ns=(5, 7))
    os.utime(root, ns=(5, 1_700_000_000_000_000_001))


async def test_odd_names_bytes_modes_times_and_empty_directories_come_back(tmp_path):
    odd_tree(tmp_path / "host")
    before, content = listing(tmp_path / "host"), bodies(tmp_path / "host")
    contents = Packs(tmp_path / "packs")
    host = Workspace(tmp_path / "host")
    snapshot = await host.snapshot(contents)
    await contents.flush()
    fork = await host.fork(Packs(tmp_path / "packs"), at=snapshot, place=tmp_path / "fork")
    assert listing(tmp_path / "fork") == before == listing(tmp_path / "host")
    assert bodies(tmp_path / "fork") == content == bodies(tmp_path / "host")
    assert await fork.snapshot(MemoryContents()) == snapshot
    await fork.discard()
    assert not (tmp_path / "fork").exists()


async def test_times_are_restored_but_are_not_identity(tmp_path):
    (tmp_path / "host").mkdir()
    file = tmp_path / "host" / "f"
    file.write_text("x")
    contents, host = MemoryContents(), Workspace(tmp_path / "host")
    first = await host.snapshot(contents)
    os.utime(file, ns=(1, 2))
    assert await host.snapshot(contents) == first
    fork = await host.fork(contents, at=first, place=tmp_path / "fork")
    assert (fork.path / "f").stat().st_mtime_ns == 2


async def test_each_part_of_an_entry_is_identity(tmp_path):
    (tmp_path / "host").mkdir()
    file = tmp_path / "host" / "f"
    file.write_text("x")
    (tmp_path / "host" / "d").mkdir()
    contents, host = MemoryContents(), Workspace(tmp_path / "host")
    seen = {await host.snapshot(contents)}
    file.write_text("y")
    seen.add(await host.snapshot(contents))
    file.chmod(0o755)
    seen.add(await host.snapshot(contents))
    file.rename(tmp_path / "host" / "g")
    seen.add(await host.snapshot(contents))
    (tmp_path / "host" / "g").unlink()
    (tmp_path / "host" / "g").symlink_to("y")
    seen.add(await host.snapshot(contents))
    (tmp_path / "host" / "d").rmdir()
    seen.add(await host.snapshot(contents))
    (tmp_path / "host").chmod(0o700)
    seen.add(await host.snapshot(contents))
    assert len(seen) == 7


@pytest.mark.parametrize("size", [100 << 20, (100 << 20) + 5])
async def test_a_sparse_file_is_bounded_in_the_store_and_comes_back_sparse(tmp_path, size):
    (tmp_path / "host").mkdir()
    file = tmp_path / "host" / "sparse"
    with file.open("wb") as stream:
        stream.seek(50 << 20)
        stream.write(b"island")
        stream.truncate(size)
    contents, host = MemoryContents(), Workspace(tmp_path / "host")
    snapshot = await host.snapshot(contents)
    assert contents.size < 5 << 20
    fork = await host.fork(contents, at=snapshot, place=tmp_path / "fork")
    copy = fork.path / "sparse"
    assert copy.stat().st_size == size
    assert copy.stat().st_blocks * 512 < 5 << 20
    with copy.open("rb") as stream:
        assert stream.read(50 << 20) == bytes(50 << 20)
        assert stream.read(6) == b"island"
        assert not any(stream.read(1 << 20))
    with file.open("r+b") as stream:  # the same bytes without the holes: the same content
        stream.write(bytes(8 << 20))
    assert await host.snapshot(contents) == snapshot


async def test_a_large_file_stores_only_the_piece_that_changed(tmp_path):
    (tmp_path / "host").mkdir()
    file = tmp_path / "host" / "large"
    file.write_bytes(os.urandom(1 << 20) * 13)
    contents, host = MemoryContents(), Workspace(tmp_path / "host")
    await host.snapshot(contents)
    size = contents.size
    with file.open("r+b") as stream:
        stream.seek(12 << 20)
        stream.write(b"!")
    snapshot = await host.snapshot(contents)
    assert contents.size - size < (1 << 20) + 5000
    fork = await host.fork(contents, at=snapshot, place=tmp_path / "fork")
    assert (fork.path / "large").read_bytes() == file.read_bytes()


async def test_restoring_is_exact_and_leaves_the_host_and_other_forks_alone(tmp_path):
    root = tmp_path / "host"
    (root / "data").mkdir(parents=True)
    (root / "keep.txt").write_text("old")
    (root / "del.txt").write_text("gone")
    (root / ".savepointignore").write_text("data/\n")
    (root / "data/big.bin").write_bytes(b"big")
    contents, host = MemoryContents(), Workspace(root)
    (root / "del.txt").unlink()
    one = await host.snapshot(contents)
    (root / "d/e").mkdir(parents=True)
    (root / "d/e/new2.txt").write_text("2")
    (root / "new.txt").write_text("1")
    (root / "keep.txt").write_text("new")
    (root / ".savepointignore").write_text("new.txt\ndata/\n")
    two = await host.snapshot(contents)
    before = listing(root)
    forks = [await host.fork(contents, at=at, place=tmp_path / str(n)) for n, at in enumerate((one, two, one))]
    first = {b"keep.txt": b"old", b".savepointignore": b"data/\n"}
    second = {b"keep.txt": b"new", b".savepointignore": b"new.txt\ndata/\n", b"d/e/new2.txt": b"2"}
    assert [bodies(fork.path) for fork in forks] == [first, second, first]
    assert not (forks[2].path / "d").exists()
    assert listing(root) == before
    assert (root / "data/big.bin").read_bytes() == b"big"
    assert listing(forks[0].path) == listing(forks[2].path)


async def test_no_link_is_followed_or_leads_out(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("canary-4711")
    root = tmp_path / "host"
    root.mkdir()
    targets = {"link": "../outside", "dangling": "nowhere", "loop": "loop", "abs": "/etc/hostname", "up": "../.."}
    for name, target in targets.items():
        (root / name).symlink_to(target)
    contents, host = Packs(tmp_path / "packs"), Workspace(root)
    one = await host.snapshot(contents)
    (root / "link").unlink()
    (root / "link").mkdir()
    (root / "link/a.txt").write_text("inside")
    two = await host.snapshot(contents)
    await contents.flush()
    stored = b"".join(file.read_bytes() for file in (tmp_path / "packs").iterdir())
    assert b"canary-4711" not in stored
    assert b"inside" in stored
    for index, at in enumerate((one, two, one)):
        fork = await host.fork(contents, at=at, place=tmp_path / str(index))
        links = {path.name: os.readlink(path) for path in fork.path.iterdir() if path.is_symlink()}
        assert links == (targets if at == one else {k: v for k, v in targets.items() if k != "link"})
    # In place, forwards and back: the merge meets a link where it wants a directory, and the reverse.
    assert {c.path for c in await host.apply(contents, two, one)} == {"link", "link/a.txt"}
    assert os.readlink(root / "link") == "../outside"
    await host.apply(contents, one, two)
    assert (root / "link/a.txt").read_text() == "inside"
    assert not (root / "link").is_symlink()
    assert (outside / "a.txt").read_text() == "canary-4711"
    assert [path.name for path in outside.iterdir()] == ["a.txt"]
    for index in range(3):
        await Workspace(tmp_path / str(index)).fork(contents, at=None, place=tmp_path / f"again{index}")
    assert (outside / "a.txt").read_text() == "canary-4711"


async def test_what_cannot_be_captured_is_listed_with_its_reason(tmp_path):
    root = tmp_path / "host"
    root.mkdir()
    os.mkfifo(root / "pipe")
    (root / "file").write_text("x")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "sock"))
        contents, host = MemoryContents(), Workspace(root)
        fork = await host.fork(contents, at=None, place=tmp_path / "fork")
    assert [path for path, _ in host.unsupported] == ["pipe", "sock"]
    assert [reason.split(" has")[0] for _, reason in host.unsupported] == ["a fifo", "a socket"]
    assert [path.name for path in fork.path.iterdir()] == ["file"]
    (root / "pipe").unlink()
    (root / "sock").unlink()
    await host.snapshot(contents)
    assert host.unsupported == ()


async def test_hard_links_become_files_of_their_own(tmp_path):
    root = tmp_path / "host"
    root.mkdir()
    (root / "a").write_text("x")
    (root / "b").hardlink_to(root / "a")
    host = Workspace(root)
    fork = await host.fork(MemoryContents(), at=None, place=tmp_path / "fork")
    (fork.path / "a").write_text("changed")
    assert [(fork.path / "b").read_text(), (root / "a").read_text(), (root / "b").read_text()] == ["x"] * 3


async def test_a_store_in_the_tree_is_left_out_and_a_store_elsewhere_by_name(tmp_path):
    root = tmp_path / "host"
    (root / "sub/.savepoint").mkdir(parents=True)
    (root / "sub/.savepoint/store.db").write_text("s")
    (root / ".savepoint").write_text("a file of this name is no store")
    contents = Packs(root / "elsewhere/packs")
    host = Workspace(root, exclude=[root / "elsewhere"])
    first = await host.snapshot(contents)
    await contents.flush()
    assert await host.snapshot(contents) == first
    fork = await host.fork(contents, at=first, place=tmp_path / "fork")
    assert bodies(fork.path) == {b".savepoint": b"a file of this name is no store"}


async def test_a_fork_is_never_made_over_something(tmp_path):
    (tmp_path / "host").mkdir()
    (tmp_path / "there").symlink_to("nowhere")
    with pytest.raises(Usage, match="there"):
        await Workspace(tmp_path / "host").fork(MemoryContents(), at=None, place=tmp_path / "there")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["host", "there"]


async def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(Missing, match="nope"):
        await Workspace(tmp_path / "nope").snapshot(MemoryContents())


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
async def test_an_unreadable_file_is_named(tmp_path):
    (tmp_path / "f").write_text("x")
    (tmp_path / "f").chmod(0)
    with pytest.raises(Unreadable, match="f: cannot be opened"):
        await Workspace(tmp_path).snapshot(MemoryContents())


class Writes(MemoryContents):
    """Contents during whose `put` somebody writes to the tree."""

    def __init__(self, change) -> None:
        super().__init__()
        self.change = change

    async def put(self, data):
        self.change()
        return await super().put(data)


async def test_a_file_that_keeps_changing_while_it_is_read_is_refused_by_name(tmp_path):
    file = tmp_path / "large"
    file.write_bytes(os.urandom(13 << 20))
    turns = iter(range(100))

    def touch() -> None:
        os.utime(file, ns=(next(turns), 0))

    with pytest.raises(Unreadable, match="large: keeps changing"):
        await Workspace(tmp_path).snapshot(Writes(touch))


async def test_a_fork_that_fails_leaves_nothing(tmp_path):
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "f").write_text("x" * 1000)
    contents, host = MemoryContents(), Workspace(tmp_path / "host")
    snapshot = await host.snapshot(contents)
    digest = next(name for name, data in contents._held.items() if data == b"x" * 1000)
    del contents._held[digest]
    with pytest.raises(Missing, match=digest.hex()):
        await host.fork(contents, at=snapshot, place=tmp_path / "forks" / "f")
    assert list((tmp_path / "forks").iterdir()) == []


@pytest.mark.parametrize("name", [b"..", b".", b"", b"a/b", b"/abs", b"nul\0"])
async def test_a_strangers_manifest_cannot_lead_out(tmp_path, name):
    contents = MemoryContents()
    body = await contents.put(b"evil")
    node = await contents.put(encode_node([Entry(name, EntryKind.FILE, 0o644, 4, body)]))
    root = await contents.put(encode_root(Entry(b"", EntryKind.DIRECTORY, 0o755, 0, node)))
    (tmp_path / "host").mkdir()
    host = Workspace(tmp_path / "host")
    empty = await host.snapshot(contents)
    with pytest.raises(Corrupt):
        await host.fork(contents, at=root, place=tmp_path / "forks" / "f")
    with pytest.raises(Corrupt):
        await host.apply(contents, empty, root)
    assert list((tmp_path / "forks").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["forks", "host"]


async def test_a_file_and_a_directory_of_one_name_are_no_directory(tmp_path):
    contents = MemoryContents()
    entry = Entry(b"a", EntryKind.LINK, 0, 0, b"/etc")
    node = await contents.put(encode_node([entry, entry]))
    root = await contents.put(encode_root(Entry(b"", EntryKind.DIRECTORY, 0o755, 0, node)))
    with pytest.raises(Corrupt):
        await Workspace(tmp_path).fork(contents, at=root, place=tmp_path / "f")


async def test_a_newer_format_is_not_guessed(tmp_path):
    from savepoint._codec import dumps

    contents = MemoryContents()
    root = await contents.put(dumps([2, "anything"]))
    with pytest.raises(Newer):
        await Workspace(tmp_path).fork(contents, at=root, place=tmp_path / "f")


KILLED_FORK = """
import asyncio, os, signal, sys
from pathlib import Path
from savepoint._packs import Packs
from savepoint._workspace import Workspace

class Dying(Packs):
    async def get_many(self, digests):
        data = await super().get_many(digests)
        if b"last" in data:
            os.kill(os.getpid(), signal.SIGKILL)
        return data

asyncio.run(Workspace(Path(sys.argv[1])).fork(Dying(Path(sys.argv[2])), at=bytes.fromhex(sys.argv[3]), place=Path(sys.argv[4])))
"""


async def test_a_killed_fork_leaves_nothing_that_looks_whole(tmp_path):
    (tmp_path / "host/d").mkdir(parents=True)
    (tmp_path / "host/first").write_text("first")
    (tmp_path / "host/d/last").write_text("last")
    contents, host = Packs(tmp_path / "packs"), Workspace(tmp_path / "host")
    snapshot = await host.snapshot(contents)
    await contents.flush()
    before = listing(tmp_path / "host")
    place = tmp_path / "forks" / "f"
    done = subprocess.run(
        [sys.executable, "-c", KILLED_FORK, tmp_path / "host", tmp_path / "packs", snapshot.hex(), place], check=False
    )
    assert done.returncode == -9
    assert not place.exists()
    fork = await host.fork(contents, at=snapshot, place=place)
    assert listing(fork.path) == before == listing(tmp_path / "host")


def test_two_paths_never_look_the_same():
    paths = [b"a\nb", b"a\\nb", b"\xff", b"\\xff", "\u00ff".encode(), b"\x1b", b"\\x1b", b""]
    assert len({display(path) for path in paths}) == len(paths)
    assert all(display(path).isprintable() for path in paths)
