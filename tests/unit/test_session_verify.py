"""What `verify` says of sessions: rows that are gone or do not fit, and content that is not there."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agent import Reply, StoredSession, User
from agent._verify_sessions import verify_sessions
from savepoint import Corrupt, open_store
from savepoint._store import Space

LONG = "a text that is longer than what stands in a segment of its own, so that it is an object by itself"


async def _made(place: Path) -> None:
    async with open_store(place) as store:
        session = StoredSession(store)
        for number in range(3):
            entries = [User(content=f"{number} {LONG}"), Reply(text=f"{number}, {LONG}")]
            await session.append("u1", entries, run_id=f"r{number}")


async def _found(place: Path) -> list[str]:
    async with open_store(place) as store:
        return [f"{each.name}: {each.cause}" for each in await verify_sessions(store)]


def _delete(place: Path, where: str) -> None:
    with closing(sqlite3.connect(place / "store.db")) as database:
        assert database.execute(f"delete from {where}").rowcount == 1
        database.commit()


def _row(space: Space, key: bytes) -> str:
    return f"ledger where place = x'{(space.encode() + bytes(1) + key).hex()}'"


async def test_a_whole_session_has_no_damage(tmp_path: Path):
    await _made(tmp_path)
    assert await _found(tmp_path) == []


@pytest.mark.parametrize(
    ("where", "cause"),
    [
        (_row(Space.SESSION, b"u1"), "its head is gone"),
        (_row(Space.SEGMENT, b"u1\0" + (1).to_bytes(8, "big")), "not those that its head counts"),
        (_row(Space.MEMBER, b"u1\0r1"), "does not know that it landed"),
        ("object where kind = 0 and name = (select min(name) from object where kind = 0)", "is not there"),
        ("object where kind = 1 and name = (select min(name) from object where kind = 1)", ""),
    ],
)
async def test_what_is_gone_is_named(tmp_path: Path, where: str, cause: str):
    await _made(tmp_path)
    _delete(tmp_path, where)
    [told, *_] = await _found(tmp_path)
    assert told.startswith("u1: ")
    assert cause in told or "object" in told


async def test_a_session_without_its_head_is_never_taken_for_an_empty_one(tmp_path: Path):
    await _made(tmp_path)
    _delete(tmp_path, _row(Space.SESSION, b"u1"))
    async with open_store(tmp_path) as store:
        session = StoredSession(store)
        uses: list[Callable[[], object]] = [
            lambda: session.load("u1"),
            lambda: session.append("u1", [User(content="x")], run_id="r9"),
            lambda: session.rewind("u1", keep_entries=0),
        ]
        for use in uses:
            with pytest.raises(Corrupt, match="its head is gone"):
                await use()  # type: ignore[misc]
