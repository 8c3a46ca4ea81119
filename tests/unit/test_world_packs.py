"""Packs: what is believed of a file, and what is said where it is damaged."""

# ruff: noqa: ASYNC221  processes are waited for with nothing else going on

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from savepoint._errors import Corrupt, Missing, NotWritable
from savepoint._packfile import seal_at
from savepoint._packs import Packs
from savepoint._verify import _packs as verified

SEAL = sum(map(len, seal_at(0)))


def files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


async def filled(directory: Path, *bodies: bytes) -> tuple[Packs, list[bytes]]:
    packs = Packs(directory)
    digests = [await packs.put(body) for body in bodies]
    await packs.flush()
    return packs, digests


async def test_nothing_is_made_before_the_first_write(tmp_path):
    packs = Packs(tmp_path / "p")
    with pytest.raises(Missing):
        await packs.get(bytes(32))
    assert not await packs.has(bytes(32))
    await packs.flush()
    assert not (tmp_path / "p").exists()


async def test_what_is_held_can_be_read_before_it_is_flushed(tmp_path):
    packs = Packs(tmp_path / "p")
    digest = await packs.put(b"hello")
    assert await packs.has(digest)
    assert await packs.get(digest) == b"hello"


async def test_equal_bytes_are_written_once_by_this_process_and_the_next(tmp_path):
    packs, (one,) = await filled(tmp_path / "p", b"x" * 1000)
    size = sum(file.stat().st_size for file in files(tmp_path / "p"))
    assert await packs.put(b"x" * 1000) == one
    await packs.flush()
    _, (again,) = await filled(tmp_path / "p", b"x" * 1000)
    assert again == one
    assert sum(file.stat().st_size for file in files(tmp_path / "p")) == size < 1100 + SEAL


async def test_two_writers_have_a_file_each_and_read_each_other(tmp_path):
    one, (a,) = await filled(tmp_path / "p", b"a")
    other, (b,) = await filled(tmp_path / "p", b"b")
    assert len(files(tmp_path / "p")) == 2
    assert await one.get_many([b, a, b]) == [b"b", b"a", b"b"]
    assert await other.get_many([a, b]) == [b"a", b"b"]


async def test_the_directory_and_its_files_are_private(tmp_path):
    await filled(tmp_path / "p", b"a")
    assert (tmp_path / "p").stat().st_mode & 0o777 == 0o700
    assert [file.stat().st_mode & 0o777 for file in files(tmp_path / "p")] == [0o600]


async def test_every_flipped_byte_leaves_the_content_equal_or_is_named(tmp_path):
    _, digests = await filled(tmp_path / "p", b"first", b"", b"third")
    (file,) = files(tmp_path / "p")
    whole = file.read_bytes()
    for position in range(len(whole)):
        file.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        found = 0
        for digest, body in zip(digests, (b"first", b"", b"third"), strict=True):
            try:
                assert await Packs(tmp_path / "p").get(digest) == body
                found += 1
            except Corrupt as error:
                assert digest.hex() in str(error)  # noqa: PT017
                assert str(file) in str(error)  # noqa: PT017
        assert found < 3 or position >= len(whole) - SEAL


async def test_every_cut_leaves_what_lies_before_it_and_is_never_overwritten(tmp_path):
    bodies = (b"first", b"second", b"third")
    _, digests = await filled(tmp_path / "p", *bodies)
    (file,) = files(tmp_path / "p")
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        readable = 0
        for digest, body in zip(digests, bodies, strict=True):
            try:
                assert await Packs(tmp_path / "p").get(digest) == body
                readable += 1
            except (Corrupt, Missing) as error:
                assert digest.hex() in str(error)  # noqa: PT017
        assert readable < 3 or length >= len(whole) - SEAL
        packs, again = await filled(tmp_path / "p", *bodies)
        assert again == digests
        assert await packs.get_many(digests) == list(bodies)
        assert file.read_bytes() == whole[:length]
        for other in files(tmp_path / "p"):
            if other != file:
                other.unlink()


async def test_what_a_power_cut_leaves_of_an_unsynced_tail_is_neither_believed_nor_damage(tmp_path):
    """The file grew, and any part of what was written behind the last sync is zeros."""
    packs, (first,) = await filled(tmp_path / "p", b"first")
    (file,) = files(tmp_path / "p")
    synced = file.stat().st_size
    bodies = (b"second" * 50, b"third")
    digests = [await packs.put(body) for body in bodies]
    await packs._drain()
    whole = file.read_bytes()
    for start in range(synced, len(whole), 7):
        for end in {len(whole), min(start + 40, len(whole))}:
            file.write_bytes(whole[:start] + bytes(end - start) + whole[end:])
            assert await Packs(tmp_path / "p").get(first) == b"first"
            assert verified(tmp_path / "p") == []
            again = Packs(tmp_path / "p")
            assert [await again.put(body) for body in bodies] == digests
            await again.flush()
            assert await Packs(tmp_path / "p").get_many(digests) == list(bodies)
            for other in files(tmp_path / "p"):
                if other != file:
                    other.unlink()


async def test_a_bad_tail_is_looked_at_once(tmp_path, monkeypatch):
    _, (first,) = await filled(tmp_path / "p", b"first")
    (file,) = files(tmp_path / "p")
    file.write_bytes(file.read_bytes() + bytes(200))
    looks: list[object] = []
    monkeypatch.setattr("savepoint._packfile._last_seal", lambda file: looks.append(file) or 0)
    packs = Packs(tmp_path / "p")
    assert await packs.get(first) == b"first"
    for _ in range(3):
        assert not await packs.has(bytes(32))
    assert len(looks) == 1


async def test_behind_a_seal_everything_bad_is_damage(tmp_path):
    _, digests = await filled(tmp_path / "p", b"first", b"second" * 50, b"third")
    (file,) = files(tmp_path / "p")
    whole = file.read_bytes()
    for start in range(0, len(whole) - SEAL - 8, 11):
        if any(whole[start : start + 8]):
            file.write_bytes(whole[:start] + bytes(8) + whole[start + 8 :])
            assert verified(tmp_path / "p")
    assert len(digests) == 3


async def test_a_seal_that_is_bad_itself_vouches_for_nothing(tmp_path):
    _, (first,) = await filled(tmp_path / "p", b"first")
    (file,) = files(tmp_path / "p")
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")  # it would say that more is durable than there is
    assert await Packs(tmp_path / "p").get(first) == b"first"
    assert verified(tmp_path / "p") == []


@pytest.mark.parametrize("failing", ["pack", "directory"])
async def test_a_failed_sync_is_never_believed_by_the_next_one(tmp_path, monkeypatch, failing):
    """The kernel may have dropped the bytes, and says so once: they are written again, into a new file."""
    packs, (kept,) = await filled(tmp_path / "p", b"kept")
    (first,) = files(tmp_path / "p")
    synced: list[Path] = []

    def fsync(path: Path, flags: int, *, fails: list[bool] = [True]) -> None:  # noqa: B006  once
        if fails and (path.is_dir() == (failing == "directory")):
            fails.clear()
            raise OSError(5, "Input/output error")
        synced.append(path)

    monkeypatch.setattr("savepoint._packs._fsync", fsync)
    lost = await packs.put(b"lost" * 100)
    await packs.note(kept, b"remark")
    with pytest.raises(NotWritable):
        await packs.flush()
    assert await packs.get(lost) == b"lost" * 100
    await packs.flush()
    (second,) = [file for file in files(tmp_path / "p") if file != first]
    assert synced[-2:] == [second, tmp_path / "p"]
    first.write_bytes(first.read_bytes().replace(b"lost", b"\0\0\0\0"))
    assert await Packs(tmp_path / "p").get_many([kept, lost]) == [b"kept", b"lost" * 100]


async def test_the_last_note_counts_and_survives(tmp_path):
    packs = Packs(tmp_path / "p")
    subject = await packs.put(b"subject")
    assert await packs.noted(subject) is None
    for remark in (b"one", b"two", b"one"):
        await packs.note(subject, remark)
        assert await packs.noted(subject) == remark
        await packs.flush()
        assert await packs.noted(subject) == remark
        assert await Packs(tmp_path / "p").noted(subject) == remark
    size = sum(file.stat().st_size for file in files(tmp_path / "p"))
    await packs.note(subject, b"one")
    await packs.flush()
    assert sum(file.stat().st_size for file in files(tmp_path / "p")) == size


async def test_a_note_is_never_taken_for_content_of_the_same_bytes(tmp_path):
    packs = Packs(tmp_path / "p")
    subject = await packs.put(b"subject")
    await packs.note(subject, b"remark")
    digest = await packs.put(subject + b"remark")
    await packs.flush()
    assert await Packs(tmp_path / "p").get(digest) == subject + b"remark"


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from savepoint._packs import Packs

async def main():
    packs = Packs(Path(sys.argv[1]))
    print((await packs.put(b"kept")).hex(), flush=True)
    await packs.flush()
    await packs.put(b"held only")
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_a_killed_writers_pack_stays_readable(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "p"], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    packs = Packs(tmp_path / "p")
    assert await packs.get(bytes.fromhex(done.stdout.strip())) == b"kept"
    await packs.put(b"more")
    await packs.flush()
    assert len(files(tmp_path / "p")) == 2


async def test_a_full_disk_is_named_and_no_half_record_is_believed(tmp_path):
    packs, (first,) = await filled(tmp_path / "p", b"first")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
    try:
        small, large = await packs.put(b"small"), await packs.put(os.urandom(1000))
        with pytest.raises(NotWritable):
            await packs.flush()
        assert await packs.get(first) == b"first"
        with pytest.raises((Corrupt, Missing)):
            await Packs(tmp_path / "p").get(large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    await packs.flush()  # what was held is tried again, in a new file
    fresh = Packs(tmp_path / "p")
    assert await fresh.get_many([first, small]) == [b"first", b"small"]
    assert len(await fresh.get(large)) == 1000
