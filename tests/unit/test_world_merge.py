"""Merging a fork back: three-way, nothing written where anything conflicts, finished by repeating after a kill."""

# ruff: noqa: PTH115, ASYNC221  targets are text as they are; processes are waited for

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from savepoint._conflict import MergeConflict
from savepoint._contents import MemoryContents
from savepoint._packs import Packs
from savepoint._workspace import Workspace


def build(root: Path, tree: Mapping[str, str | None]) -> Path:
    """Text is a file, `None` an empty directory, text that starts with `->` a link."""
    root.mkdir(exist_ok=True)
    for name, body in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if body is None:
            path.mkdir()
        elif body.startswith("->"):
            path.symlink_to(body[2:])
        else:
            path.write_text(body)
    return root


def tree(root: Path) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = "->" + os.readlink(path)
        else:
            found[name] = None if path.is_dir() else path.read_text()
    return found


async def snapshots(tmp_path: Path, old, new, contents) -> tuple[bytes, bytes]:
    one, other = Workspace(build(tmp_path / "old", old)), Workspace(build(tmp_path / "new", new))
    return await one.snapshot(contents), await other.snapshot(contents)


SHAPES = [
    ({"x": "file"}, {"x": None}),
    ({"x": "file"}, {"x/y/z": "deep", "x/w": "->y"}),
    ({"x/y/z": "deep", "x/e": None}, {"x": "file"}),
    ({"x/y": "1"}, {"x": "->nowhere"}),
    ({"x": "->y", "y/k": "1"}, {"x/k": "2", "y/k": "1"}),
    ({"a/b/c": "1"}, {}),
    ({}, {"a/b/c": "1", "d": None}),
    ({"a": "1", "b": "2"}, {"a": "2", "b": "1"}),
    ({"a": "1"}, {"A": "1"}),
]


@pytest.mark.parametrize(("old", "new"), [pair for a, b in SHAPES for pair in ((a, b), (b, a))], ids=str)
async def test_every_change_of_shape_arrives_and_repeats_as_a_no_op(tmp_path, old, new):
    contents = MemoryContents()
    before, after = await snapshots(tmp_path, old, new, contents)
    host = Workspace(build(tmp_path / "host", {**old, "mine": "host"}))
    for _ in range(2):
        await host.apply(contents, before, after)
        assert {k: v for k, v in tree(host.path).items() if k != "mine"} == tree(tmp_path / "new")
        assert (host.path / "mine").read_text() == "host"


CONFLICTS = [
    ({"x": "1"}, {"x": "2"}, {"x": "3"}, ("x",)),
    ({"x": "1"}, {"x": "2"}, {}, ("x",)),
    ({"x": "1"}, {}, {"x": "2"}, ("x",)),
    ({}, {"x": "1"}, {"x": "2"}, ("x",)),
    ({}, {"x/a": "1"}, {"x": "file"}, ("x",)),
    ({"d/a": "1"}, {"d/a": "1", "d/b": "2"}, {}, ("d/b",)),
    ({"d/a": "1"}, {"d/a": "1", "d/b": "2"}, {"d": "->elsewhere", "elsewhere/a": "1"}, ("d/b",)),
    ({"d/a": "1"}, {"d": "file"}, {"d/a": "1", "d/mine": "2"}, ("d/mine",)),
    ({"d/e/a": "1"}, {"d": "->x"}, {"d/e/a": "1", "d/e/f/mine": "2"}, ("d/e/f", "d/e/f/mine")),
    ({"a": "1", "b": "1"}, {"a": "2", "b": "2"}, {"a": "3", "b": "4"}, ("a", "b")),
]


@pytest.mark.parametrize(("old", "new", "present", "paths"), CONFLICTS, ids=str)
async def test_a_conflict_lists_all_paths_and_nothing_is_written(tmp_path, old, new, present, paths):
    contents = MemoryContents()
    before, after = await snapshots(tmp_path, old, new, contents)
    host = Workspace(build(tmp_path / "host", present))
    held = tree(host.path)
    with pytest.raises(MergeConflict) as conflict:
        await host.apply(contents, before, after)
    assert conflict.value.paths == paths
    assert conflict.value.paths == tuple(await host.conflicts(contents, before, after))
    assert tree(host.path) == held


async def test_what_both_sides_did_counts_as_done(tmp_path):
    contents = MemoryContents()
    before, after = await snapshots(tmp_path, {"a": "1", "b": "1"}, {"a": "2", "c": "3"}, contents)
    host = Workspace(build(tmp_path / "host", {"a": "2", "c": "3"}))
    await host.apply(contents, before, after)
    assert tree(host.path) == {"a": "2", "c": "3"}


async def test_a_removed_directory_stays_for_what_was_added_here(tmp_path):
    contents = MemoryContents()
    before, after = await snapshots(tmp_path, {"d/a": "1"}, {}, contents)
    host = Workspace(build(tmp_path / "host", {"d/a": "1", "d/mine": "2"}))
    await host.apply(contents, before, after)
    assert tree(host.path) == {"d": None, "d/mine": "2"}


async def test_what_is_ignored_is_never_deleted_or_overwritten(tmp_path):
    contents = MemoryContents()
    host = Workspace(build(tmp_path / "host", {".savepointignore": "data/\n", "data/big": "host", "keep": "1"}))
    fork = await host.fork(contents, at=None, place=tmp_path / "fork")
    old = await fork.snapshot(contents)
    assert "data" not in tree(fork.path)
    (fork.path / "data").mkdir()
    (fork.path / "data/scratch").write_text("the fork's own")
    (fork.path / ".savepointignore").write_text("data/\nkeep\n")  # no longer captured: not the same as removed
    new = await fork.snapshot(contents)
    assert [change.path for change in await host.diff(contents, old, new)] == [".savepointignore"]
    await host.apply(contents, old, new)
    assert tree(host.path) == {".savepointignore": "data/\nkeep\n", "data": None, "data/big": "host", "keep": "1"}
    (fork.path / ".savepointignore").write_text("")
    (fork.path / "data/big").write_text("fork")
    newer = await fork.snapshot(contents)
    with pytest.raises(MergeConflict) as conflict:
        await host.apply(contents, new, newer)
    assert conflict.value.paths == ("data/big",)


async def test_modes_arrive_those_of_read_only_directories_too(tmp_path):
    contents = MemoryContents()
    host = Workspace(build(tmp_path / "host", {"run": "x", "d/f": "1"}))
    fork = await host.fork(contents, at=None, place=tmp_path / "fork")
    old = await fork.snapshot(contents)
    (fork.path / "run").chmod(0o755)
    (fork.path / "ro").mkdir()
    (fork.path / "ro/f").write_text("x")
    (fork.path / "ro").chmod(0o500)
    (fork.path / "d").chmod(0o711)
    fork.path.chmod(0o750)
    new = await fork.snapshot(contents)
    await host.apply(contents, old, new)
    assert await host.snapshot(contents) == new


KILLED_MERGE = """
import asyncio, os, signal, sys
from collections.abc import Mapping
from pathlib import Path
from savepoint._packs import Packs
from savepoint._workspace import Workspace

left = int(sys.argv[5])
WRITES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.chmod", "os.truncate"}

def audit(event, args):
    global left
    if event not in WRITES or not armed or (event == "open" and not args[2] & os.O_CREAT):
        return
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)

armed = False
sys.addaudithook(audit)

async def main():
    global armed
    contents = Packs(Path(sys.argv[2]))
    armed = True
    await Workspace(Path(sys.argv[1])).apply(contents, bytes.fromhex(sys.argv[3]), bytes.fromhex(sys.argv[4]))

asyncio.run(main())
"""


async def test_a_merge_killed_at_any_write_is_finished_by_repeating(tmp_path):
    old = {"f": "1", "gone/a": "1", "d/x": "1", "l": "->f", "swap": "file"}
    new = {"f": "2", "d": "file now", "l": "->d", "swap/in": "deep", "new/e": None}
    contents = Packs(tmp_path / "packs")
    before, after = await snapshots(tmp_path, old, new, contents)
    await contents.flush()
    kills = 0
    for writes in range(100):
        host = Workspace(build(tmp_path / f"host{writes}", old))
        arguments = (host.path, tmp_path / "packs", before.hex(), after.hex(), str(writes))
        done = subprocess.run([sys.executable, "-c", KILLED_MERGE, *arguments], check=False)
        killed = done.returncode == -9
        assert killed or done.returncode == 0
        kills += killed
        for name, body in tree(host.path).items():  # every path is old or new, never half
            if ".savepoint~" not in name:
                assert body in {tree(tmp_path / "old").get(name, "absent"), tree(tmp_path / "new").get(name, "absent")}
        await host.apply(contents, before, after)
        assert tree(host.path) == tree(tmp_path / "new")
        assert await host.snapshot(contents) == after
        if not killed:
            break
    assert kills > 8
