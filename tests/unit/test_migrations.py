"""A store of an older version: read as it is, migrated once when it is opened for writing, whole at every moment."""

import asyncio
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from agent import Agent, Idempotency, decide, resume, run, tool
from agent.cli._show import KNOWN
from agent.testing import ScriptedModel, call, say
from savepoint import Corrupt, Foreign, Newer, RunStatus, open_store
from savepoint._inspect import inspect_run, list_runs
from savepoint._migrations import OLDEST, STEPS, VERSION
from savepoint._store import Space
from savepoint._verify import verify_store

VECTOR = Path(__file__).parent / "vectors" / "store-1.db"
"""Written by version 1: a run that completed, one that waits for an approval, one whose script ended too early."""
sent: list[str] = []


@tool(idempotency=Idempotency.ONCE)
async def send(to: str) -> str:
    """Sends a letter."""
    sent.append(to)
    return f"sent to {to}"


@tool(idempotency=Idempotency.ONCE, approval=True)
async def pay(amount: int) -> str:
    """Pays."""
    sent.append(str(amount))
    return f"paid {amount}"


def clerk(*turns: object) -> Agent:
    return Agent(name="clerk", tools=(send, pay), model=ScriptedModel(list(turns)))  # pyright: ignore[reportArgumentType]


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    sent.clear()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store as version 1 left it."""
    place = tmp_path / "store"
    place.mkdir(mode=0o700)
    for name in ("packs", "forks", "locks"):
        (place / name).mkdir(mode=0o700)
    shutil.copyfile(VECTOR, place / "store.db")
    return place


def version_of(place: Path) -> int:
    with closing(sqlite3.connect(place / "store.db")) as database:
        return database.execute("pragma user_version").fetchone()[0]


def stamp(place: Path, version: int) -> None:
    with closing(sqlite3.connect(place / "store.db")) as database:
        database.execute(f"pragma user_version={version}")


async def standing(place: Path) -> dict[str, RunStatus]:
    async with open_store(place, read_only=True) as store:
        assert list((await verify_store(store, KNOWN)).damage) == []
        return {each.record.run_id: each.record.status for each in await list_runs(store)}


WRITTEN = {
    "completed": RunStatus.COMPLETED, "waiting": RunStatus.WAITING, "interrupted": RunStatus.INTERRUPTED,
}  # fmt: skip


def test_there_is_a_step_from_every_version_to_the_next():
    assert sorted(STEPS) == list(range(OLDEST, VERSION))


async def test_opening_for_writing_migrates_and_every_run_goes_on(old: Path):
    async with open_store(old) as store:
        assert version_of(old) == VERSION
        assert list((await verify_store(store, KNOWN)).damage) == []
        done = await run(clerk(), "write to Ada", run_id="completed", store=store)
        assert (done.output, done.replayed, done.status) == ("done", True, RunStatus.COMPLETED)

        paying = clerk(call("send", to="bob"), call("pay", amount=17), say("paid"))
        waiting = await resume("waiting", agent=paying, store=store)
        (question,) = waiting.questions
        await decide("waiting", question, "approve", store=store)
        assert (await resume("waiting", agent=paying, store=store)).output == "paid"

        longer = clerk(call("send", to="eve"), say("sent"))
        assert (await resume("interrupted", agent=longer, store=store)).output == "sent"
        assert list((await verify_store(store, KNOWN)).damage) == []
    assert sent == ["17"]  # the letters have receipts of version 1


async def test_opening_for_reading_reads_it_as_it_is(old: Path):
    before = (old / "store.db").read_bytes()
    assert await standing(old) == WRITTEN
    async with open_store(old, read_only=True) as store:
        view = await inspect_run(store, "waiting", KNOWN)
        assert [question.effect for question in view.questions] == ["pay"]
    assert (old / "store.db").read_bytes() == before
    assert (old / "store.db-wal").stat().st_size == 0
    assert version_of(old) == OLDEST


async def test_only_the_version_is_written(old: Path):
    """Nothing that version 1 stored is rewritten: what was verified then is what is verified now."""
    with closing(sqlite3.connect(old / "store.db")) as database:
        before = [database.execute(f"select * from {table} order by 1").fetchall() for table in ("object", "ledger")]
    async with open_store(old):
        pass
    with closing(sqlite3.connect(old / "store.db")) as database:
        after = [database.execute(f"select * from {table} order by 1").fetchall() for table in ("object", "ledger")]
    assert after == before


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(("version", "error"), [(VERSION + 1, Newer), (OLDEST - 1, Foreign)])
async def test_other_versions_are_refused(old: Path, version: int, error: type[Foreign], read_only: bool):
    stamp(old, version)
    before = (old / "store.db").read_bytes()
    with pytest.raises(error) as refused:
        async with open_store(old, read_only=read_only):
            pass
    assert type(refused.value) is error
    assert (old / "store.db").read_bytes() == before


async def test_a_store_whose_tables_are_not_whole_is_not_migrated(old: Path):
    with closing(sqlite3.connect(old / "store.db")) as database:
        database.execute("create table extra(x)")
    with pytest.raises(Corrupt, match="list of its tables"):
        async with open_store(old):
            pass
    assert version_of(old) == OLDEST


async def test_a_store_whose_version_was_set_back_is_what_it_was(old: Path):
    """A flipped version makes a store of today look old; migrating it again must harm nothing."""
    async with open_store(old) as store, store.commit() as tx:
        tx.write(Space.NESTED, bytes(32), b"a row that version 1 did not have")
    stamp(old, OLDEST)
    async with open_store(old) as store:
        assert [row.body for row in await store.scan(Space.NESTED)] == [b"a row that version 1 did not have"]
    assert await standing(old) == WRITTEN
    assert version_of(old) == VERSION


KILLED = """
import asyncio, os, signal, sys
from savepoint import _migrations
from savepoint._engine import Engine
from savepoint._sqlite import open_store

place, at = sys.argv[1:]
settle = Engine.settle

def step(run):
    run("insert into ledger values(x'00', x'00', x'00')")  # what must not stay behind a kill

def traced(engine, **how):
    engine.set_trace_callback(lambda sql: sql.startswith(at) and os.kill(os.getpid(), signal.SIGKILL))
    settle(engine, **how)

_migrations.STEPS[1] = step
Engine.settle = traced

async def main():
    async with open_store(place, wal=%s):
        pass

asyncio.run(main())
"""


@pytest.mark.parametrize("wal", [True, False])
@pytest.mark.parametrize(
    "statement", ["begin immediate", "insert into ledger", f"pragma user_version={VERSION}", "commit"]
)
async def test_a_kill_inside_the_migration_leaves_the_old_store(old: Path, statement: str, wal: bool):
    victim = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED % wal, str(old), statement)
    assert await asyncio.wait_for(victim.wait(), 60) == -signal.SIGKILL
    assert await standing(old) == WRITTEN
    assert version_of(old) == OLDEST
    async with open_store(old) as store:
        assert list((await verify_store(store, KNOWN)).damage) == []
    assert version_of(old) == VERSION
    assert await standing(old) == WRITTEN


TOGETHER = """
import asyncio, sys
from savepoint import _migrations
from savepoint._sqlite import open_store

step = _migrations.STEPS[1]

def told(run):
    print("migrated", flush=True)
    step(run)

_migrations.STEPS[1] = told

async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    async with open_store(sys.argv[1]) as store:
        assert not (await store.verify()).damage

asyncio.run(main())
"""


async def test_of_processes_that_open_at_once_one_migrates(old: Path):
    openers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", TOGETHER, str(old), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(4)
    ]
    for opener in openers:
        assert opener.stdout is not None
        assert await asyncio.wait_for(opener.stdout.readline(), 60) == b"ready\n"
    said = await asyncio.gather(*(opener.communicate(b"go\n") for opener in openers))
    assert [opener.returncode for opener in openers] == [0] * len(openers)
    assert b"".join(out for out, _ in said) == b"migrated\n"
    assert version_of(old) == VERSION
