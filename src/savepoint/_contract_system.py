"""What every `System` must hold, as tests: subclass `SystemContract`, say how to make, write and read, and run pytest."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from ._conflict import MergeConflict
from ._contents import MemoryContents
from ._errors import Missing, Usage
from ._system import Change, ChangeKind, Contents, System


class SystemContract(ABC):
    """Keys are short text; a key's value is text, and `None` removes it. `tmp_path` is pytest's own."""

    @abstractmethod
    async def make(self, place: Path) -> System:
        """An empty host system, kept in the directory `place` if it needs one (it does not exist yet)."""

    @abstractmethod
    async def write(self, system: System, key: str, value: str | None) -> None: ...

    @abstractmethod
    async def read(self, system: System) -> Mapping[str, str]: ...

    def contents(self) -> Contents:
        return MemoryContents()

    async def filled(self, place: Path, **values: str) -> System:
        system = await self.make(place)
        for key, value in values.items():
            await self.write(system, key, value)
        return system

    async def test_equal_content_has_an_equal_id_whatever_way_it_came_to_be(self, tmp_path: Path) -> None:
        contents = self.contents()
        one = await self.filled(tmp_path / "one", a="1", b="2")
        other = await self.filled(tmp_path / "other", b="?", c="3", a="1")
        await self.write(other, "c", None)
        await self.write(other, "b", "2")
        assert await one.snapshot(contents) == await other.snapshot(self.contents())

    async def test_every_change_changes_the_id_and_undoing_it_brings_it_back(self, tmp_path: Path) -> None:
        contents = self.contents()
        system = await self.filled(tmp_path / "host", a="1", b="2")
        first = await system.snapshot(contents)
        seen = {first}
        for key, value, back in (("a", "2", "1"), ("a", None, "1"), ("c", "1", None), ("b", "", "2")):
            await self.write(system, key, value)
            seen.add(await system.snapshot(contents))
            await self.write(system, key, back)
            assert await system.snapshot(contents) == first
        assert len(seen) == 5
        assert all(len(snapshot) == 32 for snapshot in seen)

    async def test_a_fork_is_what_was_captured_whatever_came_later(self, tmp_path: Path) -> None:
        contents = self.contents()
        host = await self.filled(tmp_path / "host", a="1", b="2")
        first = await host.snapshot(contents)
        await self.write(host, "a", "changed")
        await self.write(host, "b", None)
        await self.write(host, "late", "x")
        second = await host.snapshot(contents)
        for index, (at, wanted) in enumerate(
            ((first, {"a": "1", "b": "2"}), (second, {"a": "changed", "late": "x"}), (first, {"a": "1", "b": "2"}))
        ):
            fork = await host.fork(contents, at=at, place=tmp_path / str(index))
            assert await self.read(fork) == wanted
            assert await fork.snapshot(contents) == at

    async def test_nobody_sees_the_writes_of_a_fork(self, tmp_path: Path) -> None:
        contents = self.contents()
        host = await self.filled(tmp_path / "host", a="1")
        before = await host.snapshot(contents)
        one = await host.fork(contents, at=None, place=tmp_path / "one")
        other = await host.fork(contents, at=before, place=tmp_path / "other")
        inner = await one.fork(contents, at=None, place=tmp_path / "inner")
        await self.write(one, "a", "one")
        await self.write(other, "b", "other")
        await self.write(inner, "a", None)
        assert await self.read(host) == {"a": "1"}
        assert await self.read(one) == {"a": "one"}
        assert await self.read(other) == {"a": "1", "b": "other"}
        assert await self.read(inner) == {}
        await self.write(host, "a", "host")
        assert await self.read(one) == {"a": "one"}
        assert await host.snapshot(contents) != before

    async def test_a_diff_lists_each_change_once(self, tmp_path: Path) -> None:
        contents = self.contents()
        host = await self.filled(tmp_path / "host", same="0", a="1", b="2")
        old = await host.snapshot(contents)
        await self.write(host, "a", "changed")
        await self.write(host, "b", None)
        await self.write(host, "c", "3")
        new = await host.snapshot(contents)
        assert sorted(await host.diff(contents, old, new), key=lambda change: change.path) == [
            Change(path="a", kind=ChangeKind.CHANGED),
            Change(path="b", kind=ChangeKind.REMOVED),
            Change(path="c", kind=ChangeKind.ADDED),
        ]
        assert list(await host.diff(contents, old, old)) == []

    async def test_a_merge_brings_the_changes_and_keeps_what_changed_elsewhere(self, tmp_path: Path) -> None:
        contents = self.contents()
        host = await self.filled(tmp_path / "host", a="1", b="2", mine="0")
        old = await host.snapshot(contents)
        fork = await host.fork(contents, at=old, place=tmp_path / "fork")
        await self.write(fork, "a", "fork")
        await self.write(fork, "b", None)
        await self.write(fork, "c", "3")
        new = await fork.snapshot(contents)
        await self.write(host, "mine", "host")
        for _ in range(2):  # repeating a merge finds everything done
            changes = await host.apply(contents, old, new)
            assert {change.path for change in changes} == {"a", "b", "c"}
            assert await self.read(host) == {"a": "fork", "c": "3", "mine": "host"}

    async def test_a_conflict_names_every_path_and_writes_nothing(self, tmp_path: Path) -> None:
        contents = self.contents()
        host = await self.filled(tmp_path / "host", a="1", b="2", c="3", d="4")
        old = await host.snapshot(contents)
        fork = await host.fork(contents, at=old, place=tmp_path / "fork")
        for key, value in (("a", "fork"), ("b", None), ("c", "fork"), ("d", "both"), ("new", "fork")):
            await self.write(fork, key, value)
        new = await fork.snapshot(contents)
        for key, value in (("a", "host"), ("b", "host"), ("d", "both"), ("new", "host")):
            await self.write(host, key, value)
        before = await self.read(host)
        try:
            await host.apply(contents, old, new)
        except MergeConflict as conflict:
            assert conflict.paths == ("a", "b", "new")
        else:
            raise AssertionError("a merge over changes of both sides went through")
        assert await self.read(host) == before

    async def test_a_fork_is_discarded_once_and_a_host_never(self, tmp_path: Path) -> None:
        contents = self.contents()
        host = await self.filled(tmp_path / "host", a="1")
        fork = await host.fork(contents, at=None, place=tmp_path / "fork")
        await fork.discard()
        await fork.discard()
        assert not (tmp_path / "fork").exists()
        try:
            await host.discard()
        except Usage:
            assert await self.read(host) == {"a": "1"}
        else:
            raise AssertionError("a host was discarded")

    async def test_an_unknown_snapshot_is_missing(self, tmp_path: Path) -> None:
        host = await self.filled(tmp_path / "host", a="1")
        try:
            await host.fork(self.contents(), at=bytes(32), place=tmp_path / "fork")
        except Missing:
            assert not (tmp_path / "fork").exists()
        else:
            raise AssertionError("a fork was made of nothing")
