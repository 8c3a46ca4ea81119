"""Finding, making and refusing a store directory."""

import asyncio
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoint._errors import Corrupt, Foreign, Missing, Newer, NotWritable, Usage
from savepoint._migrations import VERSION
from savepoint._place import find_place, on_network
from savepoint._sqlite import journal_mode, open_store
from savepoint._store import Space


def everything(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def entries(place: Path) -> list[Path]:
    return sorted(place.iterdir())


async def make(place: Path) -> Path:
    async with open_store(place) as store, store.commit() as tx:
        tx.write(Space.RUN, b"run", b"body")
    return place / "store.db"


def test_a_store_is_found_in_the_nearest_ancestor_that_holds_one(tmp_path: Path) -> None:
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/.savepoint").mkdir()
    (tmp_path / "a/b/.git").mkdir()
    assert find_place(tmp_path / "a/b/c") == tmp_path / "a/.savepoint"


@pytest.mark.parametrize("mark", ["pyproject.toml", ".git"])
def test_without_one_it_belongs_to_the_nearest_project(tmp_path: Path, mark: str) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "a" / mark).touch()
    assert find_place(tmp_path / "a/b") == tmp_path / "a/.savepoint"


async def test_opening_makes_a_private_directory(tmp_path: Path) -> None:
    place = tmp_path / "deep/.savepoint"
    async with open_store(place) as store:
        async with store.commit() as tx:
            tx.write(Space.RUN, b"run", b"")
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (place, *place.rglob("*"))}
    assert {name: mode for name, mode in modes.items() if mode not in (0o700, 0o600)} == {}
    assert {"store.db", "packs", "forks", "locks"} <= modes.keys()


@pytest.mark.parametrize("read_only", [True, False])
async def test_a_wrong_path_creates_nothing_for_who_reads(tmp_path: Path, *, read_only: bool) -> None:
    with pytest.raises(Missing, match="there is no store"):
        async with open_store(tmp_path / "typo/.savepoint", create=False, read_only=read_only):
            pass
    assert entries(tmp_path) == []


async def test_reading_never_creates(tmp_path: Path) -> None:
    with pytest.raises(Missing):
        async with open_store(tmp_path / "typo", create=True, read_only=True):
            pass
    assert entries(tmp_path) == []


async def test_an_empty_directory_becomes_a_store_only_for_who_may_create(tmp_path: Path) -> None:
    with pytest.raises(Missing):
        async with open_store(tmp_path, create=False):
            pass
    assert entries(tmp_path) == []
    assert (await make(tmp_path)).exists()


async def test_a_file_or_a_directory_of_something_else_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    before = everything(tmp_path)
    for place in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(Usage, match="is not a store"):
            async with open_store(place):
                pass
    assert everything(tmp_path) == before


async def test_somebody_elses_database_is_foreign(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "store.db")
    database.execute("create table theirs(x)")
    database.close()
    with pytest.raises(Foreign, match="not a store's"):
        async with open_store(tmp_path):
            pass


async def test_a_newer_store_is_refused_untouched(tmp_path: Path) -> None:
    database = await make(tmp_path / "s")
    connection = sqlite3.connect(database)
    connection.execute(f"pragma user_version={VERSION + 1}")
    connection.close()
    before = everything(tmp_path)
    with pytest.raises(Newer) as refusal:
        async with open_store(tmp_path / "s"):
            pass
    assert "upgrade" in refusal.value.next
    assert everything(tmp_path) == before


async def test_a_newer_version_that_only_the_log_knows_is_refused(tmp_path: Path) -> None:
    database = await make(tmp_path / "s")
    with closing(sqlite3.connect(database, isolation_level=None)) as newer:
        newer.execute(f"pragma user_version={VERSION + 1}")
        assert database.read_bytes()[60:64] == VERSION.to_bytes(4, "big")
        with pytest.raises(Newer):
            async with open_store(tmp_path / "s"):
                pass


@pytest.mark.parametrize("length", [0, 1, 50, 99])
async def test_a_cut_database_is_damage_and_is_left_alone(tmp_path: Path, length: int) -> None:
    database = await make(tmp_path / "s")
    database.write_bytes(database.read_bytes()[:length])
    before = everything(tmp_path)
    with pytest.raises(Corrupt, match=r"store\.db"):
        async with open_store(tmp_path / "s"):
            pass
    assert everything(tmp_path) == before


@pytest.mark.parametrize("remains", ["packs/1.pack", "forks/f", "store.db-wal"])
async def test_a_store_without_its_database_is_not_an_empty_one(tmp_path: Path, remains: str) -> None:
    (await make(tmp_path / "s")).unlink()
    (tmp_path / "s" / remains).write_bytes(b"kept")
    with pytest.raises(Corrupt, match="is gone"):
        async with open_store(tmp_path / "s"):
            pass
    assert not (tmp_path / "s/store.db").exists()


async def test_what_a_killed_creator_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "s/locks").mkdir(parents=True)
    (tmp_path / "s/store.db.new").write_bytes(b"half")
    (tmp_path / "s/store.db.new-journal").write_bytes(b"half")
    await make(tmp_path / "s")
    assert not list((tmp_path / "s").glob("store.db.new*"))


async def test_many_who_create_the_same_store_share_it(tmp_path: Path) -> None:
    async def write(number: int) -> None:
        async with open_store(tmp_path / "s") as store, store.commit() as tx:
            tx.write(Space.RUN, bytes((number,)), b"")

    await asyncio.gather(*(write(number) for number in range(8)))
    async with open_store(tmp_path / "s", create=False) as store:
        assert len(await store.scan(Space.RUN)) == 8


async def test_a_place_that_cannot_be_made_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotWritable, match="Not a directory"):
        async with open_store(tmp_path / "file" / "below"):
            pass


MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:40 / /home/my\\040files rw shared:1 - nfs4 host:/x rw
31 30 8:2 / /home/my\\040files/local rw - ext4 /dev/sdb rw
32 22 0:41 / /mnt/s rw - fuse.sshfs u@h: rw
33 22 0:42 / /mnt/usb rw - fuseblk /dev/sdc rw
34 22 0:43 / /cover rw - ext4 /dev/sdd rw
35 34 0:44 / /cover rw - cifs //h/x rw
"""


@pytest.mark.parametrize(
    ("path", "network"),
    [
        ("/home/me", False),
        ("/home/my files/a", True),
        ("/home/my files/local/a", False),
        ("/mnt/s/.savepoint", True),
        ("/mnt/usb/.savepoint", False),
        ("/cover/x", True),
    ],
)
def test_network_mounts_are_recognised(path: str, *, network: bool) -> None:
    assert on_network(Path(path), MOUNTS) is network


@given(wal=st.none() | st.booleans(), network=st.booleans())
def test_a_log_is_never_used_on_a_network(*, wal: bool | None, network: bool) -> None:
    if wal and network:
        with pytest.raises(Usage, match="network"):
            journal_mode(Path("x"), wal=wal, network=network)
    else:
        chosen = journal_mode(Path("x"), wal=wal, network=network)
        assert chosen is (not network if wal is None else wal)
