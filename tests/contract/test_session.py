"""The sessions of this package keep the session contract, and so can one that an application writes."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path

from agent import InMemorySession, Rewindable, Segment, Session, StoredSession
from agent.testing import SessionContract
from savepoint import MemoryStore, open_store


class TestStoredSessionOnSqlite(SessionContract):
    @asynccontextmanager
    async def open_at(self, place: Path) -> AsyncGenerator[Session]:
        async with open_store(place, durability="process") as store:
            yield StoredSession(store)


class TestStoredSessionInMemory(SessionContract):
    @asynccontextmanager
    async def open_at(self, place: Path) -> AsyncGenerator[Session]:
        yield StoredSession(MemoryStore())


class TestInMemorySession(SessionContract):
    @asynccontextmanager
    async def open_at(self, place: Path) -> AsyncGenerator[Session]:
        yield InMemorySession()


class ListSession:
    """The smallest session of an application's own: lists, and no rewind."""

    def __init__(self) -> None:
        self._held: dict[str, list[Segment]] = {}

    async def segments(self, session_id: str) -> Sequence[Segment]:
        return deepcopy(self._held.get(session_id, []))

    async def load(self, session_id: str) -> Sequence[object]:
        return [entry for segment in await self.segments(session_id) for entry in segment.entries]

    async def append(
        self,
        session_id: str,
        entries: Sequence[object],
        *,
        run_id: str | None = None,
        meta: Mapping[str, object] | None = None,
    ) -> str:
        held = self._held.get(session_id, [])
        for segment in held:
            if run_id is not None and segment.run_id == run_id:
                return "" if list(segment.entries) == list(entries) else f"{run_id} is there already, and differs"
        if entries:
            added = Segment(run_id=run_id, entries=tuple(entries), meta=dict(meta or {}))
            self._held[session_id] = [*held, added]
        return ""

    async def clear(self, session_id: str) -> None:
        self._held.pop(session_id, None)

    async def ids(self) -> Sequence[str]:
        return sorted(self._held)


class TestListSession(SessionContract):
    @asynccontextmanager
    async def open_at(self, place: Path) -> AsyncGenerator[Session]:
        yield ListSession()


def test_what_can_be_rewound_is_known_by_its_method() -> None:
    assert isinstance(InMemorySession(), Rewindable)
    assert not isinstance(ListSession(), Rewindable)
