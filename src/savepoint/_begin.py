"""How an attempt begins: a new run is created, or a stopped one is claimed. One commit either way."""

from collections.abc import Callable, Mapping, Sequence

from attrs import evolve

from effects._receipt import Receipt

from ._ambient import boot_id, wall_clock_s
from ._attempt import Attempt
from ._claim import Claim, KernelLock, Lease, all_dead, lock_path, owner_of, sweep_locks, take_lock
from ._codec import Encoded
from ._errors import Held, Superseded
from ._events import Claimed, Gap, Head, Mark, Past, read_head, write_head, write_mark
from ._form import Savepoint
from ._gap import point_key
from ._journal import Journal
from ._nested import Nested, Within, write_nested
from ._past import Standing
from ._poison import failures_at
from ._questions import read_decisions
from ._resumable import Registry
from ._run import Recovery, RunRecord, RunStatus, former_key, read_run, run_key, write_run
from ._store import Row, Space, Store, Transaction
from ._world import World
from ._writer import CLAIM, CREATE, Writer


async def create(
    store: Store,
    record: RunRecord,
    values: Sequence[Encoded],
    savepoint: Savepoint,
    *,
    host: World,
    registry: Registry,
    lease_s: float,
    former: RunRecord | None = None,
    within: Within | None = None,
    also: Callable[[Transaction], None] | None = None,
) -> Attempt:
    """A new run, claimed: record, savepoint 0 (with what it needs, `values`) and lease in one commit.

    `former` is the record that this one replaces (a restart); it is kept. `within` is the run that it is nested in,
    `also` adds rows to the commit. Raises `Held` where somebody was first.
    """
    lock = take_lock(store, record.lineage, record.run_id, None, 1)
    outer = None if within is None else within.journal.claim
    claim = Claim(store=store, run_key=run_key(record.run_id), epoch=1, lease_s=lease_s, lock=lock, outer=outer)
    writer = Writer(store=store, lineage=record.lineage, head=Head(), digest=None)
    record = evolve(record, attempts=1)

    def rows(tx: Transaction, head: Head) -> None:
        tx.expect(Space.RUN, run_key(record.run_id), standing)
        if former is not None and before is not None:
            tx.write(Space.RUN, former_key(former), write_run(former))
            _fence(tx, before)
        tx.write(Space.RUN, run_key(record.run_id), write_run(record))
        mark = Mark(point=savepoint.id, name=savepoint.name, count=head.count, chain=head.chain)
        tx.write(Space.POINT, point_key(record.lineage, 0), write_mark(mark))
        claim.write(tx)
        if within is not None:
            nested = Nested(run_id=record.run_id, lineage=record.lineage, step=within.journal.step)
            write_nested(tx, within.journal.writer.lineage, nested)
        if also is not None:
            also(tx)

    try:
        standing = await _digest_of(store, record.run_id, former)
        before = None if former is None else await store.read(Space.HEAD, former.lineage)
        await writer.commit(CREATE, [Gap(step=0, point=savepoint.id)], values=values, also=rows, epoch=1)
    except Superseded:
        claim.release()
        raise Held(
            f"run {record.run_id} was created by another process", next=f"savepoint show {record.run_id}"
        ) from None
    except BaseException:
        claim.release()
        raise
    journal = Journal(
        store=store,
        writer=writer,
        claim=claim,
        world=World(),
        types=registry.types,
        lookup=registry.effect,
        held=registry.held,
        strict=record.recovery is Recovery.STRICT,
    )
    return Attempt(
        store=store, registry=registry, record=record, claim=claim, journal=journal, host=host, savepoint=savepoint,
        past=Past(),
    )  # fmt: skip


def _fence(tx: Transaction, before: Row) -> None:
    """Ends the former lineage's writing: an owner that was stopped past its lease would still be its head's writer."""
    head = read_head(before)
    tx.expect(Space.HEAD, before.key, before.digest)
    tx.write(Space.HEAD, before.key, write_head(evolve(head, epoch=head.epoch + 1)))


async def _digest_of(store: Store, run_id: str, record: RunRecord | None) -> bytes | None:
    """What the run's row must still be at the commit: lineages differ after a restart, so their heads prove nothing.

    Raises `Held` where the row is not `record` any more.
    """
    row = await store.read(Space.RUN, run_key(run_id))
    if (None if row is None else read_run(row)) != record:
        raise Held(f"run {run_id} was changed by another process", next=f"savepoint show {run_id}")
    return None if row is None else row.digest


async def claim_run(
    store: Store,
    record: RunRecord,
    standing: Standing,
    *,
    host: World,
    registry: Registry,
    lease_s: float,
    meta: Mapping[str, object] | None = None,
    poison_after: int | None = None,
    outer: Claim | None = None,
) -> Attempt:
    """A stopped run, claimed by compare-and-set on its head; `meta` is kept with it from now on. `outer` is the claim on
    the run that it is nested in. Raises `Held`; then nothing was changed.
    """
    key = run_key(record.run_id)
    lease = await owner_of(store, key)
    epoch = standing.head.epoch + 1
    lock = take_lock(store, record.lineage, record.run_id, lease, epoch)
    dead = _proved_dead(store, record, lease, epoch)
    claim = Claim(store=store, run_key=key, epoch=epoch, lease_s=lease_s, lock=lock, outer=outer)
    writer = Writer(store=store, lineage=record.lineage, head=standing.head, digest=standing.digest)
    claimed = evolve(
        record,
        status=RunStatus.RUNNING,
        attempts=record.attempts + 1,
        changed_at=wall_clock_s(),
        resumed_from=standing.step,
        failures=failures_at(record, standing.step),
        error=None,
        meta=record.meta if meta is None else dict(meta),
    )

    def rows(tx: Transaction, _: Head) -> None:
        tx.expect(Space.RUN, key, row)
        tx.write(Space.RUN, key, write_run(claimed))
        claim.write(tx)

    try:
        row = await _digest_of(store, record.run_id, record)
        await writer.commit(CLAIM, [Claimed(epoch=epoch, forked=standing.past.forked)], also=rows, epoch=epoch)
    except Superseded:
        claim.release()
        raise Held(
            f"run {record.run_id} was claimed by another process", next=f"savepoint show {record.run_id}"
        ) from None
    except BaseException:
        claim.release()
        raise
    sweep_locks(store, record.lineage, epoch)
    journal = Journal(
        store=store,
        writer=writer,
        claim=claim,
        # Compensations are performed before the fork is made: the host is not theirs to change.
        world=World(),
        types=registry.types,
        lookup=registry.effect,
        held=registry.held,
        strict=record.recovery is Recovery.STRICT,
        step=standing.step,
        forked=standing.past.forked,
        receipts=_relevant(standing),
        decisions=await read_decisions(store, record.lineage, registry.types),
    )
    return Attempt(
        store=store, registry=registry, record=claimed, claim=claim, journal=journal, host=host,
        savepoint=standing.savepoint, past=standing.past, former_owner_dead=dead, damage=standing.damage,
        warnings=list(standing.warnings), former=record, poison_after=poison_after,
    )  # fmt: skip


def _relevant(standing: Standing) -> dict[tuple[int, bytes], Receipt]:
    """The receipts of the steps from the savepoint on, marked stale where the new fork does not contain them."""
    forked = standing.past.forked
    return {
        place: evolve(receipt, stale=receipt.stale or (receipt.touches_world and receipt.number > forked))
        for place, receipt in standing.past.receipts.items()
        if receipt.step >= standing.step
    }


def _proved_dead(store: Store, record: RunRecord, lease: Lease | None, epoch: int) -> bool:
    """Whether no former owner can act any more: it gave the run back, or its kernel lock, here, is free."""
    if not all_dead(store, record.lineage, epoch):
        return False
    if lease is None:
        return True
    path = lock_path(store, record.lineage, lease.epoch)
    return path is not None and (lease.boot == boot_id() or path.exists()) and not KernelLock.held(path)
