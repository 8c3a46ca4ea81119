"""Reading a whole store: every byte of the database and the packs, and whether all that is named is there.

A row, an object or a content that was removed leaves no bad byte behind; only who names it can tell.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path

from attrs import evolve

from ._errors import Corrupt, Foreign, Missing, SavepointError
from ._events import Called, Gap, Snapshotted, read_events, read_mark
from ._form import Form, snapshot_ids
from ._manifest import CHUNK, Entry, EntryKind, decode_pieces
from ._packfile import Pack, advance, read
from ._past import read_marks, whole_events
from ._resumable import OURS
from ._run import RunRecord, read_run
from ._sqlite import SqliteStore
from ._store import Space
from ._stored import get_value
from ._system import Contents
from ._thread import in_thread
from ._tree import read_nodes, read_root
from ._types import Types
from ._unit import Damage, Verified
from ._workspace import Workspace
from ._world import SnapshotId

_BATCH = 500


async def verify_store(store: SqliteStore, types: Types) -> Verified:
    """Everything that is not as it was written. Damage is listed, never raised and never repaired."""
    found = await store.verify()
    packs = await in_thread(_packs, store.place / "packs")
    runs = [damage async for damage in _runs(store, types)]
    return evolve(found, damage=(*found.damage, *packs, *runs))


def _packs(directory: Path) -> list[Damage]:
    return [damage for path in sorted(directory.glob("*.pack")) for damage in _pack(path)]


def _pack(path: Path) -> Iterator[Damage]:
    """A bad tail that no seal covers is no damage: its writer ended before it said that the tail is durable."""
    pack = Pack(path=path)
    try:
        records = advance(pack)
        with path.open("rb") as file:
            for record in (each for each in records if each.offset + each.length <= pack.sealed):
                try:
                    read(pack, record, file)
                except Corrupt as error:
                    yield Damage(what="content", name=record.digest.hex(), cause=error.message)
    except OSError as error:
        yield Damage(what="file", name=str(path), cause=f"cannot be read: {error.strerror}")
    if pack.fault:
        yield Damage(what="file", name=str(path), cause=pack.fault)


async def _runs(store: SqliteStore, types: Types) -> AsyncIterator[Damage]:
    try:
        rows = await store.scan(Space.RUN)
    except SavepointError:
        return  # a bad row; the reading of all rows has named it
    seen: set[bytes] = set()
    for row in rows:
        try:
            record = read_run(row)
            async for damage in _run(store, record, types, seen):
                yield damage
        except SavepointError as error:
            name = row.key.partition(b"\0")[0].decode(errors="backslashreplace")
            yield Damage(what="run", name=name, cause=error.message)


async def _run(store: SqliteStore, record: RunRecord, types: Types, seen: set[bytes]) -> AsyncIterator[Damage]:
    """Raises `Corrupt`, `Missing` for what ends the reading of this run."""
    rows = () if record.removed else await whole_events(store, record.lineage)
    marks = {step: read_mark(row).point for step, row in (await read_marks(store, record.lineage)).items()}
    named = [record.result, record.state, *marks.values()]
    worlds = [name for name in (record.base, record.final) if name is not None]
    for event in (event for row in rows for event in read_events(row)):
        match event:
            case Called(receipt=receipt):
                named += [receipt.outcome, receipt.arguments_object, receipt.note, receipt.world]
            case Snapshotted(world=world):
                worlds.append(world)
            case Gap(point=bytes()) if event.step not in marks:
                yield Damage(what="row", name=record.run_id, cause=f"the row of savepoint {event.step} is missing")
            case _:
                pass
    for name in await _absent(store, [name for name in (*named, *worlds) if name is not None]):
        yield Damage(what="object", name=name.hex(), cause=f"run {record.run_id} names it, and it is not there")
    newest = marks[max(marks)] if marks else None
    for snapshot in await _snapshots(store, worlds, newest, types):
        async for digest in _lost(store.contents, snapshot, seen):
            yield Damage(what="content", name=digest.hex(), cause=f"run {record.run_id} names it, and it is not there")


async def _absent(store: SqliteStore, names: Sequence[bytes]) -> list[bytes]:
    """Those that are not stored; the damaged ones are found by the reading of all objects."""
    unique = list(dict.fromkeys(names))
    found: list[bytes] = []
    for start in range(0, len(unique), _BATCH):
        batch = unique[start : start + _BATCH]
        try:
            await store.objects(batch)
        except (Missing, Corrupt):
            found += [name for name in batch if await _is_absent(store, name)]
    return found


async def _is_absent(store: SqliteStore, name: bytes) -> bool:
    try:
        await store.objects([name])
    except Missing:
        return True
    except Corrupt:
        return False
    return False


async def _snapshots(
    store: SqliteStore, worlds: Iterable[bytes], newest: bytes | None, types: Types
) -> list[SnapshotId]:
    """What a run's start, end, snapshots within steps and newest savepoint name."""
    found = [id_ for name in worlds for id_ in snapshot_ids(await get_value(store, name, OURS)).values()]
    try:
        form = None if newest is None else await get_value(store, newest, Types([Form]) | types)
    except Foreign:
        form = None  # of a program's own classes, which only that program can read
    return found + list(snapshot_ids(form.world).values()) if isinstance(form, Form) else found


async def _lost(contents: Contents, snapshot: SnapshotId, seen: set[bytes]) -> AsyncIterator[bytes]:
    """The contents of a snapshot that are nowhere; `seen` were looked at before."""
    if snapshot.id in seen:
        return
    seen.add(snapshot.id)
    if not await contents.has(snapshot.id):
        yield snapshot.id
    elif snapshot.kind == Workspace.kind:
        waiting = [await read_root(contents, snapshot.id)]
        while waiting:
            entry = waiting.pop()
            if entry.ref in seen or entry.kind is EntryKind.LINK:
                continue
            seen.add(entry.ref)
            if not await contents.has(entry.ref):
                yield entry.ref
            elif entry.kind is EntryKind.DIRECTORY:
                waiting += (await read_nodes(contents, [entry]))[0]
            else:
                for piece in await _pieces(contents, entry):
                    if not await contents.has(piece):
                        yield piece


async def _pieces(contents: Contents, entry: Entry) -> list[bytes]:
    if entry.size <= CHUNK:
        return []
    return [piece for piece in decode_pieces(await contents.get(entry.ref), entry.size) if piece is not None]
