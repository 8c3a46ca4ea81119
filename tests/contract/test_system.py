"""Every kind of system against the one contract."""

from pathlib import Path

import pytest

from savepoint._contents import MemoryContents
from savepoint._contract_system import SystemContract
from savepoint._keyvalue import KeyValue
from savepoint._packs import Packs
from savepoint._system import Contents
from savepoint._workspace import Workspace


class TestKeyValue(SystemContract):
    async def make(self, place):
        return KeyValue()

    async def write(self, system, key, value):
        assert isinstance(system, KeyValue)
        if value is None:
            del system[key]
        else:
            system[key] = value

    async def read(self, system):
        assert isinstance(system, KeyValue)
        return dict(system.items())


class TestWorkspace(SystemContract):
    async def make(self, place):
        place.mkdir()
        return Workspace(place)

    async def write(self, system, key, value):
        assert isinstance(system, Workspace)
        path = system.path / key
        if value is None:
            path.unlink()
        else:
            path.write_text(value)

    async def read(self, system):
        assert isinstance(system, Workspace)
        return {path.name: path.read_text() for path in system.path.iterdir()}


class TestWorkspaceOnPacks(TestWorkspace):
    @pytest.fixture(autouse=True)
    def _packs_in(self, tmp_path: Path):
        self._packs = tmp_path / "packs"

    def contents(self) -> Contents:
        return Packs(self._packs)

    async def test_what_was_flushed_is_there_for_the_next_process(self, tmp_path: Path):
        host = await self.filled(tmp_path / "host", a="1", b="2")
        packs = Packs(self._packs)
        snapshot = await host.snapshot(packs)
        await packs.flush()
        fork = await host.fork(self.contents(), at=snapshot, place=tmp_path / "fork")
        assert await self.read(fork) == {"a": "1", "b": "2"}


class PlainContents:
    """The protocol and nothing beyond it."""

    def __init__(self):
        self._inner = MemoryContents()

    async def put(self, data: bytes) -> bytes:
        return await self._inner.put(data)

    async def get(self, digest: bytes) -> bytes:
        return await self._inner.get(digest)

    async def has(self, digest: bytes) -> bool:
        return await self._inner.has(digest)

    async def flush(self) -> None:
        await self._inner.flush()


class TestWorkspaceOnPlainContents(TestWorkspace):
    def contents(self) -> Contents:
        return PlainContents()
