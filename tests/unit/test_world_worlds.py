"""World: cells, quietness, all systems together."""

import asyncio
from pathlib import Path

import pytest

from savepoint._cell import Cell
from savepoint._conflict import MergeConflict
from savepoint._contents import MemoryContents
from savepoint._errors import Corrupt, Foreign, Missing, Newer, NotPortable, Usage
from savepoint._keyvalue import KeyValue
from savepoint._workspace import Workspace
from savepoint._world import Busy, SnapshotId, World

COUNT = Cell("count", int, default=0)
NOTES = Cell("notes", list[str], default=[])


def test_a_cell_is_its_default_until_it_is_set_and_each_world_has_its_own():
    one, other = World(), World()
    one[NOTES].append("one")
    assert one[NOTES] == ["one"]
    assert other[NOTES] == []
    one[COUNT] = 3
    assert (one[COUNT], other[COUNT]) == (3, 0)


def test_a_value_is_copied_on_entry():
    world, mine = World(), ["a"]
    world[NOTES] = mine
    mine.append("b")
    assert world[NOTES] == ["a"]


@pytest.mark.parametrize("value", ["3", True, 3.0, None])
def test_a_value_of_another_type_is_refused(value):
    with pytest.raises(Usage, match="cell 'count' holds int, not "):
        World()[COUNT] = value


def test_what_is_not_portable_is_refused_with_its_path():
    with pytest.raises(NotPortable, match="notes"):
        World()[NOTES] = [object()]  # pyright: ignore[reportArgumentType]  the point


def test_two_cells_of_one_name_must_agree():
    world = World(cells=[COUNT])
    with pytest.raises(Usage, match="'count'"):
        world[Cell("count", str, default="")]
    assert world[Cell("count", int, default=7)] == 7


def test_optional_and_union_cells_take_each_of_their_types():
    cell = Cell[int | None]("maybe", int | None, default=None)
    world = World()
    world[cell] = 4
    world[cell] = None
    with pytest.raises(Usage):
        world[cell] = "x"  # pyright: ignore[reportArgumentType]  the point


async def test_a_world_without_systems_costs_nothing_and_has_an_empty_snapshot():
    snapshot = World().snapshot(MemoryContents())
    with pytest.raises(StopIteration) as done:  # finished without a single suspension
        snapshot.send(None)
    assert done.value.value == {}


async def test_snapshot_fork_diff_and_merge_of_all_systems(tmp_path):
    contents = MemoryContents()
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "f").write_text("1")
    world = World({"kv": KeyValue({"k": 1}), "../files": Workspace(tmp_path / "host")})
    world[NOTES] = ["host"]
    old = await world.snapshot(contents)
    assert list(old) == ["../files", "kv"]
    assert {(s.kind, s.format) for s in old.values()} == {("workspace", 1), ("keyvalue", 1)}
    fork = await world.fork(contents, at=old, place=tmp_path / "fork")
    fork[NOTES].append("fork")
    kv, files = fork.system("kv"), fork.system("../files")
    assert isinstance(kv, KeyValue)
    assert isinstance(files, Workspace)
    assert files.path.is_relative_to(tmp_path / "fork")
    kv["k"] = 2
    (files.path / "g").write_text("2")
    new = await fork.snapshot(contents)
    changes = await world.diff(contents, old, new)
    assert {name: [c.path for c in found] for name, found in changes.items()} == {"kv": ["k"], "../files": ["g"]}
    assert world[NOTES] == ["host"]
    assert not (tmp_path / "host" / "g").exists()
    assert await world.apply(contents, old, new) == changes
    assert await world.snapshot(contents) == new
    await fork.discard()
    await fork.discard()
    assert not any((tmp_path / "fork").iterdir())
    with pytest.raises(Usage):
        await world.discard()


async def test_a_conflict_in_one_system_writes_in_none(tmp_path):
    contents = MemoryContents()
    kv, other = KeyValue({"k": 1}), KeyValue({"x": 1})
    world = World({"a": kv, "b": other})
    fork = await world.fork(contents, place=tmp_path / "f")
    old = await world.snapshot(contents)
    for name in ("a", "b"):
        system = fork.system(name)
        assert isinstance(system, KeyValue)
        system["k"] = 2
        system["x"] = 2
    new = await fork.snapshot(contents)
    other["x"] = 3
    with pytest.raises(MergeConflict) as conflict:
        await world.apply(contents, old, new)
    assert conflict.value.paths == ("b: x",)
    assert dict(kv.items()) == {"k": 1}


async def test_a_snapshot_waits_for_what_is_in_flight_and_names_it_if_it_takes_too_long():
    contents, kv = MemoryContents(), KeyValue()
    world = World({"kv": kv})
    async with world.using("shell/run"):
        with pytest.raises(Busy, match="shell/run") as busy:
            await world.snapshot(contents, quiet_timeout_s=0)
        assert busy.value.operations == ("shell/run",)
    entered, leave = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        async with world.using("shell/run"):
            entered.set()
            await leave.wait()
            kv["done"] = True

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        await entered.wait()
        taking = group.create_task(world.snapshot(contents))
        leave.set()
    assert taking.result() == await world.snapshot(contents)


class Slow(KeyValue):
    """Snapshots when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def snapshot(self, contents):
        self.begun.set()
        await self.go.wait()
        return await super().snapshot(contents)


async def test_nothing_starts_while_a_snapshot_is_taken():
    slow = Slow()
    order: list[str] = []
    world = World({"kv": slow})  # pyright: ignore[reportArgumentType]  its forks are plain maps

    async def work() -> None:
        async with world.using("write"):
            order.append("write")

    async with asyncio.TaskGroup() as group:
        taking = group.create_task(world.snapshot(MemoryContents()))
        taking.add_done_callback(lambda _: order.append("snapshot"))
        await slow.begun.wait()
        group.create_task(work())
        with pytest.raises(Busy, match="a snapshot"):
            await world.snapshot(MemoryContents(), quiet_timeout_s=0)
        assert order == []
        slow.go.set()
    assert "write" in order


async def test_a_failure_in_one_system_discards_the_forks_made_before(tmp_path):
    contents = MemoryContents()
    (tmp_path / "host").mkdir()
    world = World({"a": Workspace(tmp_path / "host"), "b": KeyValue()})
    old = await world.snapshot(contents)
    bad = {**old, "b": SnapshotId(kind="keyvalue", format=1, id=old["a"].id)}
    with pytest.raises(Corrupt):
        await world.fork(contents, at=bad, place=tmp_path / "fork")
    assert list((tmp_path / "fork").iterdir()) == []


async def test_ids_of_another_world_are_refused_before_anything_is_made(tmp_path: Path):
    contents = MemoryContents()
    world = World({"kv": KeyValue()})
    ids = await world.snapshot(contents)
    kv = ids["kv"]
    for at, error in (
        ({}, Usage),
        ({**ids, "more": kv}, Usage),
        ({"kv": SnapshotId(kind="workspace", format=1, id=kv.id)}, Foreign),
        ({"kv": SnapshotId(kind="keyvalue", format=2, id=kv.id)}, Newer),
        ({"kv": SnapshotId(kind="keyvalue", format=1, id=bytes(32))}, Missing),
    ):
        with pytest.raises(error):
            await world.fork(contents, at=at, place=tmp_path / "fork")
    with pytest.raises(Missing, match="'nope'"):
        world.system("nope")
    assert not (tmp_path / "fork").exists()


async def test_key_values_never_share_objects(tmp_path):
    kv = KeyValue({"list": [1]})
    kv["list"].append(2)
    assert kv["list"] == [1]
    fork = await kv.fork(MemoryContents(), at=None, place=tmp_path)
    kv["list"] = [9]
    assert fork["list"] == [1]
    with pytest.raises(KeyError):
        del fork["nope"]
    assert fork.get("nope", 5) == 5
    assert list(fork) == ["list"]
    assert len(fork) == 1


async def test_merges_at_once_are_made_one_after_the_other(tmp_path: Path):
    """What a merge checked must still hold when it writes: of those that changed one path, the first one counts."""
    (tmp_path / "host").mkdir()
    contents, host = MemoryContents(), World({"files": Workspace(tmp_path / "host")})
    before = await host.snapshot(contents)
    after = []
    for name in ("one", "two", "three"):
        fork = await host.fork(contents, at=before, place=tmp_path / name)
        files = fork.system("files")
        assert isinstance(files, Workspace)
        (files.path / "same").write_text(name)
        (files.path / f"of {name}").write_text(name)
        after.append(await fork.snapshot(contents))
        await fork.discard()
    found = await asyncio.gather(*(host.apply(contents, before, each) for each in after), return_exceptions=True)
    assert [type(each) for each in found].count(MergeConflict) == 2
    [winner] = [name for name, each in zip(("one", "two", "three"), found, strict=True) if isinstance(each, dict)]
    left = {each.name: each.read_text() for each in (tmp_path / "host").iterdir()}
    assert left == {"same": winner, f"of {winner}": winner}
    assert (await host.snapshot(contents)).keys() == {"files"}, "and it is quiet again"
