"""The in-memory store: the whole meaning of `Store` without a disk. Read this one first."""

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

from ._contents import MemoryContents
from ._digest import SIZE
from ._errors import VERIFY, Corrupt, Missing, Stale
from ._store import Row, Space
from ._system import Contents
from ._unit import Commit, Unit, checked_object, checked_row

_PLACE = "memory"


class MemoryStore:
    """A `Store` that ends with its process. Applying a unit of work never awaits, which makes it atomic."""

    def __init__(self) -> None:
        self.contents: Contents = MemoryContents()
        self._forks: Path | None = None
        self._objects: dict[bytes, tuple[int, bytes]] = {}
        self._rows: dict[tuple[str, bytes], tuple[bytes, bytes]] = {}

    @property
    def forks(self) -> Path:
        """A temporary directory, made when first asked for, gone with the store."""
        if self._forks is None:
            self._forks = Path(tempfile.mkdtemp(prefix="savepoint-forks-"))
            weakref.finalize(self, shutil.rmtree, self._forks, ignore_errors=True)
        return self._forks

    @property
    def locks(self) -> Path | None:
        """`None`: no other process can reach this store."""
        return None

    def commit(self, *, sync: bool = True) -> Commit:
        return Commit(self._apply, sync=sync)

    async def _apply(self, unit: Unit) -> None:
        for space, key, digest in unit.expected:
            if self._rows.get((space.value, key), (b"", None))[1] != digest:
                raise stale(space, key)
        for name, kind, body in unit.objects.values():
            self._objects.setdefault(name, (kind, body))
        for place, row in unit.rows.items():
            if row is None:
                self._rows.pop(place, None)
            else:
                self._rows[place] = row

    async def read(self, space: Space, key: bytes) -> Row | None:
        found = self._rows.get((space.value, key))
        return None if found is None else checked_row(space, key, *found, place=_PLACE)

    async def scan(
        self, space: Space, prefix: bytes = b"", *, after: bytes = b"", limit: int | None = None
    ) -> Sequence[Row]:
        keys = (key for place, key in self._rows if place == space.value and key.startswith(prefix) and key > after)
        return [checked_row(space, key, *self._rows[space.value, key], place=_PLACE) for key in sorted(keys)[:limit]]

    async def objects(self, names: Sequence[bytes]) -> Sequence[bytes]:
        return [checked_object(name, *self._found(name), place=_PLACE) for name in names]

    async def segments(self, root: bytes, *, until: bytes) -> Sequence[bytes]:
        found: list[bytes] = []
        seen: set[bytes] = set()
        while root != until:
            if root in seen:
                raise looped(root, _PLACE)
            seen.add(root)
            found.append(self._found(root)[1])
            root = found[-1][:SIZE]
        return found

    def _found(self, name: bytes) -> tuple[int, bytes]:
        if (found := self._objects.get(name)) is None:
            raise absent(name, _PLACE)
        return found


def stale(space: Space, key: bytes) -> Stale:
    return Stale(f"row {space.value} {key.hex()} was changed by somebody else", next="read it again, then decide anew")


def absent(name: bytes, place: str) -> Missing:
    return Missing(f"object {name.hex()} is not in {place}", next=VERIFY)


def looped(name: bytes, place: str) -> Corrupt:
    return Corrupt(f"log segment {name.hex()} in {place} leads back to itself")
