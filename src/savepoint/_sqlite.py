"""The durable store: a directory with one SQLite database, one connection, and commits that are grouped.

Design: `design/0005-store.md`.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar, cast

import aiosqlite

from ._ambient import process_id
from ._engine import WORK, Engine
from ._errors import NotWritable, SavepointError, Usage
from ._packs import Packs
from ._place import DATABASE, is_network, ready
from ._store import Row, Space
from ._survey import survey
from ._system import Contents
from ._thread import in_thread
from ._unit import Commit, Unit, Verified

T = TypeVar("T")

Durability = Literal["power", "process"]
"""What an acknowledged commit survives: a power cut, or a kill of the process."""

_READ = "read the rows back before anything is decided on them"


class Landing(asyncio.Future[None]):
    """A future that a cancelled waiter still waits for: the cancellation is delivered when it is done.

    Refusing `cancel` is what makes `Task.cancel` put the cancellation off until the task wakes.
    """

    def cancel(self, msg: object = None) -> bool:
        return False


class SqliteStore:
    """A `Store` in a directory; made by `open_store`. For one event loop of one process."""

    def __init__(self, place: Path, connection: aiosqlite.Connection, *, read_only: bool) -> None:
        self.place = place
        self.contents: Contents = Packs(place / "packs")
        self.forks = place / "forks"
        self.locks: Path | None = place / "locks"
        self._connection = connection
        self._read_only = read_only
        self._closed = False
        self._process = process_id()
        self._waiting: list[tuple[Unit, Landing]] = []
        self._busy = False
        self._flushing: asyncio.Task[None] | None = None
        """Kept, because the loop holds its tasks weakly."""
        self._at_rest: Landing | None = None

    # Writing

    def commit(self, *, sync: bool = True) -> Commit:
        return Commit(self._apply, sync=sync)

    async def _apply(self, unit: Unit) -> None:
        self._check_usable()
        if self._read_only:
            raise NotWritable(f"{self.place} is open for reading only", next="open it from where it can be written")
        if self._busy:
            landing = Landing()
            self._waiting.append((unit, landing))
            await landing
        else:
            self._busy = True
            await self._apply_alone(unit)

    async def _apply_alone(self, unit: Unit) -> None:
        """A commit with nobody beside it: a task for the group would cost a quarter of its cpu."""
        try:
            (answer,) = await self._hop(partial(Engine.apply, units=[unit]))
        except asyncio.CancelledError:
            await self._all_done()
            raise
        finally:
            self._go_on()
        if answer is not None:
            raise answer

    async def _all_done(self) -> None:
        """SQLite's thread has done all that was handed to it; a cancellation waits for it."""
        done = Landing()

        def arrived(behind: asyncio.Future[None]) -> None:
            if not behind.cancelled():
                behind.exception()  # read, so that asyncio does not report it as lost
            done.set_result(None)

        asyncio.ensure_future(self._hop(lambda _: None)).add_done_callback(arrived)
        await done

    def _go_on(self) -> None:
        """What came to wait meanwhile is applied as a group; the task lives only while there is work."""
        if self._waiting:
            self._flushing = asyncio.create_task(self._flush(), name="savepoint-store")
            return
        self._busy = False
        if self._at_rest is not None:
            self._at_rest.set_result(None)

    async def _flush(self) -> None:
        group: list[tuple[Unit, Landing]] = []
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                _land(group, await self._answers([unit for unit, _ in group]))
        finally:  # every waiter wakes, even where the loop is shut down under this task
            interrupted = NotWritable(f"{self.place}: interrupted; what was committed may last or not", next=_READ)
            left, self._waiting = [*group, *self._waiting], []
            _land(left, [interrupted] * len(left))
            self._go_on()

    async def _answers(self, units: Sequence[Unit]) -> Sequence[SavepointError | None]:
        try:
            return await self._hop(partial(Engine.apply, units=units))
        except SavepointError as error:
            return [error] * len(units)

    async def finish(self) -> None:
        """Refuses further work and waits for what is queued; a cancellation waits for it too."""
        self._closed = True
        if self._busy and self._process == process_id():
            self._at_rest = Landing()
            await self._at_rest

    # Reading

    async def read(self, space: Space, key: bytes) -> Row | None:
        return await self.look(lambda engine: engine.tables.read(space, key))

    async def scan(
        self, space: Space, prefix: bytes = b"", *, after: bytes = b"", limit: int | None = None
    ) -> Sequence[Row]:
        return await self.look(lambda engine: engine.tables.scan(space, prefix, after, limit))

    async def objects(self, names: Sequence[bytes]) -> Sequence[bytes]:
        return await self.look(lambda engine: engine.tables.objects(names))

    async def segments(self, root: bytes, *, until: bytes) -> Sequence[bytes]:
        return await self.look(lambda engine: engine.tables.segments(root, until))

    async def verify(self) -> Verified:
        """Reads every byte of the database. Damage is listed, never raised and never repaired.

        Commits of this process wait while SQLite checks its file; the rest is read in pages.
        """
        return await survey(self.look, self.place / DATABASE)

    async def look(self, work: Callable[[Engine], T]) -> T:
        """The result of `work`, run as a whole in SQLite's thread, behind the commits that were queued before."""
        self._check_usable()
        return await self._hop(work)

    async def _hop(self, work: Callable[[Engine], T]) -> T:
        return await hop(self._connection, work)

    def _check_usable(self) -> None:
        if self._process != process_id():
            raise Usage(f"{self.place} was opened before this process was forked", next="open the store after forking")
        if self._closed:
            raise Usage(f"{self.place} is closed", next="use the store inside its `async with` block")


async def hop(connection: aiosqlite.Connection, work: Callable[[Engine], T]) -> T:
    fetched = cast("list[T]", await connection.execute_fetchall(WORK, (work,)))
    return fetched[0]


def _land(group: Sequence[tuple[Unit, Landing]], answers: Sequence[SavepointError | None]) -> None:
    for (_, landing), answer in zip(group, answers, strict=True):
        if landing.done():
            continue
        if answer is None:
            landing.set_result(None)
        else:
            landing.set_exception(answer)


@asynccontextmanager
async def open_store(
    place: Path | str,
    *,
    durability: Durability = "power",
    wal: bool | None = None,
    create: bool = True,
    read_only: bool = False,
    busy_s: float = 5.0,
) -> AsyncGenerator[SqliteStore]:
    """Opens the store directory `place`, making an empty store where nothing is (unless `create=False`).

    `wal=None`: a write-ahead log, except on network mounts, where only a rollback journal is safe. `busy_s`: how long
    a commit waits for another process. Raises `Missing`, `Usage` (not a store), `Corrupt`, `Newer`, `NotWritable`.
    """
    place = Path(place).absolute()  # noqa: ASYNC240  reads no disk
    await in_thread(ready, place, may_create=create and not read_only, patience_s=busy_s)
    read_only = read_only or not await in_thread(_writable, place)
    mode = None if read_only else journal_mode(place, wal=wal, network=await in_thread(is_network, place))
    uri = f"{(place / DATABASE).as_uri()}?{_access(place, read_only=read_only)}"
    async with aiosqlite.connect(
        uri, uri=True, factory=Engine, isolation_level=None, timeout=busy_s, cached_statements=64
    ) as connection:
        settle = partial(
            Engine.settle, place=place / DATABASE, wal=mode, relaxed=durability == "process", patience_s=busy_s
        )
        await hop(connection, settle)
        store = SqliteStore(place, connection, read_only=read_only)
        try:
            yield store
        finally:
            await store.finish()


def _writable(place: Path) -> bool:
    return os.access(place, os.W_OK) and os.access(place / DATABASE, os.W_OK)


def journal_mode(place: Path, *, wal: bool | None, network: bool) -> bool:
    """Whether to use a write-ahead log; raises `Usage` where that was asked for and would lose data."""
    if network and wal:
        raise Usage(f"{place} is on a network mount, where a write-ahead log loses data", next="leave out wal=True")
    return not network if wal is None else wal


def _access(place: Path, *, read_only: bool) -> str:
    """SQLite's way to open the file. Where even its shared memory cannot be made, a file without a log is constant."""
    if not read_only:
        return "mode=rw"
    log = place / f"{DATABASE}-wal"
    constant = not os.access(place, os.W_OK) and not (log.exists() and log.stat().st_size)
    return "mode=ro&immutable=1" if constant else "mode=ro"
