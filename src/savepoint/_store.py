"""What a store is: immutable objects, control rows, and one unit of work over both.

`_memory.py` is the first implementation to read, `_sqlite.py` the durable one. `savepoint.testing` holds the
contract suite that both pass. Design: `design/0001-shape.md`.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Protocol

from attrs import frozen

from ._digest import Domain, seal
from ._system import Contents


class Space(StrEnum):
    """The ledger's kinds of rows."""

    HEAD = "head"
    """lineage -> count, chain, step, newest savepoint; every commit of a run compares and sets it"""
    EVENT = "event"
    """lineage, number -> the events of one commit"""
    POINT = "point"
    """lineage, step -> the savepoint persisted there"""
    RUN = "run"
    """run id -> the run record"""
    LEASE = "lease"
    """run id -> epoch, owner, deadline"""
    QUESTION = "question"
    """lineage, question id -> the question"""
    DECISION = "decision"
    """lineage, question id -> the decision"""
    REQUEST = "request"
    """run id -> a wish to cancel"""
    LOCAL = "local"
    """run id -> what only this machine knows: target, project directory"""
    NESTED = "nested"
    """lineage, nested lineage -> the run that was begun inside a run of the lineage"""
    SESSION = "session"
    """session id -> its head: how many segments and entries, the root of their log"""
    SEGMENT = "segment"
    """session id, number -> one run's part of the session, without its entries"""
    MEMBER = "member"
    """session id, run id -> the number of the run's segment, or that it was rewound: an append is idempotent by this"""
    PENDING = "pending"
    """session id, run id -> a run that started in the session and has not landed in it yet"""


class Kind(IntEnum):
    """How an object's name follows from its bytes."""

    OBJECT = 0
    """the digest of the bytes"""
    SEGMENT = 1
    """the chained root of a `Log` segment: starts with the 32 bytes of the previous root"""


@frozen(kw_only=True)
class Row:
    """One control row, verified on reading."""

    key: bytes
    body: bytes
    digest: bytes


def row_digest(space: Space, key: bytes, body: bytes) -> bytes:
    """The digest of a row, which covers its place too: a row moved elsewhere is damage."""
    # A member of a StrEnum is its text: `value` would be a slow descriptor.
    return seal(Domain.ROW, b"".join((space.encode(), b"\0", len(key).to_bytes(4, "big"), key, body)))


class Transaction(Protocol):
    """One unit of work: collected while the block runs, applied at its end, all or nothing."""

    def put(self, name: bytes, body: bytes, kind: Kind = Kind.OBJECT) -> None:
        """Adds an object; putting one that is there already is a no-op. `name` must follow from `body`."""
        ...

    def write(self, space: Space, key: bytes, body: bytes) -> bytes:
        """Inserts or replaces a row; returns its digest."""
        ...

    def delete(self, space: Space, key: bytes) -> None: ...

    def expect(self, space: Space, key: bytes, digest: bytes | None) -> None:
        """At the commit the row must have this digest (`None`: must be absent), else `Stale` and nothing is applied."""
        ...


class Store(Protocol):
    """A place for objects and rows. Reading verifies every byte it returns."""

    @property
    def contents(self) -> Contents:
        """What world snapshots name."""
        ...

    @property
    def forks(self) -> Path:
        """The directory in which attempts fork the world."""
        ...

    @property
    def locks(self) -> Path | None:
        """The directory of kernel locks; None where no other process can open this store."""
        ...

    def commit(self, *, sync: bool = True) -> AbstractAsyncContextManager[Transaction]:
        """A unit of work. Leaving the block applies it; an exception in the block applies nothing.

        `sync`: on stable storage when the block is left, whatever the store's durability mode. A cancellation while it
        is applied is delivered after it is finished. Commits of concurrent tasks are grouped.
        Raises `Stale` (an expectation failed), `NotWritable` (read-only, full, busy).
        """
        ...

    async def read(self, space: Space, key: bytes) -> Row | None:
        """One row. Raises `Corrupt`."""
        ...

    async def scan(
        self, space: Space, prefix: bytes = b"", *, after: bytes = b"", limit: int | None = None
    ) -> Sequence[Row]:
        """Rows whose key starts with `prefix`, by key, those greater than `after` only. Raises `Corrupt`."""
        ...

    async def objects(self, names: Sequence[bytes]) -> Sequence[bytes]:
        """The bytes of these objects, in this order. Raises `Missing`, `Corrupt`."""
        ...

    async def segments(self, root: bytes, *, until: bytes) -> Sequence[bytes]:
        """The log segments from `root` back to, not including, the one that ends at `until`; newest first.

        Raises `Missing` where the chain breaks off. The caller (`_log.py`) verifies the roots while it reads them.
        """
        ...
