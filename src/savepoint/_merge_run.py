"""Settling a finished run's world: its changes are brought into the host, or dropped. Each happens once.

The run's record says `merging` before the host is touched, so a killed merge is known and finished by repeating it.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum

from attrs import evolve

from ._ambient import wall_clock_s
from ._claim import KernelLock, lock_path
from ._conflict import MergeConflict
from ._errors import Conflict, Held, Missing, Stale
from ._form import snapshot_ids
from ._resumable import OURS
from ._run import ENDED, RunRecord, RunStatus, read_run, refuse_nested, run_key, write_run
from ._store import Row, Space, Store
from ._stored import get_value
from ._system import Change
from ._world import Checked, Snapshot, World


class Settled(StrEnum):
    """What became of a run's world."""

    MERGING = "merging"
    """begun; what a kill left undone is finished by repeating the merge"""
    MERGED = "merged"
    DISCARDED = "discarded"


async def merge_run(store: Store, run_id: str, host: World) -> Mapping[str, Sequence[Change]]:
    """Brings what a completed run changed into `host`; returns the changes by system. Repeating it is a no-op.

    Raises `MergeConflict` (the host changed the same paths since; nothing was written), `Conflict` (the run has no end
    to merge, or was discarded), `Held` (another process merges it), `Missing`, `Corrupt`, `NotWritable`.
    """
    row, record = await _read(store, run_id)
    refuse_nested(record, "merge")
    with _alone(store, record):
        if record.settled == Settled.MERGED:
            return {}
        _must_be_open(record)
        if record.base is None or record.final is None:
            raise Conflict(f"run {run_id} has no world to merge", next="start it with --workspace DIR to give it one")
        base, final = await _ids(store, record.base), await _ids(store, record.final)
        if record.settled != Settled.MERGING:
            await _refuse_conflicts(store, host, base, final)
            row, record = await _settle(store, row, record, Settled.MERGING)
        changes = await host.apply(store.contents, base, final)
        await _settle(store, row, record, Settled.MERGED)
        return changes


async def discard_run(store: Store, run_id: str) -> None:
    """Drops what an ended run changed; the host stays as it is. Repeating it is a no-op.

    Raises `Conflict` (it was merged, or a merge of it was begun, or it can still go on), `Missing`.
    """
    row, record = await _read(store, run_id)
    refuse_nested(record, "discard")
    with _alone(store, record):
        if record.settled == Settled.DISCARDED:
            return
        if record.settled is not None:
            move = "finish it: savepoint merge" if record.settled == Settled.MERGING else "its changes are in the host"
            raise Conflict(f"run {run_id}: its world is {record.settled}", next=move)
        _must_be_there(record)
        if record.status not in ENDED:
            raise Conflict(
                f"run {run_id} is {record.status}: it can still go on", next=f"savepoint cancel {run_id} first"
            )
        await _settle(store, row, record, Settled.DISCARDED)


def _must_be_open(record: RunRecord) -> None:
    run_id = record.run_id
    _must_be_there(record)
    if record.settled == Settled.DISCARDED:
        raise Conflict(
            f"run {run_id}: its world was discarded", next=f"fork it to get one again: savepoint fork {run_id}"
        )
    if record.status is not RunStatus.COMPLETED:
        raise Conflict(
            f"run {run_id} is {record.status}, not completed", next=f"savepoint show {run_id} tells what it needs"
        )


def _must_be_there(record: RunRecord) -> None:
    if record.removed:
        raise Conflict(f"run {record.run_id} was removed, and its world with it", next="start it anew to get one again")


async def _refuse_conflicts(store: Store, host: World, base: Snapshot, final: Snapshot) -> None:
    clashes: list[str] = []
    for name, system in host.systems.items():
        if isinstance(system, Checked) and name in base and name in final and base[name] != final[name]:
            found = await system.conflicts(store.contents, base[name].id, final[name].id)
            clashes += [f"{name}: {path}" for path in found]
    if clashes:
        raise MergeConflict("world", clashes)


async def _ids(store: Store, name: bytes) -> Snapshot:
    return snapshot_ids(await get_value(store, name, OURS))


async def _read(store: Store, run_id: str) -> tuple[Row, RunRecord]:
    row = await store.read(Space.RUN, run_key(run_id))
    if row is None:
        raise Missing(f"there is no run {run_id}", next="savepoint runs lists the known ones")
    return row, read_run(row)


async def _settle(store: Store, row: Row, record: RunRecord, settled: Settled) -> tuple[Row, RunRecord]:
    """Durable when it returns. Raises `Conflict` where the record is another one by now."""
    changed = evolve(record, settled=settled.value, changed_at=wall_clock_s())
    body = write_run(changed)
    try:
        async with store.commit() as tx:
            tx.expect(Space.RUN, row.key, row.digest)
            digest = tx.write(Space.RUN, row.key, body)
    except Stale:
        run_id = record.run_id
        raise Conflict(f"run {run_id} was changed meanwhile", next=f"savepoint show {run_id}, then try again") from None
    return Row(key=row.key, body=body, digest=digest), changed


@contextmanager
def _alone(store: Store, record: RunRecord) -> Generator[None]:
    """One process settles a run's world at a time; the kernel lock ends with the process."""
    attempt = lock_path(store, record.lineage, 0)
    path = None if attempt is None else attempt.with_suffix(".settle")
    lock = None if path is None else KernelLock.take(path)
    if path is not None and lock is None:
        raise Held(f"run {record.run_id} is being merged or discarded by another process", next="wait for it")
    try:
        yield
    finally:
        if lock is not None:
            lock.release()
