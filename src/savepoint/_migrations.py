"""The versions of a store: what this program reads, and how an older store becomes one of today.

Runs in SQLite's thread, on the connection of the first that opens the store for writing. Design: `design/0005-store.md`.
"""

from collections.abc import Callable
from typing import Any

from ._errors import VERIFY, Foreign, Newer

VERSION = 2
"""The schema's version, SQLite's `user_version`: it lies in the file's header, readable before SQLite touches it."""
OLDEST = 1
"""The first version that there was; no store has an earlier one."""

Run = Callable[..., Any]
"""A connection's `execute`, inside a transaction."""


def check_version(version: int, place: str) -> None:
    """Raises `Newer`, and `Foreign` for a version that never was."""
    if version > VERSION:
        raise Newer(f"{place} has version {version}, this program knows {VERSION}", next="upgrade this program")
    if version < OLDEST:
        raise Foreign(f"{place} has the unknown version {version}", next=VERIFY)


def read_version(run: Run) -> int:
    """Of the store as the connection sees it: a newer one may still lie in the log, not in the header."""
    (version,) = run("pragma user_version").fetchone()
    return version


def migrate(run: Run, place: str) -> None:
    """Brings the store to `VERSION`, all steps in one transaction: a kill leaves the old store or the new one, whole.

    A no-op for a store of today. The caller has checked that its tables are whole, and rolls back what raises:
    `sqlite3.Error`, and `Newer` where another program was faster.
    """
    if read_version(run) == VERSION:
        return
    run("begin immediate")
    version = read_version(run)  # again: another process may have migrated while this one waited
    check_version(version, place)
    for step in range(version, VERSION):
        STEPS[step](run)
    run(f"pragma user_version={VERSION}")
    run("commit")


def _to_2(_: Run) -> None:
    """Version 2 has rows of new spaces (session, segment, member, pending, nested), which a program of version 1 takes
    for damage. Nothing that version 1 wrote is changed: the tables are the same, the fields of a run record that it
    did not write have defaults (`read_run`), the other rows and all objects mean what they meant.
    """


STEPS: dict[int, Callable[[Run], None]] = {1: _to_2}
"""Version -> the step from it to the next one. A step must do no harm to a store that has taken it already: the version
is one field of the header, which damage may set back.
"""
