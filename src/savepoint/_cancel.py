"""Cancelling a run: its owner is asked to stop; a run without an owner is ended here."""

from attrs import evolve

from ._ambient import wall_clock_s
from ._claim import alive, read_lease, take_lock
from ._codec import dumps
from ._errors import Conflict, Corrupt, Held, Missing, Stale, Superseded
from ._events import Claimed, Head, read_head
from ._run import RunRecord, RunStatus, read_run, refuse_nested, run_key, write_run
from ._store import Row, Space, Store, Transaction
from ._writer import END, Writer


async def cancel_run(store: Store, run_id: str) -> RunStatus:
    """Returns `cancelled`, or `running` where the owner was asked (it looks about once a second). Idempotent.

    Needs neither the program nor a good savepoint. Raises `Missing`, `Usage` (it is nested in another run), `Conflict`
    (it is completed), `Held` (another process is claiming it right now), `NotWritable`.
    """
    key = run_key(run_id)
    while True:
        row = await store.read(Space.RUN, key)
        if row is None:
            raise Missing(f"there is no run {run_id}", next="savepoint runs lists the known ones")
        record = read_run(row)
        refuse_nested(record, "cancel")
        if record.status is RunStatus.COMPLETED:
            raise Conflict(f"run {run_id} is completed", next=f"savepoint show {run_id}")
        if record.status is RunStatus.CANCELLED:
            return record.status
        lease = await store.read(Space.LEASE, key)
        if lease is None or not alive(store, record.lineage, read_lease(lease)):
            return await _end(store, row, record, lease)
        if await _ask(store, lease):
            return RunStatus.RUNNING


async def _ask(store: Store, lease: Row) -> bool:
    """Leaves the wish; False where the lease moved meanwhile: its owner may be gone, and a wish would outlive it."""
    try:
        async with store.commit() as tx:
            tx.expect(Space.LEASE, lease.key, lease.digest)
            tx.write(Space.REQUEST, lease.key, dumps("cancel"))
    except Stale:
        return False
    return True


async def _end(store: Store, run: Row, record: RunRecord, lease: Row | None) -> RunStatus:
    """Claim and end in one commit: a former owner's next write is refused, as after any other claim."""
    row = await store.read(Space.HEAD, record.lineage)
    if row is None:
        raise Corrupt(f"lineage {record.lineage.hex()} has no head")
    head = read_head(row)
    epoch = head.epoch + 1
    lock = take_lock(store, record.lineage, record.run_id, None if lease is None else read_lease(lease), epoch)
    writer = Writer(store=store, lineage=record.lineage, head=head, digest=row.digest)
    ended = evolve(record, status=RunStatus.CANCELLED, changed_at=wall_clock_s())

    def rows(tx: Transaction, _: Head) -> None:
        tx.expect(Space.RUN, run.key, run.digest)
        tx.write(Space.RUN, run.key, write_run(ended))
        tx.delete(Space.LEASE, run.key)
        tx.delete(Space.REQUEST, run.key)

    try:
        await writer.commit(END, [Claimed(epoch=epoch, forked=head.count)], also=rows, epoch=epoch)
    except Superseded:
        move = f"savepoint cancel {record.run_id} again"
        raise Held(f"run {record.run_id} was claimed by another process meanwhile", next=move) from None
    finally:
        if lock is not None:
            lock.release()
    return ended.status
