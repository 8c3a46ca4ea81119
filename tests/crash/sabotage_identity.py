"""Faults in what identities are made of."""

import time
from collections.abc import Callable, Iterable

from savepoint import _gap, _scan, _walk
from savepoint._form import form_of
from savepoint._manifest import Entry, EntryKind, encode_node
from savepoint._reader import Reader


def _modes_left_out() -> None:
    """The mode of a file is no part of a world's id."""

    def plain(entries: Iterable[Entry]) -> bytes:
        return encode_node(e._replace(mode=0o644) if e.kind is EntryKind.FILE else e for e in entries)

    _scan.encode_node = plain


def _dict_order() -> None:
    """Keys and elements are hashed in the order in which they happen to be."""
    _walk.itemgetter = lambda _: lambda _: 0  # a stable sort by nothing
    Reader.ascending = lambda self, previous, start: self.data[start : self.pos]  # type: ignore[method-assign]


def _clock_in_id() -> None:
    """The time of a savepoint is part of its identity."""
    _gap.form_of = lambda name, key, *rest: form_of(name, [key, time.time()], *rest)


IDENTITY: dict[str, Callable[[], None]] = {
    "modes left out": _modes_left_out,
    "dict order in the hash": _dict_order,
    "clock in the hash": _clock_in_id,
}
