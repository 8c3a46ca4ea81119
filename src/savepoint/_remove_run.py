"""Removing a run: all that it had of its own goes, and its record stays as a tombstone, so that its id never runs again
silently. Objects stay: others may name them.
"""

import contextlib

from attrs import evolve

from ._ambient import wall_clock_s
from ._belongings import Belongings, belongings
from ._claim import sweep_locks
from ._digest import SIZE
from ._errors import Conflict, Corrupt, Held, Missing, Stale, Usage
from ._events import LINEAGE_SIZE, Event, check_chain, fold, read_events, read_head
from ._forks import sweep_forks
from ._merge_run import Settled
from ._run import ENDED, RunRecord, RunStatus, read_run, run_key, write_run
from ._store import Row, Space, Store, Transaction
from ._thread import in_thread
from ._unanswered import refuse_doubts, refuse_living

FENCED = frozenset({Space.RUN, Space.HEAD, Space.LEASE, Space.DECISION})
"""Rows that somebody else may change meanwhile; the others only change together with a head."""


async def remove_run(store: Store, run_id: str, *, abandon: bool = False) -> None:
    """Removes what a run that nobody holds had, with its restarted past and the runs nested in it, in one commit.

    A tombstone keeps the id, and of a completed run its result: `run_program` answers from it, and refuses any other
    removed id, unless it is told to restart. Repeating is a no-op. `abandon`: also over a call in doubt, a merge that
    was begun, or a part that has not landed in its session. Objects and world contents stay. Raises `Missing`, `Held` (it has a living owner, or another process
    changed it meanwhile), `Conflict` (without `abandon`), `Usage` (it is nested in another run), `Corrupt`,
    `NotWritable`; then nothing was changed.
    """
    row = await store.read(Space.RUN, run_key(run_id))
    if row is None:
        raise Missing(f"there is no run {run_id}", next="savepoint runs lists the known ones")
    record = read_run(row)
    if record.removed:
        return
    if record.parent is not None:
        raise Usage(
            f"run {run_id} is nested in run {record.parent}, and goes with it", next=f"savepoint rm {record.parent}"
        )
    found = await belongings(store, record)
    for each in found.runs:
        await refuse_living(store, each)
        if not abandon and each.status is not RunStatus.COMPLETED:
            _refuse_doubts(each, found, _move(record))
    landing = [each for each in await store.scan(Space.PENDING) if each.key.endswith(b"\0" + row.key)]
    if landing and not abandon and record.status is RunStatus.COMPLETED:
        raise Conflict(
            f"run {run_id} completed, and its part is not in its session yet",
            next=f"savepoint resume {run_id} puts it there, or remove it with abandon",
        )
    found.rows += [(Space.PENDING, each) for each in landing]
    if not abandon and record.settled == Settled.MERGING:
        raise Conflict(
            f"run {run_id}: its world is half merged, and a removal would leave it so",
            next=f"finish it: savepoint merge {run_id}, or remove it all the same: savepoint rm {run_id} --abandon",
        )
    await _commit(store, row, record, found)
    await _sweep(store, found)


def _move(record: RunRecord) -> str:
    """Questions, those of nested runs too, are asked where the outermost run is resumed; a cancelled one never is."""
    ask = f"savepoint resume {record.run_id} and answer its questions, or "
    return f"{ask if record.status not in ENDED else ''}remove it all the same: savepoint rm {record.run_id} --abandon"


def _refuse_doubts(record: RunRecord, found: Belongings, move: str) -> None:
    """From the rows alone: it needs neither the program nor a good savepoint."""
    rows = list(found.of(Space.EVENT, record.lineage))
    (head,) = map(read_head, found.of(Space.HEAD, record.lineage))
    events: list[Event] = []
    damage = ""
    try:
        check_chain(rows, start=0, chain=bytes(SIZE), head=head)
        events = [event for row in rows for event in read_events(row)]
    except Corrupt as error:
        damage = error.message
    receipts = fold(enumerate(events), start=0).receipts.values()
    answered = {row.key[LINEAGE_SIZE:].decode() for row in found.of(Space.DECISION, record.lineage)}
    open_ = [receipt for receipt in receipts if receipt.step >= head.point_step]  # no savepoint stands behind a doubt
    refuse_doubts(record, open_, answered, damage, act="a removal", next=move)


async def _commit(store: Store, row: Row, record: RunRecord, found: Belongings) -> None:
    try:
        async with store.commit() as tx:
            _expect(tx, row, found)
            for space, each in found.rows:
                tx.delete(space, each.key)
            tx.write(Space.RUN, row.key, write_run(_tombstone(record)))
    except Stale:
        raise Held(
            f"run {record.run_id} was changed by another process meanwhile",
            next=f"savepoint show {record.run_id}, then try again",
        ) from None


def _expect(tx: Transaction, row: Row, found: Belongings) -> None:
    """Nobody wrote since: neither an attempt (an owner that sleeps finds its head gone, and writes nothing more), nor a
    claim, nor a person who decides just now.
    """
    tx.expect(Space.RUN, row.key, row.digest)
    for space, each in found.rows:
        if space in FENCED and each.key != row.key:
            tx.expect(space, each.key, each.digest)
    decided = {each.key for each in found.of(Space.DECISION)}
    for question in found.of(Space.QUESTION):
        if question.key not in decided:
            tx.expect(Space.DECISION, question.key, None)


def _tombstone(record: RunRecord) -> RunRecord:
    status = RunStatus.COMPLETED if record.status is RunStatus.COMPLETED else RunStatus.CANCELLED
    return evolve(
        record, removed=True, status=status, changed_at=wall_clock_s(), state=None, base=None, final=None
    )  # the result stays: it is an object of its own


async def _sweep(store: Store, found: Belongings) -> None:
    """What dead attempts left on the disk. Best effort: it is in nobody's way."""
    for row in found.of(Space.HEAD):
        epoch = read_head(row).epoch + 1
        await in_thread(_swept, store, row.key, epoch)


def _swept(store: Store, lineage: bytes, epoch: int) -> None:
    with contextlib.suppress(OSError):
        sweep_locks(store, lineage, epoch)
        sweep_forks(store, lineage, epoch)
