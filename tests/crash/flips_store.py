"""A store without threads, and an end to what has none: how tens of thousands of damaged stores are read.

Everything that judges bytes is the packages' own. Only the hops to other threads are left out, which are nine tenths of
the time. Resuming goes the usual way.
"""

import signal
import sqlite3
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from attrs import frozen

from savepoint import _sqlite
from savepoint._engine import Engine
from savepoint._sqlite import SqliteStore
from savepoint._thread import in_thread

LONG_S = 3
"""Reading or resuming the whole of it takes a hundredth of this."""


@frozen
class Inline:
    """In place of the thread that holds the connection."""

    engine: Engine

    async def execute_fetchall(self, sql: str, parameters: Any) -> list[Any]:
        return self.engine.execute(sql, parameters).fetchall()


@asynccontextmanager
async def opened(place: Path, *, write: bool) -> AsyncGenerator[SqliteStore]:
    """As `open_store(place, create=False, read_only=not write)`."""
    _sqlite.ready(place, may_create=False, patience_s=1.0)
    mode = _sqlite.journal_mode(place, wal=False, network=False) if write else None
    uri = f"{(place / 'store.db').as_uri()}?{_sqlite._access(place, read_only=not write)}"
    with closing(sqlite3.connect(uri, uri=True, factory=Engine, isolation_level=None, timeout=1.0)) as engine:
        connection = Inline(engine)
        settle = partial(Engine.settle, place=place / "store.db", wal=mode, relaxed=True, patience_s=1.0)
        await _sqlite.hop(connection, settle)
        yield SqliteStore(place, connection, read_only=not write)


async def at_once(work: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """In place of `in_thread`."""
    return work(*arguments, **more)


@contextmanager
def without_threads() -> Generator[None]:
    users = [each for name, each in sys.modules.items() if name.startswith("savepoint.") and hasattr(each, "in_thread")]
    for module in users:
        module.in_thread = at_once  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in users:
            module.in_thread = in_thread  # type: ignore[attr-defined]


class Endless(Exception):
    """It does not come to an end."""


@contextmanager
def in_time() -> Generator[None]:
    """Raises `Endless` from whatever takes long, as long as it is Python."""

    def late(*_: object) -> None:
        raise Endless(f"still busy after {LONG_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, LONG_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
