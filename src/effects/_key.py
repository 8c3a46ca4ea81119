"""Call keys: a path of components of fixed width, one a level, so that "below" is a prefix test.

Whoever builds keys (the journal) hashes effect, arguments and occurrence into a component; the rules only walk paths.
"""

WIDTH = 16
"""Bytes of one component."""

ROOT = b""
"""The key of the program itself: the parent of what it performs directly."""


def parent(key: bytes) -> bytes:
    """The key of the body, branch or reply's call that performed this call."""
    return key[:-WIDTH]


def below(key: bytes, ancestor: bytes) -> bool:
    """Whether `key` lies under `ancestor`, at any depth; no key lies below itself."""
    return len(key) > len(ancestor) and key.startswith(ancestor)


def at_or_below(key: bytes, ancestor: bytes) -> bool:
    return key.startswith(ancestor)


def ancestors(key: bytes, *, top: int = 0) -> tuple[bytes, ...]:
    """The keys above `key`, outermost first, from depth `top` (0: the program itself)."""
    return tuple(key[:end] for end in range(top * WIDTH, len(key), WIDTH))
