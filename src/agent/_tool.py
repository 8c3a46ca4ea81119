"""Tools: effects that a model may ask for, with a description and a JSON schema made from the signature.

A tool's call has its *plain* arguments (JSON): the same ones in the schema, handlers, receipts, questions and probes.
Its function gets what its annotations say, made of them when the body is entered.
"""

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from types import SimpleNamespace
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, get_origin, get_type_hints, overload

from attrs import define, fields, frozen, setters

from effects._effect import Effect, effect
from effects._errors import BadDeclaration
from effects._idempotency import Idempotency

from ._arguments import BadArguments, parse_object
from ._context import Context, current_context
from ._model import ToolSpec
from ._schema import Shape, lower, object_schema, read_fields, shape_of

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every provider takes as a name."""


@define(eq=False, repr=False, kw_only=True, slots=False, on_setattr=setters.frozen)
class Tool(Effect[P, R]):
    """An effect that a model may ask for; made by `tool`. Called from a program it is performed like any effect."""

    spec: ToolSpec
    """what a model is told"""
    approval: bool
    """each call waits for a decision first"""
    shapes: Mapping[str, Shape]
    required: tuple[str, ...]
    rich: bool
    """some annotation is more than JSON, so a program's arguments are made plain before they are performed"""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if not self.rich:
            return await super().__call__(*args, **kwargs)
        given = self.bound(*args, **kwargs).arguments
        perform = cast("Callable[..., Awaitable[R]]", super().__call__)
        return await perform(**self._plain({name: lower(value) for name, value in given.items()}))

    def parse(self, arguments: str, /) -> dict[str, object]:
        """The keyword arguments in a model's text, validated and plain: what to perform this tool with.

        Raises `BadArguments`, naming the parameter.
        """
        return self._plain(parse_object(arguments))

    @property
    def definition(self) -> dict[str, object]:
        """What the fingerprint of an agent holds of this tool; portable."""
        return {
            "name": self.name,
            "version": self.version,
            "idempotency": self.idempotency.value,
            "writes_world": self.writes_world,
            "approval": self.approval,
            "description": self.spec.description,
            "parameters": dict(self.spec.parameters),
        }

    def _plain(self, values: Mapping[str, object]) -> dict[str, object]:
        return read_fields(values, self.shapes, self.required)


class Declare(Protocol):
    """What `@tool(...)` decorates: sync or async, with a first parameter `Context` that callers do not pass, or none."""

    @overload
    def __call__(self, fn: Callable[Concatenate[Context[Any], P], Awaitable[R]], /) -> Tool[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Context[Any], P], R], /) -> Tool[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Awaitable[R]], /) -> Tool[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(fn: Callable[Concatenate[Context[Any], P], Awaitable[R]], /) -> Tool[P, R]: ...
@overload
def tool(fn: Callable[Concatenate[Context[Any], P], R], /) -> Tool[P, R]: ...
@overload
def tool(fn: Callable[P, Awaitable[R]], /) -> Tool[P, R]: ...
@overload
def tool(fn: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    version: int = 1,
    idempotency: Idempotency | None = None,
    writes_world: bool | None = None,
    approval: bool = False,
    timeout_s: float | None = None,
    ambiguous: tuple[type[BaseException], ...] = (),
    raises: tuple[type[Exception], ...] = (),
    window_s: float | None = None,
    settles_within_s: float | None = None,
    max_age_s: float | None = None,
) -> Declare: ...
def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    approval: bool = False,
    timeout_s: float | None = None,
    **declaration: Any,
) -> Any:
    """Declares a function as a tool: `@tool`, or `@tool(idempotency=...)` with the words of `effects.effect`.

    Its name and description are the function's name and docstring unless given; its schema comes from the annotations
    (`Annotated[str, "..."]` describes a parameter). A sync function runs in a thread. A parameter annotated `Context`
    is filled in by the run. `timeout_s` bounds the await, not a thread: a `KEYED` or `ONCE` call that takes longer is in
    doubt. Raises `effects.BadDeclaration`.
    """

    def declare(function: Callable[..., Any]) -> Tool[..., Any]:
        label = name if name is not None else getattr(function, "__name__", "")
        if not _NAME.fullmatch(label):
            raise BadDeclaration(f"tool {label!r}: not a name", next="use 1 to 64 letters, digits, _ and - (name=...)")
        parameters = _parameters(label, function)
        made = effect(label, **declaration)(_body(function, parameters, timeout_s))
        return Tool(
            **{field.alias: getattr(made, field.name) for field in fields(Effect) if field.init},
            spec=ToolSpec(
                name=label,
                description=(inspect.getdoc(function) or "") if description is None else description,
                parameters=_schema(parameters),
            ),
            approval=approval,
            shapes=parameters.shapes,
            required=parameters.required,
            rich=not all(shape.plain for shape in parameters.shapes.values()),
        )

    return declare if fn is None else declare(fn)


@frozen(kw_only=True)
class _Parameters:
    """What a function takes: from the model, and from the run."""

    signature: inspect.Signature
    """without the context, with plain defaults"""
    shapes: Mapping[str, Shape]
    required: tuple[str, ...]
    defaults: Mapping[str, object]
    context: str | None
    """the parameter that receives the `Context`"""


def _parameters(label: str, function: Callable[..., Any]) -> _Parameters:
    context: str | None = None
    kept: list[inspect.Parameter] = []
    shapes: dict[str, Shape] = {}
    for parameter in inspect.signature(function).parameters.values():
        where = f"tool {label!r}: parameter {parameter.name!r}"
        annotation = _annotation(function, parameter, where)
        if annotation is Context or get_origin(annotation) is Context:
            context = _only(context, parameter.name, where)
            continue
        shapes[parameter.name] = shape_of(annotation, where)
        kept.append(_plain_default(parameter, shapes[parameter.name], where))
    return _Parameters(
        signature=inspect.Signature(kept),
        shapes=shapes,
        required=tuple(each.name for each in kept if each.default is each.empty),
        defaults={each.name: each.default for each in kept if each.default is not each.empty},
        context=context,
    )


def _annotation(function: Callable[..., Any], parameter: inspect.Parameter, where: str) -> object:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise BadDeclaration(f"{where}: {parameter.kind.description}", next="use named parameters only")
    if parameter.annotation is parameter.empty:
        raise BadDeclaration(f"{where}: no annotation", next="annotate it: the schema is made of annotations")
    # Alone, so that a name imported for type checkers only in some other annotation does no harm.
    alone = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        hints = get_type_hints(alone, getattr(inspect.unwrap(function), "__globals__", {}), include_extras=True)
    except (NameError, SyntaxError, TypeError) as error:
        raise BadDeclaration(f"{where}: {error}", next="import the annotation's names at run time") from None
    return hints[parameter.name]


def _only(context: str | None, name: str, where: str) -> str:
    if context is not None:
        raise BadDeclaration(f"{where}: a second Context besides {context!r}", next="keep one")
    return name


def _plain_default(parameter: inspect.Parameter, shape: Shape, where: str) -> inspect.Parameter:
    if parameter.default is parameter.empty:
        return parameter
    try:
        return parameter.replace(default=shape.read(lower(parameter.default), parameter.name))
    except BadArguments as error:
        raise BadDeclaration(f"{where}: its default: {error.message}", next="let the annotation allow it") from None


def _schema(parameters: _Parameters) -> dict[str, object]:
    schema = object_schema(parameters.shapes, parameters.required)
    properties = cast("dict[str, dict[str, object]]", schema["properties"])
    for name, default in parameters.defaults.items():
        properties[name] = {**properties[name], "default": default}
    return schema


def _body(function: Callable[..., Any], parameters: _Parameters, timeout_s: float | None) -> Callable[..., Any]:
    """The effect's body: plain arguments in, the function's own call inside."""
    is_async = inspect.iscoroutinefunction(function)

    @wraps(function)
    async def body(*args: object, **kwargs: object) -> object:
        given = parameters.signature.bind(*args, **kwargs).arguments if args else kwargs
        values = {name: parameters.shapes[name].build(value) for name, value in given.items()}
        if parameters.context is not None:
            values[parameters.context] = current_context()
        result = function(**values) if is_async else await asyncio.to_thread(function, **values)
        return await result if inspect.isawaitable(result) else result

    made = body if timeout_s is None else _bounded(body, timeout_s)
    made.__signature__ = parameters.signature  # type: ignore[attr-defined]
    return made


def _bounded(body: Callable[..., Awaitable[object]], timeout_s: float) -> Callable[..., Any]:
    @wraps(body)
    async def bounded(*args: object, **kwargs: object) -> object:
        clock = asyncio.timeout(timeout_s)
        try:
            async with clock:
                return await body(*args, **kwargs)
        except TimeoutError as error:
            raise (TimeoutError(f"no result within {timeout_s:g} s") if clock.expired() else error) from None

    return bounded
