"""One part of a world: what can be snapshotted, forked, diffed, merged and discarded."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Protocol, Self

from attrs import frozen


class Contents(Protocol):
    """Where systems keep what their snapshots name: immutable bytes by digest (`Domain.CONTENT`), read back verified."""

    async def put(self, data: bytes) -> bytes:
        """Adds `data`, returns its digest. Durable only after `flush`."""
        ...

    async def get(self, digest: bytes) -> bytes:
        """Raises `Missing`, `Corrupt`."""
        ...

    async def has(self, digest: bytes) -> bool: ...

    async def flush(self) -> None:
        """Everything put so far is on stable storage when this returns."""
        ...


class ChangeKind(StrEnum):
    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


@frozen(kw_only=True)
class Change:
    """One difference between two snapshots of a system; `path` is text for people (undecodable bytes escaped)."""

    path: str
    kind: ChangeKind


class System(Protocol):
    """A part of a world. A *host* system is the user's own and is only ever changed by `apply`; a *fork* is a run's."""

    kind: ClassVar[str]
    """Stable name of the kind, part of a savepoint's identity: `workspace`, `keyvalue`, ..."""
    format: ClassVar[int]
    """Version of the snapshot id's meaning."""

    async def snapshot(self, contents: Contents) -> bytes:
        """The 32-byte content identity of the present state; what it names is in `contents` (flushed by the caller).

        The caller guarantees that nothing is writing through this system meanwhile.
        """
        ...

    async def fork(self, contents: Contents, *, at: bytes | None, place: Path) -> Self:
        """An isolated child at snapshot `at` (`None`: at the present state), kept in the directory `place`.

        This system, its parent and its siblings are never changed by it.
        """
        ...

    async def diff(self, contents: Contents, old: bytes, new: bytes) -> Sequence[Change]:
        """What changed between two snapshots, by path."""
        ...

    async def apply(self, contents: Contents, old: bytes, new: bytes) -> Sequence[Change]:
        """Brings the changes from `old` to `new` into this system (the merge).

        A path that changed here since `old` to something other than `new` has it is a conflict: `Conflict` lists all
        of them and nothing is written. A path that is as in `new` already counts as done, so repeating finishes.
        """
        ...

    async def left(self, contents: Contents, *, place: Path) -> bytes | None:
        """The id of what a fork whose process died left at `place`; None where nothing of it is there.

        Only evidence: what a call in doubt changed, if somebody says that it was performed.
        """
        ...

    async def discard(self) -> None:
        """Ends a fork and removes what it kept; ending it twice is a no-op. A host system refuses."""
        ...
