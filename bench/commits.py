"""What grouping gains: durable commits a second of 100 tasks on one store, against those of one task alone."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from row import Goal, Row, Sample
from workload import stream

if TYPE_CHECKING:
    from savepoint._store import Store

TASKS = 100
COMMITS = 10
"""A task, with all of them at work."""
BODY_CHARS = 256
ROUNDS = 5


async def committing(store: "Store", name: str, commits: int) -> None:
    """One run's control rows: an event appended and its head moved, checked against the head before."""
    from savepoint._store import Space

    key, head = name.encode(), None
    for number in range(commits):
        async with store.commit() as tx:
            tx.expect(Space.HEAD, key, head)
            tx.write(Space.EVENT, key + number.to_bytes(8, "big"), stream(name, number, "", BODY_CHARS).encode())
            head = tx.write(Space.HEAD, key, number.to_bytes(8, "big"))


async def ms_a_commit(store: "Store", label: str, tasks: int, commits: int) -> float:
    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for task in range(tasks):
            group.create_task(committing(store, f"{label}-{task}", commits))
    return (time.perf_counter() - start) * 1e3 / (tasks * commits)


async def samples(place: Path) -> list[Sample]:
    from savepoint import open_store

    async with open_store(place) as store:
        return [
            Sample(
                floor=await ms_a_commit(store, f"alone{number}", 1, TASKS),
                ours=await ms_a_commit(store, f"together{number}", TASKS, COMMITS),
            )
            for number in range(ROUNDS)
        ]


def rows(scratch: Path | None) -> Iterator[Row]:
    """Both figures are ours: one task alone is the floor."""
    with tempfile.TemporaryDirectory(prefix="commits-", dir=scratch) as name:
        found = asyncio.run(samples(Path(name) / ".savepoint"))
    goal = Goal(limit=0.1)
    yield Row(what=f"durable commit, {TASKS} tasks", unit="ms", samples=found, goal=goal, note="floor: one task")
