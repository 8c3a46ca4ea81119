"""A map in memory as a part of a world; also the adapter for a simulator's own state.

Values are held as canonical bytes: forks share them without copying and can never see each other's objects.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

from ._codec import dumps, loads
from ._conflict import MergeConflict
from ._errors import Corrupt, NotPortable, Usage
from ._system import Change, ChangeKind, Contents

_Bytes = dict[str, bytes]


class KeyValue:
    """Text keys to portable values. A fork is O(1); the first write after it, on either side, copies the map's spine.

    What is read is a copy: change a value by setting it again. Values must need no registered types.
    """

    kind: ClassVar[str] = "keyvalue"
    format: ClassVar[int] = 1

    def __init__(self, initial: Mapping[str, object] | None = None) -> None:
        self._data: _Bytes = {}
        self._shared = False
        self._owned = False
        for key, value in (initial or {}).items():
            self[key] = value

    def __getitem__(self, key: str) -> Any:
        return loads(self._data[key])

    def __setitem__(self, key: str, value: object) -> None:
        """Raises `NotPortable` with the path of what cannot be kept."""
        if type(key) is not str:
            raise NotPortable("key", f"{type(key).__name__} is not text", next="use a str")
        data = dumps(value)
        self._own()[key] = data

    def __delitem__(self, key: str) -> None:
        if key not in self._data:
            raise KeyError(key)
        del self._own()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._data))

    def __len__(self) -> int:
        return len(self._data)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self._data else default

    def items(self) -> Iterator[tuple[str, Any]]:
        """By key, whatever the order of setting was."""
        return ((key, self[key]) for key in self)

    async def snapshot(self, contents: Contents) -> bytes:
        return await contents.put(dumps(self._data))

    async def fork(self, contents: Contents, *, at: bytes | None, place: Path) -> "KeyValue":
        child = KeyValue()
        if at is None:
            child._data, child._shared = self._data, True
            self._shared = True
        else:
            child._data = await _load(contents, at)
        child._owned = True
        return child

    async def diff(self, contents: Contents, old: bytes, new: bytes) -> Sequence[Change]:
        return _changes(await _load(contents, old), await _load(contents, new))

    async def conflicts(self, contents: Contents, old: bytes, new: bytes) -> Sequence[str]:
        """The keys that `apply` would refuse, nothing written."""
        return self._clashes(await _load(contents, old), await _load(contents, new))

    async def apply(self, contents: Contents, old: bytes, new: bytes) -> Sequence[Change]:
        before, after = await _load(contents, old), await _load(contents, new)
        if clashes := self._clashes(before, after):
            raise MergeConflict(self.kind, clashes)
        changes = _changes(before, after)
        data = self._own()
        for change in changes:
            if change.kind is ChangeKind.REMOVED:
                data.pop(change.path, None)
            else:
                data[change.path] = after[change.path]
        return changes

    async def left(self, contents: Contents, *, place: Path) -> bytes | None:
        """Nothing: the map died with its process."""
        return None

    async def discard(self) -> None:
        """Drops what a fork held. Raises `Usage` for a host's own map."""
        if not self._owned:
            raise Usage("this map is not a fork", next="discard the fork, not its parent")
        self._data, self._shared = {}, False

    def _own(self) -> _Bytes:
        if self._shared:
            self._data, self._shared = dict(self._data), False
        return self._data

    def _clashes(self, before: _Bytes, after: _Bytes) -> Sequence[str]:
        paths = (change.path for change in _changes(before, after))
        return [p for p in paths if self._data.get(p) not in (before.get(p), after.get(p))]


def _changes(old: _Bytes, new: _Bytes) -> list[Change]:
    return [
        Change(path=key, kind=_kind(key, old, new))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def _kind(key: str, old: _Bytes, new: _Bytes) -> ChangeKind:
    if key not in old:
        return ChangeKind.ADDED
    return ChangeKind.CHANGED if key in new else ChangeKind.REMOVED


async def _load(contents: Contents, snapshot: bytes) -> _Bytes:
    data = loads(await contents.get(snapshot))
    if not isinstance(data, dict):
        raise Corrupt("keyvalue snapshot: not a map", next="use an earlier savepoint")
    rows = cast("dict[object, object]", data)
    if not all(isinstance(key, str) and isinstance(value, bytes) for key, value in rows.items()):
        raise Corrupt("keyvalue snapshot: not a map of text to values", next="use an earlier savepoint")
    return cast("_Bytes", rows)
