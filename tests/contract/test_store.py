"""The two stores of this package keep the store contract."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from savepoint._contract_store import StoreContract
from savepoint._memory import MemoryStore
from savepoint._sqlite import open_store
from savepoint._store import Store


class TestMemoryStore(StoreContract):
    @asynccontextmanager
    async def open_at(self, place: Path) -> AsyncGenerator[Store]:
        yield MemoryStore()


class TestSqliteStore(StoreContract):
    durable = True

    def open_at(self, place: Path) -> AbstractAsyncContextManager[Store]:
        return open_store(place)


class TestSqliteStoreForKillsOnly(StoreContract):
    durable = True

    def open_at(self, place: Path) -> AbstractAsyncContextManager[Store]:
        return open_store(place, durability="process")


class TestSqliteStoreWithARollbackJournal(StoreContract):
    durable = True

    def open_at(self, place: Path) -> AbstractAsyncContextManager[Store]:
        return open_store(place, wal=False)
