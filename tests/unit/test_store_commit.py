"""How the durable store commits: together, to the end, and never more softly than it says."""

import asyncio
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from savepoint._digest import Domain, seal
from savepoint._errors import Missing, NotWritable, Stale, Usage
from savepoint._memory import MemoryStore
from savepoint._sqlite import SqliteStore, open_store
from savepoint._store import Space


async def write(store: SqliteStore, key: bytes, body: bytes = b"") -> None:
    async with store.commit() as tx:
        tx.write(Space.RUN, key, body)


@contextmanager
def held(place: Path) -> Generator[sqlite3.Connection]:
    """Another process's write lock, as SQLite sees it; given back by its `rollback`."""
    with closing(sqlite3.connect(place / "store.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        yield other


async def test_commits_of_a_hundred_tasks_share_transactions(tmp_path: Path) -> None:
    async with open_store(tmp_path / "s") as store:
        statements: list[str] = []
        await store.look(lambda engine: engine.set_trace_callback(statements.append))
        await asyncio.gather(*(write(store, bytes((number,))) for number in range(100)))
        assert len(await store.scan(Space.RUN)) == 100
        assert statements.count("commit") == 2  # the first alone, all that came meanwhile together


async def test_a_group_whose_units_all_fail_writes_nothing(tmp_path: Path) -> None:
    async def fail(store: SqliteStore) -> None:
        async with store.commit() as tx:
            tx.expect(Space.RUN, b"nobody", bytes(32))
            tx.write(Space.RUN, b"x", b"")

    async with open_store(tmp_path / "s") as store:
        ends = await asyncio.gather(*(fail(store) for _ in range(5)), return_exceptions=True)
        assert [type(end) for end in ends] == [Stale] * 5
        assert await store.scan(Space.RUN) == []


async def test_a_unit_that_cannot_be_stored_fails_alone(tmp_path: Path) -> None:
    async def bad(store: SqliteStore) -> None:
        async with store.commit() as tx:
            tx.write(Space.RUN, b"half", b"")
            tx.put(bytes(32), object())  # pyright: ignore[reportArgumentType]

    async with open_store(tmp_path / "s") as store:
        ends = await asyncio.gather(
            write(store, b"1"), write(store, b"2"), bad(store), write(store, b"3"), return_exceptions=True
        )
        assert [type(end) for end in ends] == [type(None), type(None), Usage, type(None)]
        assert [row.key for row in await store.scan(Space.RUN)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("company", [0, 3])
async def test_a_commit_cancelled_in_flight_lands_first(tmp_path: Path, company: int) -> None:
    async with open_store(tmp_path / "s") as store:
        with held(tmp_path / "s") as other:
            tasks = [asyncio.create_task(write(store, bytes((number,)))) for number in range(company + 1)]
            waiting = asyncio.create_task(asyncio.wait(tasks))
            await asyncio.sleep(0)  # one step each: every unit is handed over
            assert store._busy
            for task in tasks:
                task.cancel()
            await asyncio.sleep(0)
            assert not any(task.done() for task in tasks)
            other.execute("rollback")
        await waiting
        assert all(task.cancelled() for task in tasks)
        assert len(await store.scan(Space.RUN)) == company + 1


async def test_closing_finishes_what_is_queued(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group, open_store(tmp_path / "s") as store:
        for number in range(20):
            group.create_task(write(store, bytes((number,))))
        await asyncio.sleep(0)  # one step each: every unit is handed over
        assert store._busy
    async with open_store(tmp_path / "s") as store:
        assert len(await store.scan(Space.RUN)) == 20


async def test_a_closed_store_refuses_by_name(tmp_path: Path) -> None:
    async with open_store(tmp_path / "s") as store:
        pass
    with pytest.raises(Usage, match="is closed"):
        await store.scan(Space.RUN)
    with pytest.raises(Usage, match="is closed"):
        await write(store, b"late")


async def test_a_busy_store_is_not_writable_and_then_writable_again(tmp_path: Path) -> None:
    async with open_store(tmp_path / "s", busy_s=0.05) as store:
        with held(tmp_path / "s"):
            ends = await asyncio.gather(write(store, b"1"), write(store, b"2"), return_exceptions=True)
            assert [type(end) for end in ends] == [NotWritable] * 2
            assert "another process" in str(ends[0])
            assert await store.read(Space.RUN, b"1") is None  # readers are not kept out
        await write(store, b"1")


@pytest.mark.parametrize(
    ("options", "journal", "synchronous"),
    [({}, "wal", 2), ({"wal": False}, "delete", 3), ({"durability": "process"}, "wal", 1)],
)
async def test_durability_is_what_sqlite_reports(tmp_path: Path, options, journal: str, synchronous: int) -> None:
    async with open_store(tmp_path / "s", **options) as store:
        assert await store.look(lambda engine: engine.execute("pragma journal_mode").fetchone()) == (journal,)
        assert await store.look(lambda engine: engine.execute("pragma synchronous").fetchone()) == (synchronous,)


async def test_a_journal_mode_that_does_not_take_is_refused(tmp_path: Path) -> None:
    async with open_store(tmp_path / "s") as store:
        await write(store, b"1")
        with pytest.raises(NotWritable):
            async with open_store(tmp_path / "s", wal=False, busy_s=0.05):
                pass
        await write(store, b"2")


SYNCS = """
import asyncio, sys
from savepoint._sqlite import open_store
from savepoint._store import Space

async def main(place, durability, sync, count):
    async with open_store(place, durability=durability) as store:
        for number in range(int(count)):
            async with store.commit(sync=sync == "True") as tx:
                tx.write(Space.RUN, b"run", number.to_bytes(2, "big"))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="counts system calls with strace")
@pytest.mark.parametrize(
    ("durability", "sync", "syncs_per_commit"),
    [("power", True, 1), ("power", False, 1), ("process", True, 1), ("process", False, 0)],
)
def test_syncs_per_commit(tmp_path: Path, durability: str, *, sync: bool, syncs_per_commit: int) -> None:
    def syncs(commits: int) -> int:
        run = [sys.executable, "-c", SYNCS, str(tmp_path / f"s{commits}"), durability, str(sync), str(commits)]
        traced = subprocess.run(
            ["strace", "-f", "-e", "trace=fsync,fdatasync", *run], check=True, capture_output=True, text=True
        )
        return len(re.findall(r"f(?:data)?sync\(", traced.stderr))

    assert syncs(60) - syncs(20) == 40 * syncs_per_commit


def test_the_memory_stores_forks_go_with_it() -> None:
    store = MemoryStore()
    forks = store.forks
    (forks / "f").mkdir()
    assert store.forks == forks
    del store
    assert not forks.exists()


async def test_a_stale_head_is_named_and_contributes_nothing(tmp_path: Path) -> None:
    async with open_store(tmp_path / "s") as store:
        async with store.commit() as tx:
            digest = tx.write(Space.HEAD, b"lineage", b"one")
        async with store.commit() as tx:
            tx.expect(Space.HEAD, b"lineage", digest)
            tx.write(Space.HEAD, b"lineage", b"two")

        async def write_again() -> None:
            async with store.commit() as tx:
                tx.expect(Space.HEAD, b"lineage", digest)
                tx.put(seal(Domain.OBJECT, b"x"), b"x")

        with pytest.raises(Stale, match="row head"):
            await write_again()
        with pytest.raises(Missing):
            await store.objects([seal(Domain.OBJECT, b"x")])
