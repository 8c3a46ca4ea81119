"""Real processes on one session at once: nothing is lost, nothing is there twice, nothing is torn."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent import StoredSession, User
from agent._entries import paired
from savepoint import Log, open_store

PROGRAM = """
import asyncio, sys
from pathlib import Path
from agent import Reply, StoredSession, User
from agent._message import ToolCall
from savepoint import open_store

async def main(place, name, how):
    async with open_store(Path(place), durability="process") as store:
        session = StoredSession(store)
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(50):
            calls = (ToolCall(id="0.0", tool="look", arguments="{}"),)
            part = [User(content=f"{name} {number}"), Reply(calls=calls), "found"]
            for run_id in (f"{name}{number}", f"both{number}"):
                if how == "append":
                    await session.append("u1", part, run_id=run_id)
                else:
                    footing = await session.footing("u1")
                    history = len(footing.history)
                    transcript = footing.history.extend(part)
                    await session.land("u1", run_id, transcript, history=history, mark=footing.mark)

asyncio.run(main(*sys.argv[1:]))
"""


def together(place: Path, how: str) -> None:
    asyncio.run(_made(place))
    command = [sys.executable, "-c", PROGRAM, str(place)]
    processes = [
        subprocess.Popen([*command, name, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in ("a", "b")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    ends = [process.communicate(timeout=100) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends
    asyncio.run(_checked(place))


async def _made(place: Path) -> None:
    async with open_store(place, durability="process"):
        pass


async def _checked(place: Path) -> None:
    async with open_store(place, read_only=True) as store:
        session = StoredSession(store)
        segments, entries = await session.segments("u1"), await session.load("u1")
        outline = await session.outline("u1")
    runs = [str(segment.run_id) for segment in segments]
    assert sorted(runs) == sorted(f"{name}{number}" for name in ("a", "b", "both") for number in range(50))
    for name in ("a", "b"):
        own = [run_id for run_id in runs if run_id.startswith(name) and not run_id.startswith("both")]
        assert own == [f"{name}{number}" for number in range(50)]
    assert [(info.start, info.count) for info in outline] == [(3 * number, 3) for number in range(150)]
    assert list(entries) == [entry for segment in segments for entry in segment.entries]
    assert not any(paired(segment.entries) for segment in segments)


def test_two_processes_append(tmp_path: Path) -> None:
    together(tmp_path / "s", "append")


def test_two_processes_land(tmp_path: Path) -> None:
    together(tmp_path / "s", "land")


LANDING = """
import asyncio, sys
from pathlib import Path
from agent import StoredSession, User
from savepoint import open_store
from savepoint.testing import kill_from_environment

async def main(place):
    async with open_store(Path(place), durability="process") as store:
        session = StoredSession(store)
        footing = await session.footing("u1")
        async with store.commit() as tx:
            session.pending(tx, "u1", "r")
        kill_from_environment()
        await session.land("u1", "r", footing.history.append(User(content="mine")), history=1, mark=footing.mark)

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize(("point", "landed"), [("land.before", False), ("land.after", True)])
def test_a_landing_that_was_killed_is_whole_or_still_pending_and_is_repeated(
    tmp_path: Path, point: str, landed: bool
) -> None:
    place = tmp_path / "s"

    async def before() -> tuple[Log, bytes]:
        async with open_store(place, durability="process") as store:
            session = StoredSession(store)
            await session.append("u1", [User(content="before")])
            footing = await session.footing("u1")
            return footing.history, footing.mark

    async def after(history: Log, mark: bytes) -> None:
        async with open_store(place, durability="process") as store:
            session = StoredSession(store)
            assert await session.pending_runs("u1") == ([] if landed else ["r"])
            assert len(await session.load("u1")) == 1 + landed
            transcript = history.append(User(content="mine"))
            assert await session.land("u1", "r", transcript, history=1, mark=mark) == ""
            assert await session.load("u1") == transcript
            assert await session.pending_runs("u1") == []

    history, mark = asyncio.run(before())
    killed = subprocess.run(
        [sys.executable, "-c", LANDING, str(place)], env={**os.environ, "SAVEPOINT_KILL": point}, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    asyncio.run(after(history, mark))
