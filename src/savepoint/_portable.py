"""What users do with portable values: normalise, compare, encode, digest. The domain itself is `_walk.py`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from attrs import field, frozen

from ._atoms import Blob
from ._digest import Domain, seal
from ._types import plan_of, portable
from ._walk import Walk

if TYPE_CHECKING:
    from ._log import Log

__all__ = ["Blob", "Encoded", "digest", "encode", "is_immutable", "normalise", "portable", "same"]


@frozen(kw_only=True)
class Encoded:
    """A value with its bytes, so that nothing is encoded twice for two purposes."""

    digest: bytes
    """names `body` in a store"""
    body: bytes = field(eq=False, repr=False)
    """canonical bytes, linked: a log is its count and root"""
    value: Any = field(eq=False)
    """in normal form"""
    logs: "tuple[Log[Any], ...]" = field(eq=False)
    """the logs that `body` names"""
    blobs: tuple[Blob, ...] = field(eq=False)


def encode(value: object, path: str = "value") -> Encoded:
    """Canonical bytes of `value`, linked. Raises `NotPortable`."""
    walk = Walk()
    normal = walk.run(value, path)
    body = bytes(walk.out)
    return Encoded(
        digest=seal(Domain.OBJECT, body), body=body, value=normal, logs=tuple(walk.logs), blobs=tuple(walk.blobs)
    )


def digest(value: object) -> bytes:
    """The 32 bytes that name `value`: equal for equal content, in every process. Costs nothing for a log's elements."""
    walk = Walk()
    walk.run(value)
    return seal(Domain.OBJECT, walk.out)


def normalise(value: object, path: str = "value") -> Any:
    """A deep copy as a reader of the stored bytes would get it: dicts in canonical order, nothing shared.

    What is normal and immutable is returned as it is. Raises `NotPortable` with the offender's path below `path`.
    """
    return Walk().run(value, path)


def same(a: object, b: object) -> bool:
    """Equal and of the same types at every depth: 1, 1.0 and True differ, NaN is NaN, the order of a dict is nothing.

    Raises `NotPortable`.
    """
    one, other = Walk(), Walk()
    one.run(a)
    other.run(b)
    return one.out == other.out


def is_immutable(value: object) -> bool:
    """Whether a portable value holds nothing that can be changed."""
    kind = type(value)
    if kind is tuple or kind is frozenset:
        return all(map(is_immutable, cast("Iterable[object]", value)))
    if kind in _MUTABLE:
        return False
    plan = plan_of(kind)
    if plan is None:
        return True
    names = (*plan.fields, plan.keeps) if plan.keeps else plan.fields
    return plan.immutable and all(is_immutable(getattr(value, name)) for name in names)


_MUTABLE = frozenset({list, dict, set})
