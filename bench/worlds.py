"""What a snapshot and a fork of a directory tree cost, against one walk that only looks at every file, and `cp -a`."""

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from attrs import frozen

from row import Goal, Row, Sample
from workload import stream

FILES = 10_000
FILES_A_DIRECTORY = 100
FILE_CHARS = 1024
ROUNDS = 5


def make_tree(root: Path) -> None:
    for number in range(FILES):
        path = file_of(root, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(stream("file", number, "", FILE_CHARS))


def file_of(root: Path, number: int) -> Path:
    return root / f"directory{number // FILES_A_DIRECTORY}" / f"file{number}.txt"


def stat_walk(directory: str) -> int:
    """The floor of finding a change that nobody announced: every entry is looked at once."""
    seen = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            entry.stat(follow_symlinks=False)
            seen += stat_walk(entry.path) if entry.is_dir(follow_symlinks=False) else 1
    return seen


class Stopwatch:
    """Milliseconds of a block, in `ms` once it has ended."""

    ms = 0.0

    def __enter__(self) -> Self:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.ms = (time.perf_counter() - self._start) * 1e3


@frozen(kw_only=True)
class Round:
    walk: float
    changed: float
    unchanged: float
    copy: float
    fork: float


async def rounds(base: Path) -> list[Round]:
    from savepoint import Workspace
    from savepoint._packs import Packs

    tree = base / "tree"
    make_tree(tree)
    host, contents = Workspace(tree), Packs(base / "packs")
    before = await host.snapshot(contents)
    await contents.flush()
    found: list[Round] = []
    for number in range(ROUNDS):
        file_of(tree, number * FILES // ROUNDS).write_text(stream("changed", number, "", FILE_CHARS))
        with Stopwatch() as changed:
            after = await host.snapshot(contents)
            await contents.flush()
        with Stopwatch() as walk:
            assert stat_walk(str(tree)) == FILES
        with Stopwatch() as unchanged:
            again = await host.snapshot(contents)
            await contents.flush()
        assert before != after == again
        before = after
        with Stopwatch() as copy:
            subprocess.run(["cp", "-a", str(tree), str(base / "copied")], check=True)
        place = base / "fork"
        with Stopwatch() as fork:
            child = await host.fork(contents, at=after, place=place)
        await child.discard()
        shutil.rmtree(base / "copied")
        found.append(Round(walk=walk.ms, changed=changed.ms, unchanged=unchanged.ms, copy=copy.ms, fork=fork.ms))
    return found


def rows(scratch: Path | None) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="worlds-", dir=scratch) as name:
        found = asyncio.run(rounds(Path(name)))
    changed = [Sample(floor=each.walk, ours=each.changed) for each in found]
    unchanged = [Sample(floor=each.walk, ours=each.unchanged) for each in found]
    forks = [Sample(floor=each.copy, ours=each.fork) for each in found]
    tree = f"{FILES} files"
    yield Row(what=f"{tree}: snapshot, one changed", unit="ms", samples=changed, goal=Goal(limit=1.5))
    yield Row(what=f"{tree}: snapshot, none changed", unit="ms", samples=unchanged, goal=Goal(limit=1.5))
    yield Row(what=f"{tree}: fork by copying", unit="ms", samples=forks, goal=Goal(limit=1.2))
