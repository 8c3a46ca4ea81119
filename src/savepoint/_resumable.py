"""Named functions that a savepoint resumes with, and the explicit registry that finds them again."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from attrs import Factory, field, frozen

from effects import Effect, Idempotency
from effects._failure import Failure

from ._errors import Foreign, Newer, Usage
from ._portable import portable
from ._types import Types
from ._world import World

P = ParamSpec("P")
R = TypeVar("R")
Arguments = dict[str, object]
Migration = Callable[[Arguments], Arguments]


@portable("savepoint/current-run")
@frozen
class CurrentRun:
    """Stands for the run id in a savepoint's arguments, so that equal prefixes of two runs have equal identities."""


CURRENT_RUN = CurrentRun()
OURS = Types([CurrentRun, portable("effects/failure")(Failure)])


@frozen(kw_only=True)
class Bound:
    """A resumable with its arguments: what a savepoint resumes with."""

    resumable: "Resumable[..., Any]"
    arguments: Mapping[str, object]
    """by parameter name, without the world"""

    def having(self, more: Mapping[str, object]) -> "Bound":
        """With further arguments. Raises `Usage` for names that the function does not take."""
        unknown = more.keys() - self.resumable.signature.parameters.keys()
        if unknown:
            raise Usage(
                f"{self.resumable.name} takes no argument {min(unknown)!r}",
                next="give its resume function such a parameter",
            )
        return Bound(resumable=self.resumable, arguments={**self.arguments, **more})


def _plain_parameters(resumable: "Resumable[..., Any]") -> tuple[str, ...]:
    parameters = resumable.signature.parameters.values()
    plain = all(each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters)
    return tuple(each.name for each in parameters) if plain else ()


def _without_world(resumable: "Resumable[..., Any]") -> inspect.Signature:
    signature = inspect.signature(resumable.function)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


@frozen(kw_only=True, eq=False)
class Resumable(Generic[P, R]):
    """A named, versioned `async (world, ...)` function that can be entered in another process."""

    name: str
    version: int
    function: Callable[Concatenate[World, P], Awaitable[R]]
    migrations: Mapping[int, Migration] = field(factory=dict[int, Migration])
    """from an older version of the arguments to the next one"""
    signature: inspect.Signature = field(init=False, repr=False, default=Factory(_without_world, takes_self=True))
    """without the world"""
    plain: tuple[str, ...] = field(init=False, repr=False, default=Factory(_plain_parameters, takes_self=True))
    """its parameters, if each can be given by position; else none"""

    def at(self, *args: P.args, **kwargs: P.kwargs) -> Bound:
        """This function with these arguments. Raises `TypeError` where they do not fit the signature."""
        if not kwargs and len(args) == len(self.signature.parameters) == len(self.plain):
            return Bound(resumable=self, arguments=dict(zip(self.plain, args, strict=True)))
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return Bound(resumable=self, arguments=dict(bound.arguments))

    async def enter(self, world: World, arguments: Mapping[str, object]) -> R:
        """Calls the function. `arguments` are by parameter name, as `at` bound them."""
        bound = self.signature.bind_partial()
        bound.arguments.update(arguments)
        return await self.function(world, *bound.args, **bound.kwargs)

    def upgraded(self, version: int, arguments: Arguments) -> Arguments:
        """Arguments stored by an older version, as this one takes them. Raises `Newer`, `Foreign`."""
        if version > self.version:
            raise Newer(
                f"the savepoint resumes with {self.name} version {version}, this program has version {self.version}",
                next="run the newer program",
            )
        for old in range(version, self.version):
            if old not in self.migrations:
                raise Foreign(
                    f"{self.name} has no migration from version {old} to {old + 1}",
                    next=f"pass migrations={{{old}: ...}} to resumable({self.name!r})",
                )
            arguments = self.migrations[old](arguments)
        self._check(version, arguments)
        return arguments

    def _check(self, version: int, arguments: Arguments) -> None:
        """Nothing is dropped and nothing is left out. A parameter that was added with a default needs no migration."""
        parameters = self.signature.parameters
        surplus = arguments.keys() - parameters.keys()
        lacking = {
            name
            for name, it in parameters.items()
            if it.default is it.empty and it.kind not in (it.VAR_POSITIONAL, it.VAR_KEYWORD)
        } - arguments.keys()
        if surplus or lacking:
            raise Foreign(
                f"{self.name} does not take the arguments that version {version} stored: "
                f"{'unknown' if surplus else 'missing'} {min(surplus or lacking)!r}",
                next=f"raise the version of {self.name} and pass a migration from {version}",
            )


def resumable(
    name: str, *, version: int = 1, migrations: Mapping[int, Migration] | None = None
) -> Callable[[Callable[Concatenate[World, P], Awaitable[R]]], Resumable[P, R]]:
    """Declares a function that savepoints can name; its first parameter is the world.

    The name and version are stored, never the import path: renaming or moving the function breaks nothing.
    """
    if not name or not name.isprintable():
        raise Usage(f"{name!r} is not a name for a resumable", next="use printable text such as 'support/continue'")

    def declare(function: Callable[Concatenate[World, P], Awaitable[R]]) -> Resumable[P, R]:
        if not inspect.iscoroutinefunction(function):
            raise Usage(f"resumable {name!r} is not an async function", next="declare it with async def")
        if not inspect.signature(function).parameters:
            raise Usage(f"resumable {name!r} takes no world", next="give it a first parameter for the world")
        return Resumable(name=name, version=version, function=function, migrations=dict(migrations or {}))

    return declare


class Registry:
    """What a program can be resumed with: resumables, the effects whose receipts it may meet, portable classes.

    An explicit value, made where the program starts. `classes` are the idempotency classes that effects have in this
    run instead of their own, by effect name. Duplicate names fail here.
    """

    def __init__(
        self,
        resumables: Iterable[Resumable[..., Any]] = (),
        *,
        effects: Iterable[Effect[..., Any]] = (),
        types: Types | None = None,
        classes: Mapping[str, Idempotency] = MappingProxyType({}),
    ) -> None:
        self._resumables = {item.name: item for item in _unique(resumables, "resumable")}
        self._effects = {item.name: item for item in _unique(effects, "effect")}
        self._given = types or Types()
        self.classes = classes
        self.types = OURS | self._given

    def resumable(self, name: str) -> Resumable[..., Any]:
        """Raises `Foreign` for a name that is not registered; nothing is imported or guessed."""
        if name not in self._resumables:
            known = ", ".join(sorted(self._resumables)) or "none"
            raise Foreign(
                f"the resume function {name!r} is not registered (known: {known})",
                next="add it to the registry, or start the program that has it",
            )
        return self._resumables[name]

    def effect(self, name: str) -> Effect[..., Any] | None:
        """The effect of this name, if it is registered: needed for its probe and its compensation."""
        found = self._effects.get(name)
        return None if found is None else self.held(found)

    def held(self, effect: Effect[..., Any]) -> Effect[..., Any]:
        """The effect as this run holds it. Raises `effects.BadDeclaration` where it cannot have the class."""
        wanted = self.classes.get(effect.name, effect.idempotency) if self.classes else effect.idempotency
        return effect if wanted is effect.idempotency else effect.reclassified(wanted)

    def including(self, extra: Resumable[..., Any]) -> "Registry":
        """This registry, and `extra` if it is not in it yet."""
        if self._resumables.get(extra.name) is extra:
            return self
        return Registry(
            [*self._resumables.values(), extra], effects=self._effects.values(), types=self._given, classes=self.classes
        )


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def _unique(items: Iterable[N], what: str) -> list[N]:
    listed = list(items)
    names = [item.name for item in listed]
    for name in names:
        if names.count(name) > 1:
            raise Usage(f"two {what}s are named {name!r}", next="give each its own name")
    return listed
