"""The handlers in scope, and the one walk from a performed effect through them to its body.

A handler runs in the scope outside itself, so what it performs goes outward; a body runs in the scope of whoever
performed it, however many handlers passed the call on. Design: `design/0003-effects.md`.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from attrs import define

from ._call import Call
from ._errors import BadDeclaration, OutOfScope
from ._layer import LAYER

if TYPE_CHECKING:
    from ._effect import Effect

P = ParamSpec("P")
R = TypeVar("R")
Forward: TypeAlias = Callable[[Call], Awaitable[object]]
"""Passes a call on, changed or not, any number of times, to the handlers further out and then to the body."""
Interceptor: TypeAlias = Callable[[Call, Forward], Awaitable[object]]
AnyEffect: TypeAlias = "Effect[..., Any]"


class Handling(ABC):
    """A handler that is installed by `with`. It holds no state of the block: one may be entered by many tasks."""

    def __enter__(self) -> None:
        SCOPE.set(_pushed(self, SCOPE.get()))

    def __exit__(self, *_: object) -> None:
        scope = SCOPE.get()
        if scope is None or scope.handling is not self:
            raise OutOfScope(
                "a handler's block was left in another context, or before a block that was entered after it",
                next="do not hold `with handler(...)` open across a `yield` of an async generator",
            )
        SCOPE.set(scope.outer)

    @abstractmethod
    def handles(self, effect: AnyEffect) -> bool: ...

    @abstractmethod
    def ask(self, performed: "_Performed", running: "Scope") -> Awaitable[object]: ...


@define(eq=False)  # not frozen: one is made per handled call, and freezing would double its price
class Scope:
    """A list of handlers, innermost first; never changed once made."""

    handling: Handling | None
    """`None` where the scope only marks whose code runs: a handler's or, within one, a body's."""
    outer: "Scope | None"
    forwards: "AnyEffect | None" = None
    """The effect whose handler runs here: performing it again passes it on."""
    origin: "Scope | None" = None
    """Where that effect was performed, with what was installed since; its body will run there."""
    base: "Scope | None" = None
    """The scope that the running handler started with, if more was installed on it."""


SCOPE: ContextVar[Scope | None] = ContextVar("effects_scope", default=None)


@define(eq=False)
class _Performed:
    """One pass of an effect: the arguments as they came; a `Call` only once somebody needs one."""

    effect: AnyEffect
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    origin: Scope | None
    made: Call | None = None

    @property
    def call(self) -> Call:
        if self.made is None:
            self.made = Call(effect=self.effect, args=self.args, kwargs=self.kwargs)
        return self.made


def _pushed(handling: Handling, onto: Scope | None) -> Scope:
    if onto is None or onto.forwards is None:
        return Scope(handling, onto)
    # A handler that installs another one around its forwarding means it for the body too.
    return Scope(handling, onto, onto.forwards, _pushed(handling, onto.origin), onto.base or onto)


def _find(scope: Scope | None, effect: AnyEffect) -> tuple[Handling, Scope | None] | None:
    """The innermost handler of the effect, and the scope outside it."""
    while scope is not None:
        handling = scope.handling
        if handling is not None and handling.handles(effect):
            return handling, scope.outer
        scope = scope.outer
    return None


def perform(effect: AnyEffect, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Awaitable[Any]:
    """Performs an effect in the present scope; to be awaited at once."""
    scope = SCOPE.get()
    if scope is not None and scope.forwards is effect:
        return _pass(_Performed(effect, args, kwargs, scope.origin), scope)
    performed = _Performed(effect, args, kwargs, scope)
    found = _find(scope, effect)
    layer = LAYER.get() if effect.receipted else None
    if found is None:
        return _enter(performed)
    if layer is None:
        return _ask(performed, *found)
    return layer.answer(performed.call, lambda: _ask(performed, *found))


def _pass(performed: _Performed, scope: Scope | None) -> Awaitable[object]:
    found = _find(scope, performed.effect)
    return _enter(performed) if found is None else _ask(performed, *found)


async def _ask(performed: _Performed, handling: Handling, outer: Scope | None) -> object:
    running = Scope(None, outer, performed.effect, performed.origin)
    token = SCOPE.set(running)
    try:
        return await handling.ask(performed, running)
    finally:
        SCOPE.reset(token)


def _enter(performed: _Performed) -> Awaitable[object]:
    layer = LAYER.get() if performed.effect.receipted else None
    if layer is None:
        return _body(performed)
    return layer.settle(performed.call, lambda: _body(performed))


async def _body(performed: _Performed) -> object:
    scope = performed.origin
    if scope is not None and scope.forwards is not None:
        # Performed by a handler: its body is other code, for which nothing is being passed on.
        scope = Scope(None, scope)
    token = SCOPE.set(scope)
    try:
        return await performed.effect.body(*performed.args, **performed.kwargs)
    finally:
        SCOPE.reset(token)


class _Answering(Handling):
    def __init__(self, effect: AnyEffect, fn: Callable[..., Awaitable[object]]) -> None:
        self._effect = effect
        self._fn = fn

    def handles(self, effect: AnyEffect) -> bool:
        return effect is self._effect

    def ask(self, performed: _Performed, running: Scope) -> Awaitable[object]:
        return self._fn(*performed.args, **performed.kwargs)


class _Intercepting(Handling):
    def __init__(self, fn: Interceptor, names: frozenset[str] | None) -> None:
        self._fn = fn
        self._names = names

    def handles(self, effect: AnyEffect) -> bool:
        return self._names is None or effect.name in self._names

    def ask(self, performed: _Performed, running: Scope) -> Awaitable[object]:
        async def forward(call: Call) -> object:
            if call.effect is not performed.effect:
                raise BadDeclaration(
                    f"an interceptor of {performed.effect.name} forwarded a call of {call.name}",
                    next="perform another effect by calling it; forward only passes this one on",
                )
            scope = SCOPE.get()
            # Elsewhere (in a queue's worker, say) the run's layer is not in the context: nothing would be receipted.
            if scope is None or not (scope is running or scope.base is running):
                raise OutOfScope(
                    f"a call of {call.name} was forwarded outside its interceptor",
                    next="await forward() in the interceptor, or in a task that it starts",
                )
            return await _pass(_Performed(call.effect, call.args, call.kwargs, scope.origin, call), scope)

        return self._fn(performed.call, forward)


def handler(effect: "Effect[P, R]", fn: Callable[P, Awaitable[R]]) -> Handling:
    """Within `with handler(send, fn):`, `send` is answered by `fn`, which has its signature.

    Performing `send` inside `fn` asks the handlers further out and then the body; what `fn` raises is raised where
    `send` was performed. Tasks and `asyncio.to_thread` inherit the handlers of where they start. Do not hold the block
    open across a `yield` of an async generator: its consumer would get the handler too. Leaving a block out of order
    raises `OutOfScope`.
    """
    return _Answering(effect, fn)


def intercept(fn: Interceptor, *, only: "Iterable[AnyEffect | str] | None" = None) -> Handling:
    """Within `with intercept(fn):`, every effect, or those in `only`, is answered by `await fn(call, forward)`.

    `await forward(call)` passes the call on, `forward(call.replace(body="..."))` a changed one. The typing of one
    effect's handler is better served by `handler`.
    """
    return _Intercepting(fn, None if only is None else names_of(only))


def names_of(effects: "Iterable[AnyEffect | str]") -> frozenset[str]:
    """The names of effects given as themselves or by name."""
    return frozenset(each if isinstance(each, str) else _name(each) for each in effects)


def _name(effect: AnyEffect) -> str:
    name = getattr(effect, "name", None)
    if not isinstance(name, str):
        raise BadDeclaration(f"{effect!r} is not an effect", next="pass effects, or their names as text")
    return name


def is_handled(effect: AnyEffect) -> bool:
    """Whether a handler in scope would be asked, so that what goes out may differ from what was performed."""
    return _find(SCOPE.get(), effect) is not None
