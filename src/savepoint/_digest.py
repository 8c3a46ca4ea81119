"""Content hashing: BLAKE3-256 with one key a domain, so that equal bytes in two roles never share a name.

The only module that imports blake3. See `design/format.md`.
"""

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
    SAVEPOINT = _key("savepoint")
    CALL = _key("call")
    IDEMPOTENCY = _key("idempotency")
    QUESTION = _key("question")
    LINEAGE = _key("lineage")
    TREE = _key("tree")
    CONTENT = _key("content")
    FINGERPRINT = _key("fingerprint")


def seal(domain: Domain, data: bytes | bytearray | memoryview) -> bytes:
    """The 32-byte digest of `data` in its role.

    Compound data is framed by the caller: canonical bytes, or parts of fixed width.
    """
    # blake3 hashes None as the empty string; a missing value must never get a name.
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"seal() hashes bytes, not {type(data).__name__}")
    # `value` is a descriptor in Python, and this is called thirty times a turn.
    return blake3(data, key=domain._value_).digest()


class Sealer:
    """An incremental `seal`, for content that does not fit in memory."""

    def __init__(self, domain: Domain) -> None:
        self._hash = blake3(key=domain.value)

    def update(self, data: bytes | bytearray | memoryview) -> None:
        self._hash.update(data)

    def digest(self) -> bytes:
        return self._hash.digest()
