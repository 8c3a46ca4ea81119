"""What a run changed in its world, from its start to its end."""

from collections.abc import Sequence

from savepoint._form import snapshot_ids
from savepoint._resumable import OURS
from savepoint._run import RunRecord
from savepoint._store import Store
from savepoint._stored import get_value
from savepoint._system import Change
from savepoint._world import Snapshot, World


async def changes_of(store: Store, record: RunRecord, host: World) -> dict[str, Sequence[Change]]:
    """By system; empty for a run that has not ended."""
    if record.base is None or record.final is None:
        return {}
    base = snapshot_ids(await get_value(store, record.base, OURS))
    return await changes_between(store, base, snapshot_ids(await get_value(store, record.final, OURS)), host)


async def changes_between(store: Store, base: Snapshot, now: Snapshot, host: World) -> dict[str, Sequence[Change]]:
    return dict(await host.diff(store.contents, base, now)) if base and now else {}
