"""SQLite as the store uses it: a whole unit of work in one hop to its thread, with durability that is read back.

Design: `design/0005-store.md`.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

from ._ambient import boot_clock_s
from ._errors import Corrupt, NotWritable, SavepointError, Usage
from ._migrations import VERSION, check_version, migrate, read_version
from ._tables import SCHEMA, Tables
from ._unit import Unit

APPLICATION = 0x53565054
"""SQLite's application id of a store: SVPT."""
_LOG_PAGES = 2000
"""Pages in the write-ahead log before it is folded in: SQLite's usual 4 MB, with pages of half its usual size."""
WORK = "work"
"""In place of a statement: run the function that comes as the only parameter."""


class Answer:
    """What a piece of work returned, in the shape in which aiosqlite fetches."""

    def __init__(self, value: object) -> None:
        self._value = value

    def fetchall(self) -> list[object]:
        return [self._value]


class Engine(sqlite3.Connection):
    """A connection whose public `execute(WORK, (function,))` runs `function(self)`.

    Through aiosqlite, that is a whole transaction in one hop; a hop a statement costs twice the cpu.
    """

    tables: Tables
    relaxed = False
    """Commits survive a kill, not a power cut, unless a unit asks for more."""

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        if sql != WORK:
            return super().execute(sql, parameters)
        (work,) = parameters
        try:
            return Answer(work(self))
        except sqlite3.Error as error:
            raise named(error, self.tables.place) from error
        except UnicodeDecodeError as error:  # SQLite quotes damaged text in its messages
            raise Corrupt(f"{self.tables.place}: {error}") from error

    # Opening

    def settle(self, *, place: Path, wal: bool | None, relaxed: bool, patience_s: float) -> None:
        """Makes this a connection to the store at `place`; `wal` is `None` where it is only read.

        A store of an older version is migrated, unless it is only read. Raises `NotWritable` where the journal mode or
        the level of syncing did not take, `Newer`, `Foreign`, `Corrupt`.
        """
        self.tables = Tables(super().execute, str(place))
        # A rollback journal that is not synced can spoil what was synced before; a log cannot.
        self.relaxed = relaxed and wal is not False
        deadline = boot_clock_s() + patience_s
        while True:  # SQLite does not wait by itself for who changes the journal mode, recovers or closes last
            try:
                return self._settle(wal=wal)
            except sqlite3.OperationalError as error:
                if primary(error) not in _BUSY or boot_clock_s() > deadline:
                    raise
                Event().wait(0.005)

    def _settle(self, *, wal: bool | None) -> None:
        # Again: where a newer program was killed, its version may still lie in the log, not in the header.
        check_version(read_version(super().execute), self.tables.place)
        if wal is None:
            self._demand("query_only", "1", 1)
        else:
            mode = "wal" if wal else "delete"
            self._demand("journal_mode", mode, mode)
            self._demand("wal_autocheckpoint", str(_LOG_PAGES), _LOG_PAGES)
            level = 1 if self.relaxed else 2 if wal else 3  # SQLite's numbers of normal, full and extra
            self._demand("synchronous", str(level), level)
        self.tables.touch()
        if wal is not None:
            self._migrate()

    def _migrate(self) -> None:
        try:
            migrate(super().execute, self.tables.place)
        except BaseException:
            self._back_out()
            raise

    def _demand(self, pragma: str, value: str, read_back: object) -> None:
        (found,) = super().execute(f"pragma {pragma}").fetchone()
        if found != read_back:
            super().execute(f"pragma {pragma}={value}").fetchall()
            (found,) = super().execute(f"pragma {pragma}").fetchone()
        if found != read_back:
            raise NotWritable(
                f"{self.tables.place}: {pragma} is {found}, not {read_back}: commits would not last as asked for",
                next="close the other users of this store, who chose another mode, or move it to a local disk",
            )

    # Writing

    def apply(self, units: Sequence[Unit]) -> Sequence[SavepointError | None]:
        """Applies each unit that can be, all in one transaction; an answer for each: one's failure is its own."""
        if not (self.relaxed and any(unit.sync for unit in units)):
            return self._together(units)
        super().execute("pragma synchronous=full")
        try:
            return self._together(units)
        finally:
            super().execute("pragma synchronous=normal")

    def _together(self, units: Sequence[Unit]) -> Sequence[SavepointError | None]:
        try:
            super().execute("begin immediate")
            answers = [self.tables.attempt(unit) for unit in units]
            super().execute("commit" if None in answers else "rollback")
        except sqlite3.Error as error:
            self._back_out()
            if len(units) == 1 or primary(error) in _BUSY:
                return [named(error, self.tables.place)] * len(units)
            return [self._together([unit])[0] for unit in units]  # one that does not fit must not fail the others
        except BaseException:
            self._back_out()
            raise
        else:
            return answers

    def _back_out(self) -> None:
        if self.in_transaction:  # SQLite has already left it after some errors (full, I/O)
            super().execute("rollback")


def create(path: Path) -> None:
    """Writes an empty store's database to the new file `path`, whole and closed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in (*SCHEMA, f"pragma application_id={APPLICATION}", f"pragma user_version={VERSION}"):
            db.execute(statement)


def primary(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 for errors of the Python module itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def named(error: sqlite3.Error, place: str) -> SavepointError:
    """What a SQLite error means to the store's user."""
    cause = f"{place}: {error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})"
    code = primary(error)
    if code in _DAMAGED or getattr(error, "sqlite_errorname", "") in _UNREADABLE:
        return Corrupt(cause)
    if code in _BUSY:
        return NotWritable(f"{cause}: another process kept writing", next="try again when it is done")
    if type(error) is sqlite3.OperationalError and not code:
        return Corrupt(cause)  # the module itself could not decode a text column
    if code == sqlite3.SQLITE_FULL:
        return NotWritable(f"{cause}: the disk is full", next="make room, then try again; nothing was written")
    if isinstance(error, (sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.DataError)):
        return Usage(cause, next="an object is at most 1 GB of bytes; a closed store cannot be used")
    return NotWritable(cause, next="check that the store's directory exists and is writable, then try again")


_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""A plain error too: every statement here is fixed, so only a damaged schema makes one fail."""
_UNREADABLE = frozenset({"SQLITE_IOERR_READ", "SQLITE_IOERR_SHORT_READ", "SQLITE_IOERR_CORRUPTFS"})
