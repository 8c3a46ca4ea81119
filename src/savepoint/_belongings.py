"""All that a run has of its own in a store: its rows, those of its restarted past, and those of the runs nested in it.

Objects are no one's own: savepoints, forks and sessions share them.
"""

from collections.abc import Iterator

from attrs import field, mutable

from ._errors import Corrupt
from ._events import LINEAGE_SIZE
from ._nested import nested_in
from ._run import RunRecord, former_key, read_run, run_key
from ._store import Row, Space, Store

BY_RUN = (Space.LEASE, Space.REQUEST, Space.LOCAL)
"""One row a run id, beside its record."""
BY_LINEAGE = (Space.EVENT, Space.POINT, Space.QUESTION, Space.DECISION, Space.NESTED)
"""Any number of rows whose key begins with the lineage, beside its head."""


@mutable(kw_only=True)
class Belongings:
    """What was found. Only a commit that expects the heads among `rows` can rely on it."""

    runs: list[RunRecord] = field(factory=list[RunRecord])
    """the run, then those nested in it or in its restarted past, at any depth"""
    rows: list[tuple[Space, Row]] = field(factory=list[tuple[Space, Row]])
    """the record of each of `runs` too"""

    def of(self, space: Space, lineage: bytes = b"") -> Iterator[Row]:
        return (row for where, row in self.rows if where is space and row.key.startswith(lineage))


async def belongings(store: Store, record: RunRecord) -> Belongings:
    """Raises `Corrupt`: what cannot be read is not known to be the run's."""
    found = Belongings()
    waiting = [(record.run_id, record.lineage)]
    while waiting:
        waiting += await _of_run(store, *waiting.pop(), found)
    return found


async def _of_run(store: Store, run_id: str, lineage: bytes, found: Belongings) -> list[tuple[str, bytes]]:
    """Adds a run's rows; id and lineage of each run nested in it."""
    key = run_key(run_id)
    row = await store.read(Space.RUN, key)
    if row is None and await store.read(Space.HEAD, lineage) is None:
        return []  # nested, and its beginning never came to be
    if row is None or read_run(row).lineage != lineage:
        raise Corrupt(f"lineage {lineage.hex()} is of run {run_id}, whose record says otherwise")
    record = read_run(row)
    found.runs.append(record)
    found.rows.append((Space.RUN, row))
    for space in BY_RUN:
        beside = await store.read(space, key)
        found.rows += [] if beside is None else [(space, beside)]
    formers = await store.scan(Space.RUN, former_prefix(record))
    found.rows += [(Space.RUN, former) for former in formers]
    lineages = [each.lineage for each in (record, *map(read_run, formers)) if not each.removed]
    return [nested for each in lineages for nested in await _of_lineage(store, each, found)]


def former_prefix(record: RunRecord) -> bytes:
    """What the keys of a run's former records begin with."""
    return former_key(record)[:-LINEAGE_SIZE]


async def _of_lineage(store: Store, lineage: bytes, found: Belongings) -> list[tuple[str, bytes]]:
    head = await store.read(Space.HEAD, lineage)
    if head is None:
        raise Corrupt(f"lineage {lineage.hex()} has no head")
    found.rows.append((Space.HEAD, head))
    for space in BY_LINEAGE:
        found.rows += [(space, row) for row in await store.scan(space, lineage)]
    return [(nested.run_id, nested.lineage) for nested in await nested_in(store, lineage)]
