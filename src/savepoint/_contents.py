"""Contents in memory, and what contents may offer beyond the protocol: many reads in one go, notes.

A note is a remark beside a digest that the digest does not cover (a tree's modification times). Contents without
these still work: reads go one by one, and times are not restored.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ._digest import Domain, seal
from ._errors import Missing
from ._system import Contents


@runtime_checkable
class Bulk(Protocol):
    """Contents that read many in one hop."""

    async def get_many(self, digests: Sequence[bytes]) -> Sequence[bytes]:
        """In the order asked. Raises `Missing`, `Corrupt`."""
        ...


@runtime_checkable
class Notes(Protocol):
    """Contents that keep a remark beside a digest; the last one counts. Durable after `flush`."""

    async def note(self, subject: bytes, remark: bytes) -> None: ...

    async def noted(self, subject: bytes) -> bytes | None:
        """Raises `Corrupt`."""
        ...


async def get_many(contents: Contents, digests: Sequence[bytes]) -> Sequence[bytes]:
    """The bytes of these digests, in this order. Raises `Missing`, `Corrupt`."""
    if isinstance(contents, Bulk):
        return await contents.get_many(digests)
    return [await contents.get(digest) for digest in digests]


async def note(contents: Contents, subject: bytes, remark: bytes) -> None:
    """Leaves `remark` beside `subject` where the contents can hold notes."""
    if isinstance(contents, Notes):
        await contents.note(subject, remark)


async def noted(contents: Contents, subject: bytes) -> bytes | None:
    return await contents.noted(subject) if isinstance(contents, Notes) else None


class MemoryContents:
    """Contents that live as long as this object."""

    def __init__(self) -> None:
        self._held: dict[bytes, bytes] = {}
        self._notes: dict[bytes, bytes] = {}

    async def put(self, data: bytes) -> bytes:
        digest = seal(Domain.CONTENT, data)
        self._held.setdefault(digest, data)
        return digest

    async def get(self, digest: bytes) -> bytes:
        try:
            return self._held[digest]
        except KeyError:
            raise absent(digest) from None

    async def get_many(self, digests: Sequence[bytes]) -> Sequence[bytes]:
        return [await self.get(digest) for digest in digests]

    async def has(self, digest: bytes) -> bool:
        return digest in self._held

    async def note(self, subject: bytes, remark: bytes) -> None:
        self._notes[subject] = remark

    async def noted(self, subject: bytes) -> bytes | None:
        return self._notes.get(subject)

    async def flush(self) -> None:
        """Memory has no stable storage; there is nothing to wait for."""

    @property
    def size(self) -> int:
        """Bytes held, notes not counted."""
        return sum(map(len, self._held.values()))


def absent(digest: bytes) -> Missing:
    """The error for a digest that is nowhere."""
    return Missing(f"content {digest.hex()} is not in the store", next="import it, or use an earlier savepoint")
