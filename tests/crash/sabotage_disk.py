"""Faults in what becomes durable, when, and in what is believed of a disk."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from savepoint import _packs, _place, _tables
from savepoint._engine import Engine
from savepoint._packfile import Pack, Record
from savepoint._packs import Packs
from savepoint._store import Row
from savepoint._unit import Unit


def _intent_not_synced() -> None:
    """With `durability="process"`, intents are not synced either."""
    Engine.apply = Engine._together  # type: ignore[method-assign]


def _normal_sync() -> None:
    """With `durability="power"`, SQLite syncs as little as NORMAL does."""
    demand = Engine._demand

    def lower(self: Engine, pragma: str, value: str, read_back: object) -> None:
        demand(self, pragma, *(("1", 1) if pragma == "synchronous" else (value, read_back)))

    Engine._demand = lower  # type: ignore[method-assign]


def _no_directory_sync() -> None:
    """New files are synced, the directories that name them are not."""
    sync, pack_sync = _place._sync, _packs._fsync
    _place._sync = lambda path: None if path.is_dir() else sync(path)
    _packs._fsync = lambda path, flags: None if path.is_dir() else pack_sync(path, flags)


def _made_in_place() -> None:
    """The store's database is made where it is looked for, not aside and renamed."""
    _place._NEW = _place.DATABASE


def _pack_not_synced() -> None:
    """A savepoint names contents that are not synced."""
    Packs._sync = lambda self, packs: None  # type: ignore[method-assign]


def _sync_retried() -> None:
    """A sync that failed is tried once more, and believed: the kernel has dropped what it could not write."""
    sync = _packs._fsync

    def again(path: Path, flags: int) -> None:
        try:
            sync(path, flags)
        except OSError:
            sync(path, flags)

    _packs._fsync = again


def _sync_swallowed() -> None:
    """A sync that fails is passed over."""
    sync = _packs._fsync

    def quiet(path: Path, flags: int) -> None:
        with contextlib.suppress(OSError):
            sync(path, flags)

    _packs._fsync = quiet


def _full_swallowed() -> None:
    """A commit for which the disk had no room counts as made."""
    together = Engine._together

    def hopeful(self: Engine, units: Sequence[Unit]) -> Sequence[Any]:
        answers = together(self, units)
        return [None if each is not None and "disk is full" in str(each) else each for each in answers]

    Engine._together = hopeful  # type: ignore[method-assign]


def _digest_unchecked() -> None:
    """Rows and objects are used without a look at their digests."""
    _tables.checked_row = lambda _, key, body, digest, **__: Row(key=key, body=body, digest=digest)
    _tables.checked_object = lambda name, kind, body, **_: body


def _pack_unchecked() -> None:
    """What a pack holds is used without a look at its digest."""

    def read(_: Pack, record: Record, file: BinaryIO) -> bytes:
        file.seek(record.offset)
        return file.read(record.length)

    _packs.read = read


DISK: dict[str, Callable[[], None]] = {
    "intent not synced": _intent_not_synced,
    "normal sync": _normal_sync,
    "no directory sync": _no_directory_sync,
    "store made in place": _made_in_place,
    "pack not synced": _pack_not_synced,
    "sync retried": _sync_retried,
    "sync swallowed": _sync_swallowed,
    "full disk swallowed": _full_swallowed,
    "digest unchecked": _digest_unchecked,
    "pack unchecked": _pack_unchecked,
}
