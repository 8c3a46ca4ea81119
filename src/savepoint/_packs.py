"""Contents on disk: append-only pack files, one writer each, read by everybody; nothing is written twice.

A writer makes a pack of its own at its first write and finds the others' by listing the directory. Format:
`_packfile.py`; why packs: `design/0004-worlds.md`.
"""

import asyncio
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from ._ambient import fresh_bytes, process_id, wall_clock_s
from ._contents import absent
from ._digest import SIZE, Domain, seal
from ._errors import Corrupt, NotWritable
from ._packfile import MAGIC, Pack, Record, RecordKind, advance, damaged, frame, place, read, seal_at, whole
from ._thread import in_thread

_DRAIN = 4 << 20
"""Bytes held in memory before they are appended."""
_LARGE = 1 << 18
"""Bytes from which hashing is worth a thread."""

_Item = tuple[RecordKind, bytes, bytes]
_Place = tuple[Pack, Record]


class Packs:
    """Contents in the directory `directory`, made (0700) at the first write. Files are 0600."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._packs: dict[Path, Pack] = {}
        self._contents: dict[bytes, _Place] = {}
        self._notes: dict[bytes, _Place] = {}
        self._pending: dict[bytes, _Item] = {}
        self._pending_notes: dict[bytes, bytes] = {}
        self._pending_size = 0
        self._own: tuple[int, Pack] | None = None
        self._unsynced: set[Pack] = set()
        self._writing = asyncio.Lock()
        self._learning = threading.Lock()
        self._loaded = False

    async def put(self, data: bytes) -> bytes:
        digest = seal(Domain.CONTENT, data) if len(data) < _LARGE else await in_thread(seal, Domain.CONTENT, data)
        if not await self._known(digest):
            await self._hold(digest, (RecordKind.CONTENT, digest, data))
        return digest

    async def has(self, digest: bytes) -> bool:
        if await self._known(digest):
            return True
        await in_thread(self._refresh)
        return digest in self._contents

    async def get(self, digest: bytes) -> bytes:
        return (await self.get_many((digest,)))[0]

    async def get_many(self, digests: Sequence[bytes]) -> Sequence[bytes]:
        """In the order asked. Raises `Missing`, `Corrupt` naming the digest and the file."""
        held = {digest: self._pending[digest][2] for digest in digests if digest in self._pending}
        if rest := [digest for digest in digests if digest not in held]:
            held |= await in_thread(self._read_all, rest)
        return [held[digest] for digest in digests]

    async def note(self, subject: bytes, remark: bytes) -> None:
        if await self.noted(subject) != remark:
            body = subject + remark
            digest = seal(Domain.CONTENT, body)
            key = b"note" + digest
            self._pending_notes[subject] = key
            await self._hold(key, (RecordKind.NOTE, digest, body))

    async def noted(self, subject: bytes) -> bytes | None:
        if pending := self._pending.get(self._pending_notes.get(subject, b"")):
            return pending[2][SIZE:]
        if not self._loaded or subject not in self._notes:
            await in_thread(self._refresh)
        if (at := self._notes.get(subject)) is None:
            return None
        self._lean_on(at)
        return (await in_thread(self._read_places, {subject: at}))[subject][SIZE:]

    async def flush(self) -> None:
        """Appends what is held and syncs it, other writers' records that this one leaned on too.

        Raises `NotWritable`; what was not written is still held, and the next flush tries again.
        """
        await self._drain()
        async with self._writing:
            if packs := tuple(self._unsynced):
                await in_thread(self._sync, packs)
                self._unsynced.difference_update(packs)

    async def _known(self, digest: bytes) -> bool:
        if not self._loaded:
            await in_thread(self._refresh)
        if (at := self._contents.get(digest)) is not None:
            self._lean_on(at)
        return at is not None or digest in self._pending

    def _lean_on(self, at: _Place) -> None:
        """Another writer may never have synced what is there: our flush must."""
        if not _is_synced(*at):
            self._unsynced.add(at[0])

    async def _hold(self, key: bytes, item: _Item) -> None:
        self._pending[key] = item
        self._pending_size += len(item[2])
        if self._pending_size >= _DRAIN:
            await self._drain()

    async def _drain(self) -> None:
        async with self._writing:
            if not (batch := dict(self._pending)):
                return
            pack, records = await in_thread(self._append, list(batch.values()))
            self._unsynced.add(pack)
            for key, record in zip(batch, records, strict=True):
                del self._pending[key]
                self._index(pack, record, batch[key][2][:SIZE])
            self._pending_notes = {s: d for s, d in self._pending_notes.items() if d in self._pending}
            self._pending_size = sum(len(item[2]) for item in self._pending.values())

    def _index(self, pack: Pack, record: Record, subject: bytes) -> None:
        match record.kind:
            case RecordKind.CONTENT:
                self._contents.setdefault(record.digest, (pack, record))
            case RecordKind.NOTE:
                self._notes[subject] = (pack, record)

    def _append(self, items: Sequence[_Item]) -> tuple[Pack, Sequence[Record]]:
        try:
            pack = self._writable()
            records = place(pack.end, items)
            _write(pack, [part for item in items for part in frame(*item)])
        except OSError as error:
            # What was written of the batch stays as a torn tail; a new pack is begun rather than write over it.
            self._own = None
            raise NotWritable(
                f"{self._directory}: cannot write a pack: {error.strerror}",
                next="free space or permissions, then retry",
            ) from error
        return pack, records

    def _writable(self) -> Pack:
        if self._own is not None:
            owner, pack = self._own
            # A forked process inherits this object; and bytes that are not ours must not be followed by ours.
            if owner == process_id() and pack.path.stat().st_size == pack.end:
                return pack
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Names sort by age, so that the last note wins after a restart too.
        path = self._directory / f"{int(wall_clock_s() * 1e6):016x}-{fresh_bytes(8).hex()}.pack"
        pack = Pack(path=path)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        _write(pack, [MAGIC])
        self._packs[path] = pack
        self._own = (process_id(), pack)
        return pack

    def _sync(self, packs: Sequence[Pack]) -> None:
        ends = [pack.end for pack in packs]
        try:
            for pack in packs:
                _fsync(pack.path, os.O_RDONLY)
            _fsync(self._directory, os.O_RDONLY | os.O_DIRECTORY)
            for pack, end in zip(packs, ends, strict=True):
                pack.synced = end
            self._seal(packs)
        except OSError as error:
            for pack in packs:
                self._distrust(pack)
            raise NotWritable(
                f"{self._directory}: cannot sync: {error.strerror}", next="check the disk, then retry"
            ) from error

    def _distrust(self, pack: Pack) -> None:
        """After a failed sync the kernel may have dropped what was written, and the next sync says nothing of it. What
        can still be read is held again, and written to a new pack.
        """
        self._unsynced.discard(pack)
        if self._own is not None and self._own[1] is pack:
            self._own = None
        for digest, at in list(self._contents.items()):
            if at[0] is pack and not _is_synced(*at):
                del self._contents[digest]
                with suppress(OSError, Corrupt), pack.path.open("rb") as file:
                    self._pending[digest] = (RecordKind.CONTENT, digest, read(pack, at[1], file))
        self._notes = {subject: at for subject, at in self._notes.items() if at[0] is not pack or _is_synced(*at)}
        self._pending_size = sum(len(item[2]) for item in self._pending.values())

    def _seal(self, packs: Iterable[Pack]) -> None:
        """Says in our own pack how far it is durable. Not synced: where it is lost, readers look at more bytes."""
        if self._own is None or self._own[0] != process_id() or self._own[1] not in packs:
            return
        pack = self._own[1]
        try:
            _write(pack, seal_at(pack.synced))
        except OSError:
            self._own = None  # nothing may follow a torn record

    def _refresh(self) -> None:
        """Learns of records that other processes added."""
        with self._learning:
            for path in sorted(self._directory.glob("*.pack")):
                pack = self._packs.setdefault(path, Pack(path=path))
                if self._own is None or pack is not self._own[1]:
                    self._learn(pack, advance(pack))
            self._loaded = True

    def _learn(self, pack: Pack, records: Sequence[Record]) -> None:
        if not records:
            return
        with pack.path.open("rb") as file:
            for record in records:
                if not whole(pack, record, file):
                    continue  # its writer died before it said that this is durable, and a power cut took a part
                note = record.kind is RecordKind.NOTE
                file.seek(record.offset)
                self._index(pack, record, file.read(SIZE) if note else b"")

    def _read_all(self, digests: Sequence[bytes]) -> Mapping[bytes, bytes]:
        if any(digest not in self._contents for digest in digests):
            self._refresh()
        places = {digest: at for digest in digests if (at := self._contents.get(digest)) is not None}
        for digest in digests:
            if digest not in places:
                raise self._nowhere(digest)
        return self._read_places(places)

    def _read_places(self, places: Mapping[bytes, _Place]) -> dict[bytes, bytes]:
        with ExitStack() as stack:
            files: dict[Path, BinaryIO] = {}
            for pack, record in places.values():
                if pack.path not in files:
                    try:
                        files[pack.path] = stack.enter_context(pack.path.open("rb"))
                    except OSError as error:
                        raise damaged(record.digest, pack.path, f"cannot be read: {error.strerror}") from error
            return {key: read(pack, record, files[pack.path]) for key, (pack, record) in places.items()}

    def _nowhere(self, digest: bytes) -> Exception:
        """`Corrupt` where a damaged pack may have held it, else `Missing`."""
        for pack in self._packs.values():
            if digest in pack.torn:
                return damaged(digest, pack.path, "the file is cut within it")
            if pack.fault:
                return damaged(digest, pack.path, f"is found nowhere, and {pack.fault}")
        return absent(digest)


def _is_synced(pack: Pack, record: Record) -> bool:
    """By this process: what another one says of its own syncs is not relied upon for ours."""
    return record.offset + record.length <= pack.synced


def _write(pack: Pack, parts: Sequence[bytes]) -> None:
    data = memoryview(b"".join(parts))
    fd = os.open(pack.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        written = 0
        while written < len(data):
            written += os.write(fd, data[written:])
    finally:
        os.close(fd)
    pack.end += len(data)


def _fsync(path: Path, flags: int) -> None:
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
