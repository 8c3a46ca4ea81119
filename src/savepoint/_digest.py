"""Content hashing: BLAKE3-256 with one key a domain, so that equal bytes in two roles never share a name.

The only module that imports blake3. See `design/format.md`.
"""

from collections.abc import Iterable
from enum import Enum

from blake3 import blake3

SIZE = 32
"""Bytes of a digest."""


def _key(name: str) -> bytes:
    return blake3(b"", derive_key_context=f"portable-savepoints 2026 {name} v1").digest()


class Domain(Enum):
    """What the hashed bytes are; the value is the 32-byte key of the hash."""

    OBJECT = _key("object")
    LOG = _key("log")
    ROW = _key("row")
    CHAIN = _key("chain")
    CALL = _key("call")
    IDEMPOTENCY = _key("idempotency")
    QUESTION = _key("question")
    LINEAGE = _key("lineage")
    TREE = _key("tree")
    CONTENT = _key("content")

    def __init__(self, key: bytes) -> None:
        # Copied for each hash: setting up the key costs more than hashing 64 bytes.
        self.keyed = blake3(key=key)


def seal(domain: Domain, data: bytes | bytearray | memoryview) -> bytes:
    """The 32-byte digest of `data` in its role.

    Compound data is framed by the caller: canonical bytes, or parts of fixed width.
    """
    # `blake3(None)` is the hash of nothing; `update` refuses what is no bytes, and a missing value never gets a name.
    return domain.keyed.copy().update(data).digest()


def chained(domain: Domain, first: bytes, links: Iterable[bytes]) -> list[bytes]:
    """`first`, then after each link the digest of what came before with that link."""
    keyed = domain.keyed
    digests = [first]
    for link in links:
        first = keyed.copy().update(first + link).digest()
        digests.append(first)
    return digests
