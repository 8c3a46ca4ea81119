"""Effects: declared operations with a name, a version, a typed signature and an idempotency class."""

import asyncio
import inspect
import math
from collections.abc import Callable, Coroutine, Mapping
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, cast

from attrs import Factory, define, evolve, field, setters

from ._call import Call
from ._errors import BadCall, BadDeclaration
from ._handler import SCOPE, perform
from ._idempotency import Idempotency
from ._layer import LAYER
from ._probe import Probe

P = ParamSpec("P")
R = TypeVar("R")
Body: TypeAlias = Callable[P, Coroutine[Any, Any, R]]
Identity: TypeAlias = Callable[..., Mapping[str, object]]

AMBIGUOUS: tuple[type[BaseException], ...] = (TimeoutError, asyncio.CancelledError, ConnectionError)
"""Errors after which nobody knows whether a `KEYED` or `ONCE` call happened, whatever the effect."""


def _names(declared: "Effect[..., Any]") -> Mapping[str, None]:
    parameters = declared.signature.parameters.values()
    plain = all(each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters)
    return dict.fromkeys(each.name for each in parameters) if plain else {}


def _is_receipted(declared: "Effect[..., Any]") -> bool:
    return declared.idempotency is not Idempotency.PURE


@define(eq=False, repr=False, kw_only=True, slots=False, on_setattr=setters.frozen)
class Effect(Generic[P, R]):
    """A declared operation; calling it performs it, through the handlers in scope. Made by `effect`."""

    name: str
    """Identifies the effect in receipts, whatever module it moves to."""
    version: int
    """Raised by its author when an old receipt no longer answers a new call."""
    idempotency: Idempotency
    writes_world: bool
    """It changes the run's world besides the outside: it runs alone and a snapshot is taken with its outcome."""
    ambiguous: tuple[type[BaseException], ...]
    """All errors that leave a doubt; empty for the classes that know none."""
    raises: tuple[type[Exception], ...]
    """Exception classes of the user's that a recorded failure is rebuilt as."""
    window_s: float | None
    """How long the remote remembers an idempotency key."""
    settles_within_s: float | None
    """How long after its start a call whose process died may still arrive outside."""
    max_age_s: float | None
    """How old a recorded result may be; `None`: any age."""
    identity: Identity | None
    body: Body[P, R]
    """The real implementation; calling it directly leaves no receipt."""
    signature: inspect.Signature
    named: Mapping[str, None] = field(init=False, default=Factory(_names, takes_self=True))
    """the parameters in order, if each can be given by position or by name; else empty"""
    receipted: bool = field(init=False, default=Factory(_is_receipted, takes_self=True))
    prober: Probe[R] | None = field(init=False, default=None, on_setattr=setters.NO_OP)
    compensation: "Effect[[Call, R], None] | None" = field(init=False, default=None, on_setattr=setters.NO_OP)

    def __attrs_post_init__(self) -> None:
        update_wrapper(self, self.body, updated=())

    def __repr__(self) -> str:
        return f"<effect {self.name} v{self.version} {self.idempotency}>"

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if SCOPE.get() is None and (not self.receipted or LAYER.get() is None):
            return await self.body(*args, **kwargs)
        return await perform(self, args, kwargs)

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, object]:
        """Parameter name -> value, defaults applied. Raises `BadCall`."""
        return self.bound(*args, **kwargs).arguments

    def bound(self, *args: Any, **kwargs: Any) -> inspect.BoundArguments:
        """Like `bind`, untyped and with the signature attached."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise BadCall(self.name, str(error)) from None
        bound.apply_defaults()
        return bound

    def identify(self, *args: Any, **kwargs: Any) -> Mapping[str, object]:
        """What identifies a call: its bound arguments, or what `identity` makes of them."""
        # All given and nothing to default: `inspect` would take 20 us to say the same.
        whole = len(args) == len(self.named) if args and not kwargs else kwargs.keys() == self.named
        if not (self.named and whole):
            bound = self.bound(*args, **kwargs)
            return bound.arguments if self.identity is None else self.identity(*bound.args, **bound.kwargs)
        if self.identity is not None:
            return self.identity(*args, **kwargs)
        return kwargs or dict(zip(self.named, args, strict=True))

    def recall(self, arguments: Mapping[str, object]) -> Call:
        """A recorded call, for probes, compensations and people: it has `arguments` only and enters no body."""
        return Call(effect=self, recorded=arguments)

    def leaves_doubt(self, error: BaseException) -> bool:
        """Whether after this error of its body nobody knows if the call happened."""
        return isinstance(error, self.ambiguous)

    def probe(self, fn: Probe[R]) -> Probe[R]:
        """Decorator: `async (call) -> Performed | NotPerformed | Unknown` asks the outside about a call in doubt.

        It may run in another process than the call did: it reads `call.arguments`, and changes nothing.
        """
        self._only_doubtful("a probe", taken=self.prober is not None)
        _require_async(f"the probe of {self.name}", fn)
        self.prober = fn
        return fn

    def compensate(self, fn: Body[[Call, R], None]) -> "Effect[[Call, R], None]":
        """Decorator: `async (call, result) -> None` undoes a performed call, reading `call.arguments`.

        It is a `ONCE` effect of its own, `NAME/compensate`, so handlers and receipts see it like any other.
        """
        self._only_doubtful("a compensation", taken=self.compensation is not None)
        declare = effect(
            f"{self.name}/compensate",
            version=self.version,
            idempotency=Idempotency.ONCE,
            writes_world=self.writes_world,
            identity=_compensated,
        )
        self.compensation = declare(fn)
        return self.compensation

    def reclassified(self, idempotency: Idempotency) -> "Effect[P, R]":
        """This effect as one run holds it: with another class, the same name and body. Raises `BadDeclaration`."""
        if Idempotency.PURE in (self.idempotency, idempotency):
            raise _mistake(self.name, "is pure, or would be: it leaves no receipts", "give it one of the other classes")
        _check_time(self.name, idempotency, "window_s", self.window_s if idempotency is Idempotency.KEYED else None,
                    (Idempotency.KEYED,))  # fmt: skip
        again = evolve(
            self,
            idempotency=idempotency,
            writes_world=self.writes_world and idempotency.outside,
            ambiguous=(self.ambiguous or AMBIGUOUS) if idempotency.doubtful else (),
            window_s=self.window_s if idempotency is Idempotency.KEYED else None,
            settles_within_s=self.settles_within_s if idempotency.doubtful else None,
            max_age_s=self.max_age_s if idempotency is Idempotency.READ else None,
        )
        if idempotency.doubtful:
            again.prober, again.compensation = self.prober, self.compensation
        return again

    def _only_doubtful(self, what: str, *, taken: bool) -> None:
        if not self.idempotency.doubtful:
            raise _mistake(self.name, f"is {self.idempotency}, so {what} is never asked", "declare it keyed or once")
        if taken:
            raise _mistake(self.name, f"has {what} already", "declare one only")


def effect(
    name: str,
    *,
    version: int = 1,
    idempotency: Idempotency | None = None,
    writes_world: bool | None = None,
    ambiguous: tuple[type[BaseException], ...] = (),
    raises: tuple[type[Exception], ...] = (),
    window_s: float | None = None,
    settles_within_s: float | None = None,
    max_age_s: float | None = None,
    identity: Identity | None = None,
) -> Callable[[Body[P, R]], Effect[P, R]]:
    """Declares the `async def` below it as an effect. Without a class it is `ONCE` and writes the world.

    `ambiguous` adds to the errors that leave a doubt (lost connection, timeout, cancellation; `KEYED` and `ONCE` only);
    `raises` names the exception classes that a recorded failure is rebuilt as; `identity` gets the call's arguments and
    returns those that identify it, where not all are portable. Raises `BadDeclaration`.
    """
    declared = Idempotency.ONCE if idempotency is None else idempotency
    writes = idempotency is None if writes_world is None else writes_world
    _check_name(name, version)
    _check_class(name, declared, writes_world=writes and idempotency is not None, ambiguous=bool(ambiguous))
    _check_time(name, declared, "window_s", window_s, (Idempotency.KEYED,))
    _check_time(name, declared, "settles_within_s", settles_within_s, (Idempotency.KEYED, Idempotency.ONCE))
    _check_time(name, declared, "max_age_s", max_age_s, (Idempotency.READ,))
    _check_errors(name, "ambiguous", ambiguous, BaseException)
    _check_errors(name, "raises", raises, Exception)

    def declare(body: Body[P, R]) -> Effect[P, R]:
        _require_async(name, body)
        return Effect(
            name=name,
            version=version,
            idempotency=declared,
            writes_world=writes,
            ambiguous=(*AMBIGUOUS, *ambiguous) if declared.doubtful else (),
            raises=raises,
            window_s=window_s,
            settles_within_s=settles_within_s,
            max_age_s=max_age_s,
            identity=identity,
            body=body,
            signature=_signature(name, body),
        )

    return declare


def _compensated(call: Call, result: object) -> Mapping[str, object]:
    return {"effect": call.name, "version": call.version, "arguments": dict(call.arguments)}


def _mistake(name: object, cause: str, move: str) -> BadDeclaration:
    return BadDeclaration(f"effect {name!r} {cause}", next=move)


def _check_name(name: object, version: object) -> None:
    if not isinstance(name, str):
        raise _mistake(name, "has no name", 'write @effect("name") with the name as text')
    if not name or name != name.strip() or not name.isprintable():
        raise _mistake(name, "has an empty, padded or unprintable name", 'name it like "mail/send"')
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _mistake(name, f"has version {version!r}", "count versions from 1")


def _check_class(name: str, declared: object, *, writes_world: bool, ambiguous: bool) -> None:
    if not isinstance(declared, Idempotency):
        raise _mistake(name, f"has class {declared!r}", "use a member of Idempotency")
    if writes_world and not declared.outside:
        raise _mistake(name, f"is {declared} and writes the world", "drop writes_world, or declare it once")
    if ambiguous and not declared.doubtful:
        raise _mistake(name, f"is {declared}, which knows no doubt", "drop ambiguous, or declare it keyed or once")


def _check_time(name: str, declared: Idempotency, word: str, value: object, allowed: tuple[Idempotency, ...]) -> None:
    if value is None:
        if word == "window_s" and declared is Idempotency.KEYED:
            raise _mistake(name, "is keyed without a window", "give window_s, the seconds that the remote keeps a key")
        return
    if declared not in allowed:
        raise _mistake(name, f"is {declared}, for which {word} means nothing", f"only {' and '.join(allowed)} have it")
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise _mistake(name, f"has {word}={value!r}", "give seconds as a finite number, 0 or more")


def _check_errors(name: str, word: str, classes: object, root: type[BaseException]) -> None:
    if not isinstance(classes, tuple):
        raise _mistake(name, f"has {word}={classes!r}", "give a tuple of exception classes")
    for each in cast("tuple[object, ...]", classes):
        if not (isinstance(each, type) and issubclass(each, root)):
            raise _mistake(name, f"has {each!r} in {word}", f"name subclasses of {root.__name__}")


def _require_async(name: str, fn: object) -> None:
    if not inspect.iscoroutinefunction(fn):
        raise _mistake(name, "is not an `async def`", "make it async; run blocking work in asyncio.to_thread")


def _signature(name: str, body: Callable[..., object]) -> inspect.Signature:
    signature = inspect.signature(body)
    if next(iter(signature.parameters), None) in ("self", "cls"):
        raise _mistake(name, "is a method", "declare a function and pass what it works on")
    return signature
