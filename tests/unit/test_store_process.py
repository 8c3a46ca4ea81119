"""Several processes on one store, processes that are killed, and disks that refuse: with real ones."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from savepoint._digest import Domain, seal
from savepoint._errors import NotWritable
from savepoint._sqlite import open_store
from savepoint._store import Space

CLAIM = """
import asyncio, sys
from savepoint._errors import Stale
from savepoint._sqlite import open_store
from savepoint._store import Space

async def main(place, who):
    async with open_store(place) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        for round in range(20):
            try:
                async with store.commit() as tx:
                    tx.expect(Space.LEASE, b"run-%d" % round, None)
                    tx.write(Space.LEASE, b"run-%d" % round, who.encode())
            except Stale:
                continue
            print(round, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""

WRITER = """
import asyncio, sys
from savepoint._digest import Domain, seal
from savepoint._sqlite import open_store
from savepoint._store import Space

async def main(place, start):
    async with open_store(place, durability="process") as store:
        number = int(start)
        while True:
            body = number.to_bytes(4, "big") * 700
            async with store.commit(sync=number % 5 == 0) as tx:
                tx.put(seal(Domain.OBJECT, body), body)
                tx.write(Space.EVENT, b"lineage" + number.to_bytes(8, "big"), seal(Domain.OBJECT, body))
                tx.write(Space.HEAD, b"lineage", number.to_bytes(8, "big"))
            print(number, flush=True)
            number += 1

asyncio.run(main(*sys.argv[1:]))
"""

FORKED = """
import asyncio, os, sys
from savepoint._errors import Usage
from savepoint._sqlite import open_store
from savepoint._store import Space

async def main(place):
    async with open_store(place) as store:
        child = os.fork()
        if child == 0:
            try:
                await store.read(Space.RUN, b"run")
            except Usage as refusal:
                os._exit(0 if "forked" in str(refusal) else 2)
            os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        async with store.commit() as tx:
            tx.write(Space.RUN, b"run", b"")

asyncio.run(main(*sys.argv[1:]))
"""


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error::ResourceWarning", "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_of_eight_processes_exactly_one_wins_each_compare_and_set(tmp_path: Path) -> None:
    claimants = [start(CLAIM, str(tmp_path / "s"), str(who)) for who in range(8)]
    for claimant in claimants:
        assert claimant.stdout is not None
        assert claimant.stdout.readline() == "ready\n"
    for claimant in claimants:
        assert claimant.stdin is not None
        claimant.stdin.write("go\n")
        claimant.stdin.flush()
    won = [(who, int(line)) for who, one in enumerate(claimants) for line in one.communicate()[0].split()]
    assert [claimant.returncode for claimant in claimants] == [0] * 8
    assert sorted(number for _, number in won) == list(range(20))

    async def owners() -> dict[bytes, bytes]:
        async with open_store(tmp_path / "s") as store:
            return {row.key: row.body for row in await store.scan(Space.LEASE)}

    assert asyncio.run(owners()) == {b"run-%d" % number: str(who).encode() for who, number in won}


async def test_a_kill_loses_no_acknowledged_commit_and_shows_no_half_of_one(tmp_path: Path) -> None:
    newest = -1
    for victims in range(5):
        writer = start(WRITER, str(tmp_path / "s"), str(newest + 1))
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(3 + 23 * victims)]
        writer.send_signal(signal.SIGKILL)
        acknowledged = int([*said, *writer.communicate()[0].split()][-1])
        async with open_store(tmp_path / "s", create=False) as store:
            head = await store.read(Space.HEAD, b"lineage")
            events = await store.scan(Space.EVENT, b"lineage")
            bodies = await store.objects([event.body for event in events])
            assert head is not None
            newest = int.from_bytes(head.body, "big")
            assert newest >= acknowledged
            assert [int.from_bytes(event.key[7:], "big") for event in events] == list(range(newest + 1))
            assert [int.from_bytes(body[:4], "big") for body in bodies] == list(range(newest + 1))
            assert not (await store.verify()).damage


def test_a_forked_child_is_refused_and_its_parent_goes_on(tmp_path: Path) -> None:
    parent = start(FORKED, str(tmp_path / "s"))
    assert parent.communicate()[0] == "0\n"
    assert parent.returncode == 0


async def test_a_store_opened_for_reading_writes_nothing(tmp_path: Path) -> None:
    async with open_store(tmp_path / "s") as store, store.commit() as tx:
        tx.write(Space.RUN, b"run", b"body")
    before = (tmp_path / "s/store.db").read_bytes()
    async with open_store(tmp_path / "s", read_only=True) as store:
        row = await store.read(Space.RUN, b"run")
        assert row is not None
        with pytest.raises(NotWritable, match="reading only"):
            async with store.commit() as tx:
                tx.write(Space.RUN, b"run", b"other")
    assert (tmp_path / "s/store.db").read_bytes() == before


async def test_a_reader_sees_what_a_living_writer_committed(tmp_path: Path) -> None:
    async with open_store(tmp_path / "s") as writer, open_store(tmp_path / "s", read_only=True) as reader:
        async with writer.commit() as tx:
            tx.write(Space.RUN, b"run", b"body")
        assert await reader.read(Space.RUN, b"run") == await writer.read(Space.RUN, b"run") is not None


@contextmanager
def mounted(place: Path, options: str) -> Generator[None]:
    place.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place]
    done = subprocess.run(mount, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


def remount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", place], check=True)


async def test_a_full_disk_is_not_writable_and_the_store_stays_usable(tmp_path: Path) -> None:
    small = tmp_path / "small"
    with mounted(small, "size=600k"):
        async with open_store(small / "s") as store:
            written: list[bytes] = []

            async def write_on() -> None:
                for number in range(1000):
                    body = number.to_bytes(2, "big") * 4000
                    async with store.commit() as tx:
                        tx.put(seal(Domain.OBJECT, body), body)
                        tx.write(Space.RUN, b"newest", body[:2])
                    written.append(body)

            with pytest.raises(NotWritable) as refusal:
                await write_on()
            assert "full" in str(refusal.value)
            assert await store.objects([seal(Domain.OBJECT, body) for body in written]) == written
            row = await store.read(Space.RUN, b"newest")
            assert row is not None
            assert row.body == written[-1][:2]
            remount(small, "size=2m")
            async with store.commit() as tx:
                tx.write(Space.RUN, b"newest", b"after")
            assert not (await store.verify()).damage


async def test_a_read_only_file_system_is_read(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, "size=4m"):
        async with open_store(disk / "s") as store, store.commit() as tx:
            tx.write(Space.RUN, b"run", b"body")
        remount(disk, "ro")
        async with open_store(disk / "s") as store:
            row = await store.read(Space.RUN, b"run")
            assert row is not None
            assert row.body == b"body"
            with pytest.raises(NotWritable):
                async with store.commit() as tx:
                    tx.write(Space.RUN, b"run", b"other")
        with pytest.raises(NotWritable, match="Read-only"):
            async with open_store(disk / "new"):
                pass


AS_NOBODY = """
import asyncio, os, sys
from savepoint._errors import NotWritable
from savepoint._sqlite import open_store

async def main(place):
    async with open_store(place):
        os.setgid(65534)  # after everything that the interpreter may still want to read
        os.setuid(65534)
        try:
            async with open_store(place):
                print("opened")
        except NotWritable as refusal:
            print(refusal)

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, to whom file modes mean something")
def test_a_store_that_may_not_be_looked_at_is_refused_by_name(tmp_path: Path) -> None:
    other = start(AS_NOBODY, str(tmp_path / "s"))
    said = other.communicate()[0]
    assert str(tmp_path / "s") in said
    assert "Permission denied" in said
