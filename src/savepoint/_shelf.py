"""What was read last from a store, for the next reader: a hundred forks of one prefix load it once.

A log cannot change, so a kept one is as good as one read again; what it costs is memory, which is bounded here.
"""

from typing import Any
from weakref import WeakKeyDictionary

from ._log import Log
from ._store import Store
from ._types import Types

LOGS = 16
"""Logs kept for a store, at most."""
BYTES = 16 << 20
"""Encoded bytes of all their elements, at most; in memory they take about twice that. What a run goes on to append to a
kept log stays with it, too: until it is dropped, the run's transcript is not freed."""

Entry = tuple[Types, Log[Any], int]
"""What the elements were built with, the log, the encoded bytes of its elements."""


class Shelf:
    """What one store's readers share."""

    __slots__ = ("_entries", "_repeats")

    def __init__(self) -> None:
        self._entries: list[Entry] = []  # the one used last stands last
        self._repeats: dict[tuple[bytes, int], tuple[str, ...]] = {}

    def find(self, types: Types, root: bytes, count: int) -> Log[Any] | None:
        """The log (`count`, `root`), also where it is the beginning of a longer one."""
        for place in reversed(range(len(self._entries))):
            built_with, log, _ = self._entries[place]
            if count <= len(log) and log.root_at(count) == root and built_with == types:
                self._entries.append(self._entries.pop(place))
                return log.first(count)
        return None

    def keep(self, types: Types, log: Log[Any], size: int) -> None:
        """Adds a log, and drops those used longest ago where there is no room. An empty or too large one is not kept."""
        if not 0 < size <= BYTES:
            return
        self._entries.append((types, log, size))
        while len(self._entries) > LOGS or sum(kept for *_, kept in self._entries) > BYTES:
            del self._entries[0]

    def repeats(self, head: bytes, step: int) -> tuple[str, ...] | None:
        """What `keep_repeats` was told of the lineage whose head row has this digest, as it stands."""
        return self._repeats.get((head, step))

    def keep_repeats(self, head: bytes, step: int, effects: tuple[str, ...]) -> None:
        if len(self._repeats) >= LOGS:
            self._repeats.clear()
        self._repeats[head, step] = effects


_SHELVES: WeakKeyDictionary[Store, Shelf] = WeakKeyDictionary()
"""Each goes with its store."""


def shelf_of(store: Store) -> Shelf:
    return _SHELVES.setdefault(store, Shelf())
