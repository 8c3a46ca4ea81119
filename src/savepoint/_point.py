"""The savepoint effect: a named gap between steps, published to the handlers in scope.

Without a handler it returns its default and costs a lookup. A handler holds the program at the point until it returns
(the program goes on with that value, once) or raises (`Abandon` unwinds the program).
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from attrs import field, frozen, mutable

from effects import Call, Forward, Refused, intercept

from ._cell import Cell
from ._errors import Usage
from ._form import form_of
from ._resumable import Bound
from ._store import Store
from ._stored import put_value
from ._world import World

T = TypeVar("T")


class Abandon(Exception):
    """Raised by a handler: consumes the point and unwinds the program."""


class Abandoned(BaseException):
    """What the program meets at a point that was abandoned; `finally` blocks run, nothing outside may be done."""


@frozen(kw_only=True)
class End:
    """How a program ended, published once to every handler of all points."""

    status: str
    """`result`, `error` or `abandoned`"""
    value: object = None
    """the result, or the error"""


@mutable(kw_only=True, eq=False)
class Point:
    """A published savepoint, as its handler sees it."""

    name: str
    key: object
    resume: Bound | None
    state: Sequence[Cell[Any]]
    world: World
    default: object
    end: End | None = None
    """set for the end of the program; such a point cannot be persisted"""
    _consumed: bool = field(default=False, alias="_consumed")

    def require_resume(self) -> Bound:
        """Raises `Usage` where there is nothing to resume with, or where the program has gone on already."""
        if self._consumed:
            raise Usage(f"the savepoint {self.name!r} was left already", next="persist or fork before the handler returns")
        if self.resume is None:
            raise Usage(f"the savepoint {self.name!r} names no resume function", next="pass resume=function.at(...)")
        return self.resume

    def declared(self) -> dict[str, object]:
        """Cell name -> value of the declared state."""
        return {cell.name: self.world[cell] for cell in self.state}

    async def persist(self, store: Store) -> bytes:
        """Writes the portable form and what it names; returns its id (32 bytes). Consumes nothing, repeats freely."""
        resume = self.require_resume()
        ids = await self.world.snapshot(store.contents)
        form = form_of(self.name, self.key, resume, self.declared(), ids)
        async with store.commit() as tx:
            durable = put_value(tx, form, store)
        durable()
        return form.digest

    def consume(self) -> None:
        self._consumed = True


PointHandler = Callable[[Point], Awaitable[Any]]


@frozen(kw_only=True)
class _Installed:
    name: str | None
    handle: PointHandler


_HANDLERS: ContextVar[tuple[_Installed, ...]] = ContextVar("savepoint_handlers", default=())
"""innermost last"""
WORLD: ContextVar[World | None] = ContextVar("savepoint_world", default=None)


@contextmanager
def at_savepoint(handle: PointHandler, *, name: str | None = None) -> Generator[None]:
    """Installs `async (point) -> value` for the savepoints called `name` (`None`: all of them, and the program's end).

    A savepoint that a handler itself publishes goes outward.
    """
    token = _HANDLERS.set((*_HANDLERS.get(), _Installed(name=name, handle=handle)))
    try:
        yield
    finally:
        _HANDLERS.reset(token)


async def savepoint(
    name: str, *, key: object = None, resume: Bound | None = None, state: Sequence[Cell[Any]] = (), default: Any = None
) -> Any:
    """Publishes the gap `name` to the handlers in scope and returns what they answer, or `default` without one.

    `key` identifies the gap for people (portable); `resume` is the rest of the program, `function.at(...)`; `state`
    are the cells that the rest needs. Raises `Abandoned` where the handler abandons the point.
    """
    installed = _HANDLERS.get()
    if not installed:
        return default
    point = Point(name=name, key=key, resume=resume, state=state, world=current_world(), default=default)
    return await _publish(point, installed)


async def publish_end(end: End, world: World) -> None:
    """Tells every handler of all points that the program has ended."""
    point = Point(name="end", key=None, resume=None, state=(), world=world, default=None, end=end)
    for position, installed in reversed([*enumerate(_HANDLERS.get())]):
        if installed.name is None:
            with _outward(position):
                await installed.handle(point)


async def _publish(point: Point, installed: tuple[_Installed, ...]) -> Any:
    for position in range(len(installed) - 1, -1, -1):
        if installed[position].name in (None, point.name):
            return await _ask(point, installed[position].handle, position)
    return point.default


async def _ask(point: Point, handle: PointHandler, position: int) -> Any:
    try:
        with _outward(position):
            return await handle(point)
    except Abandon:
        refuse_everything()
        raise Abandoned(point.name) from None
    finally:
        point.consume()


@contextmanager
def _outward(position: int) -> Generator[None]:
    token = _HANDLERS.set(_HANDLERS.get()[:position])
    try:
        yield
    finally:
        _HANDLERS.reset(token)


def refuse_everything() -> None:
    """From here on this task publishes nothing and does nothing outside: it is only unwinding."""

    async def refuse(call: Call, forward: Forward) -> object:
        if call.effect.idempotency.outside:
            raise Refused(call.name, "the program is being unwound at an abandoned savepoint")
        return await forward(call)

    async def refuse_point(point: Point) -> Any:
        raise Refused(point.name, "the program is being unwound at an abandoned savepoint")

    # Never left: the rest of this task's life is the unwinding.
    intercept(refuse).__enter__()
    _HANDLERS.set((_Installed(name=None, handle=refuse_point),))


def current_world() -> World:
    """The world of the program that is running; an empty one where nobody set it."""
    world = WORLD.get()
    return World() if world is None else world


@contextmanager
def using_world(world: World) -> Generator[World]:
    """The savepoints of the block are taken in `world`."""
    token = WORLD.set(world)
    try:
        yield world
    finally:
        WORLD.reset(token)
