"""The savepoint effect: a named gap between steps, published to the handlers in scope.

Without a handler it returns its default and costs a lookup. A handler holds the program at the point until it returns
(the program goes on with that value, once) or raises (`Abandon` unwinds the program).
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import field, frozen, mutable

from effects import Call, Layer, Refused
from effects._layer import LAYER

from ._cell import Cell
from ._codec import Encoded
from ._errors import Usage
from ._form import form_of, savepoint_of
from ._resumable import Bound, Registry
from ._store import Store
from ._stored import put_value
from ._world import World

if TYPE_CHECKING:
    from ._hydrate import Revived

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
            raise Usage(
                f"the savepoint {self.name!r} was left already", next="persist or fork before the handler returns"
            )
        if self.resume is None:
            raise Usage(f"the savepoint {self.name!r} names no resume function", next="pass resume=function.at(...)")
        return self.resume

    def declared(self) -> dict[str, object]:
        """Cell name -> value of the declared state."""
        return {cell.name: self.world[cell] for cell in self.state}

    async def persist(self, store: Store) -> bytes:
        """Writes the portable form and what it names; returns its id (32 bytes). Consumes nothing, repeats freely."""
        form, _ = await self._taken(store)
        async with store.commit() as tx:
            durable = put_value(tx, form, store)
        durable()
        return form.digest

    @asynccontextmanager
    async def fork(self, *, store: Store, host: World | None = None) -> AsyncGenerator["Revived"]:
        """A continuation in a world of its own, for the time of the block; any number while the point is held.

        What `persist` and then `hydrate` give, without reading the form back. `host` is the world that is forked at
        the point's snapshot; by default the program's own, which stays as it is. `store` holds the contents.
        """
        from ._hydrate import revived  # noqa: PLC0415  entering a continuation publishes points itself

        form, resume = await self._taken(store)
        savepoint = savepoint_of(form.digest, form.value, Registry([resume.resumable]))
        async with revived(savepoint, store=store, host=host or self.world) as continuation:
            yield continuation

    async def _taken(self, store: Store) -> tuple[Encoded, Bound]:
        """The form at this point. Its values are copies: nothing is shared with the program that is held."""
        resume = self.require_resume()
        ids = await self.world.snapshot(store.contents)
        # A handler that returned meanwhile let the program go on: world and state would be of two moments.
        self.require_resume()
        return form_of(self.name, self.key, resume, self.declared(), ids), resume

    def consume(self) -> None:
        self._consumed = True


PointHandler = Callable[[Point], Awaitable[Any]]


@frozen(kw_only=True, eq=False)
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
    installed = _Installed(name=name, handle=handle)
    token = _HANDLERS.set((*_HANDLERS.get(), installed))
    try:
        yield
    finally:
        _HANDLERS.reset(token)
        layer = LAYER.get()
        if isinstance(layer, Unwinding) and layer.by is installed:
            LAYER.set(layer.inner)


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
    if isinstance(LAYER.get(), Unwinding):
        raise _unwinding(name)
    point = Point(name=name, key=key, resume=resume, state=state, world=current_world(), default=default)
    return await _publish(point, installed)


async def publish_end(end: End, world: World) -> tuple[str, ...]:
    """Tells every handler of all points that the program has ended: each of them once, the innermost first.

    The end stands whatever a handler makes of it. Returns what they raised, in words.
    """
    point = Point(name="end", key=None, resume=None, state=(), world=world, default=None, end=end)
    raised: list[str] = []
    for position, installed in reversed([*enumerate(_HANDLERS.get())]):
        if installed.name is None:
            try:
                with _outward(position):
                    await installed.handle(point)
            except Exception as error:  # noqa: BLE001  the others must still be told
                raised.append(f"a savepoint handler failed at the end of the program: {error!r}")
    return tuple(raised)


async def _publish(point: Point, installed: tuple[_Installed, ...]) -> Any:
    for position in range(len(installed) - 1, -1, -1):
        if installed[position].name in (None, point.name):
            return await _ask(point, installed[position], position)
    return point.default


async def _ask(point: Point, installed: _Installed, position: int) -> Any:
    token = _HANDLERS.set(_HANDLERS.get()[:position])
    try:
        return await installed.handle(point)
    except Abandon:
        LAYER.set(Unwinding(installed, LAYER.get()))
        raise Abandoned(point.name) from None
    finally:
        _HANDLERS.reset(token)
        point.consume()


@contextmanager
def _outward(position: int) -> Generator[None]:
    token = _HANDLERS.set(_HANDLERS.get()[:position])
    try:
        yield
    finally:
        _HANDLERS.reset(token)


class Unwinding:
    """The layer of an abandoned program, up to the block of the handler that abandoned it: nothing acts outside.

    A layer and not a handler: the program leaves its own handlers' blocks while it unwinds, and with them whatever
    was installed inside.
    """

    def __init__(self, by: _Installed, inner: Layer | None) -> None:
        self.by = by
        self.inner = inner

    async def settle(self, call: Call, body: Callable[[], Awaitable[object]]) -> object:
        _refuse_outside(call)
        return await (body() if self.inner is None else self.inner.settle(call, body))

    async def answer(self, call: Call, ask: Callable[[], Awaitable[object]]) -> object:
        _refuse_outside(call)
        return await (ask() if self.inner is None else self.inner.answer(call, ask))

    def branch(self, name: str) -> AbstractContextManager[None]:
        return nullcontext() if self.inner is None else self.inner.branch(name)


@contextmanager
def until_abandoned() -> Generator[None]:
    """A program that is abandoned in this block ends as that, whatever it makes of its unwinding."""
    try:
        yield
    except Exception as error:
        if isinstance(LAYER.get(), Unwinding):
            raise Abandoned(str(error)) from error
        raise
    if isinstance(LAYER.get(), Unwinding):
        raise Abandoned("the program went on after its savepoint was abandoned")


def _refuse_outside(call: Call) -> None:
    if call.effect.idempotency.outside:
        raise _unwinding(call.name)


def _unwinding(name: str) -> Refused:
    return Refused(name, "the program is being unwound at an abandoned savepoint", next="act before the savepoint")


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
