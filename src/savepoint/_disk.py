"""What a run takes on the disk."""

from collections.abc import Iterable, Iterator

from attrs import field, frozen, mutable

from ._belongings import Belongings, belongings
from ._codec import named_logs
from ._digest import SIZE
from ._errors import Corrupt, Missing
from ._events import Called, Snapshotted, read_events, read_mark
from ._log import EMPTY_ROOT, Part, parts_of
from ._run import RunRecord, read_run
from ._store import Row, Space, Store

_BATCH = 200


@frozen(kw_only=True)
class Disk:
    """Bytes of content, without what SQLite adds around it."""

    rows: int
    """how many"""
    row_bytes: int
    """keys, bodies and digests"""
    objects: int
    object_bytes: int
    """names and bodies"""

    @property
    def bytes(self) -> int:
        return self.row_bytes + self.object_bytes


async def disk_of(store: Store, record: RunRecord) -> Disk:
    """Counts the rows that a run has (`belongings`: its restarted past and its nested runs too), and the objects that
    they name: savepoints, transcripts with all their entries, arguments, outcomes, results. Each object counts once, also
    where other runs share it. World contents do not count: they lie in packs that all runs share.

    Reads what is counted, nothing else of the store. What is missing or damaged counts as nothing.
    """
    found = await belongings(store, record)
    walk = _Walk(store=store)
    await walk.objects(_named(found))
    return Disk(
        rows=len(found.rows),
        row_bytes=sum(len(row.key) + len(row.body) + len(row.digest) for _, row in found.rows),
        objects=len(walk.sizes),
        object_bytes=sum(walk.sizes.values()),
    )


def _named(found: Belongings) -> Iterator[bytes]:
    """The objects that rows name, the newest savepoints first: their logs hold those of the older ones."""
    for row in sorted(found.of(Space.POINT), key=lambda row: row.key, reverse=True):
        yield read_mark(row).point
    for row in found.of(Space.RUN):
        record = read_run(row)
        yield from _there(record.result, record.state, record.base, record.final)
    for row in found.of(Space.EVENT):
        yield from _of_events(row)


def _of_events(row: Row) -> Iterator[bytes]:
    for event in read_events(row):
        match event:
            case Called(receipt=receipt):
                yield from _there(receipt.outcome, receipt.arguments_object, receipt.note, receipt.world)
            case Snapshotted(world=world):
                yield world
            case _:
                pass


def _there(*names: bytes | None) -> Iterator[bytes]:
    return (name for name in names if name is not None)


@mutable(kw_only=True)
class _Walk:
    store: Store
    sizes: dict[bytes, int] = field(factory=dict[bytes, int])
    """name -> bytes, of what was read"""
    seen: set[bytes] = field(factory=set[bytes])

    async def objects(self, names: Iterable[bytes]) -> None:
        """These and all that they name."""
        waiting = list(dict.fromkeys(names))
        waiting.reverse()  # taken from the end
        while waiting:
            batch: list[bytes] = []
            while waiting and len(batch) < _BATCH:
                if (name := waiting.pop()) not in self.seen:
                    self.seen.add(name)
                    batch.append(name)
            for name, body in await self._read(batch):
                self.sizes[name] = SIZE + len(body)
                waiting += await self._logs(body)

    async def _read(self, names: list[bytes]) -> list[tuple[bytes, bytes]]:
        try:
            return list(zip(names, await self.store.objects(names), strict=True))
        except (Missing, Corrupt):
            if len(names) == 1:
                return []
            half = len(names) // 2
            return [*await self._read(names[:half]), *await self._read(names[half:])]

    async def _logs(self, body: bytes) -> list[bytes]:
        """Counts the segments of the logs that linked bytes name; the names of their elements."""
        found: list[bytes] = []
        roots = [root for _, root in named_logs(body)]
        while roots:
            for part in await self._segments(roots.pop()):
                if part.body is None:
                    found.append(part.digest)
                else:
                    roots += [root for _, root in named_logs(part.body)]
        return found

    async def _segments(self, root: bytes) -> list[Part]:
        """Counts those of a log that are new, back to one that was counted before; their elements."""
        if root in self.seen or root == EMPTY_ROOT:
            return []
        found: list[Part] = []
        try:
            for body in await self.store.segments(root, until=EMPTY_ROOT):
                if root in self.seen:
                    break
                self.seen.add(root)
                self.sizes[root] = SIZE + len(body)
                found += parts_of(body)
                root = body[:SIZE]
        except (Missing, Corrupt):
            pass
        return found
