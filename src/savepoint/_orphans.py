"""Runs that lost their process: running by their record, and nobody behind them."""

from ._claim import alive, read_lease
from ._errors import Corrupt
from ._run import RunRecord, RunStatus, read_run
from ._store import Row, Space, Store


async def orphans(store: Store) -> list[RunRecord]:
    """The orphaned runs, the oldest first. A nested one is left out: the run around it resumes it.

    Read from the leases, which go with the attempt that held them: the cost is that of the runs that are held, not of
    all. Raises `Corrupt`.
    """
    found, damaged = await survey_orphans(store)
    for error in damaged.values():
        raise error
    return found


async def survey_orphans(store: Store) -> tuple[list[RunRecord], dict[str, Corrupt]]:
    """The same, and by run id those that have a lease and no record that can be read: they may be orphans.

    Raises `Corrupt` where a lease cannot be read.
    """
    found: list[RunRecord] = []
    damaged: dict[str, Corrupt] = {}
    for lease in await store.scan(Space.LEASE):
        try:
            found += await _orphan(store, lease)
        except Corrupt as error:
            damaged[lease.key.decode()] = error
    return sorted(found, key=lambda record: (record.created_at, record.run_id)), damaged


async def _orphan(store: Store, lease: Row) -> list[RunRecord]:
    row = await store.read(Space.RUN, lease.key)
    record = None if row is None else read_run(row)
    if record is None or record.status is not RunStatus.RUNNING or record.parent is not None:
        return []
    return [] if alive(store, record.lineage, read_lease(lease)) else [record]
