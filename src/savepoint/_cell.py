"""A declared piece of state: a name, a type, and what it is before anything set it."""

import typing
from types import UnionType
from typing import Any, Generic, TypeVar, cast

from attrs import field, frozen

from ._errors import Usage

T = TypeVar("T")


@frozen(eq=False)
class Cell(Generic[T]):
    """Names state that a savepoint carries. Two cells with one name are the same state and must agree on its type."""

    name: str
    type: type[T] | UnionType
    """for a union say what it is: `Cell[int | None]("x", int | None, default=None)`"""
    default: T = field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        if not self.name:
            raise Usage("a cell needs a name", next="name it after what it holds")
        self.check(self.default)

    def check(self, value: object) -> None:
        """Raises `Usage` where `value` is not of the cell's type. Type arguments (`list[str]`) are not looked into."""
        if not _is(value, self.type):
            wanted = getattr(self.type, "__name__", None) or str(self.type)
            raise Usage(
                f"cell {self.name!r} holds {wanted}, not {type(value).__name__}",
                next=f"set a {wanted}, or declare the cell with the other type",
            )


def _is(value: object, wanted: Any) -> bool:
    origin = typing.get_origin(wanted)
    if origin in {UnionType, typing.Union}:
        return any(_is(value, one) for one in typing.get_args(wanted))
    if origin is typing.Literal:
        return any(value == one and type(value) is type(one) for one in typing.get_args(wanted))
    if wanted is Any or wanted is object:
        return True
    if wanted is None:
        return value is None
    # True is an int to Python, but comes back as True: a cell of numbers must not hold it.
    return isinstance(value, cast("type", origin or wanted)) and not (wanted is int and type(value) is bool)
