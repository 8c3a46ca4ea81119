"""From a Python annotation to a JSON schema, and from JSON back to the annotated value.

Arguments have two forms. *Plain* is JSON: what models send, receipts keep, questions show and keys are made of. *Rich*
is what the annotation says (enums, attrs classes): made of the plain form when a body is entered, never stored.
"""

import dataclasses
import json
import types
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from math import isfinite
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import attrs

from effects._errors import BadDeclaration

from ._arguments import BadArguments, described

Json = dict[str, object]


@attrs.frozen(kw_only=True)
class Shape:
    """What one annotation means."""

    schema: Json
    read: Callable[[object, str], object]
    """(JSON value, its path) -> the plain form. Raises `BadArguments`."""
    build: Callable[[object], object]
    """plain form -> rich form"""
    plain: bool = True
    """the two forms are one"""


def lower(value: object) -> object:
    """The plain form of a rich value; what has none is left for `Shape.read` to refuse."""
    if isinstance(value, Enum):
        return lower(value.value)
    if isinstance(value, dict):
        return {key: lower(item) for key, item in cast("dict[object, object]", value).items()}
    if isinstance(value, list):
        return [lower(item) for item in cast("list[object]", value)]
    if not isinstance(value, type) and (attrs.has(type(value)) or dataclasses.is_dataclass(value)):
        return {field.key: lower(getattr(value, field.name)) for field in _fields(type(value))}
    return value


def shape_of(annotation: object, where: str, *, inner: bool = False) -> Shape:
    """The shape of `annotation`. `where` names it in errors; `inner`: inside a class, where no other class may be.

    Raises `effects.BadDeclaration` for an annotation that has no JSON form.
    """
    for kind, shape in _SIMPLE:
        if annotation is kind:
            return shape
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _described(shape_of(args[0], where, inner=inner), args[1:])
    if origin is Literal:
        return _choice(args, where)
    if origin in (Union, types.UnionType):
        return _union([shape_of(arg, where, inner=inner) for arg in args])
    if origin is list:
        return _list(shape_of(args[0], where, inner=inner))
    if origin is dict and args[0] is str:
        return _dict(shape_of(args[1], where, inner=inner))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enum(annotation, where)
    if isinstance(annotation, type) and not inner and (attrs.has(annotation) or dataclasses.is_dataclass(annotation)):
        return _record(annotation, where)
    name = _type_name(cast("object", annotation))
    raise BadDeclaration(
        f"{where}: {name} has no JSON form here" + (" inside another class" if inner else ""),
        next="use str, int, float, bool, None, list, dict with str keys, Literal, unions of these, Enum, "
        "or an attrs class or dataclass of these",
    )


def read_fields(
    values: Mapping[str, object], shapes: Mapping[str, Shape], required: Iterable[str], path: str = ""
) -> dict[str, object]:
    """The plain form of an object's fields, in the order of `shapes`. Raises `BadArguments`."""
    unknown = [name for name in values if name not in shapes]
    if unknown:
        known = ", ".join(shapes) or "none"
        raise BadArguments(f"{_at(path, unknown[0])}: there is no such parameter; known: {known}")
    missing = [name for name in required if name not in values]
    if missing:
        raise BadArguments(f"{_at(path, missing[0])}: required, but not given")
    return {name: shape.read(values[name], _at(path, name)) for name, shape in shapes.items() if name in values}


def object_schema(shapes: Mapping[str, Shape], required: Iterable[str]) -> Json:
    """The JSON schema of an object with exactly these fields."""
    return {
        "type": "object",
        "properties": {name: shape.schema for name, shape in shapes.items()},
        "required": list(required),
        "additionalProperties": False,
    }


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _same(value: object) -> object:
    return value


def _wrong(path: str, expected: str, value: object) -> BadArguments:
    return BadArguments(f"{path}: expected {expected}, not {described(value)}")


def _simple(name: str, expected: str, accepts: Callable[[object], bool], to: Callable[[Any], object] = _same) -> Shape:
    def read(value: object, path: str) -> object:
        if not accepts(value):
            raise _wrong(path, expected, value)
        return to(value)

    return Shape(schema={"type": name}, read=read, build=_same)


def _is_whole(value: object) -> bool:
    """JSON has one kind of number: 3.0 is an integer to a schema, as long as a float holds it exactly."""
    if isinstance(value, float):
        return value.is_integer() and abs(value) <= 2**53
    return isinstance(value, int) and not isinstance(value, bool)


_FLOAT_BITS = 1023
"""Integers up to here fit a float."""


def _is_number(value: object) -> bool:
    """1e999 reads as infinity, and integers beyond any float exist in JSON: neither is a number here."""
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= _FLOAT_BITS


_SIMPLE: tuple[tuple[object, Shape], ...] = (
    (str, _simple("string", "a text", lambda value: isinstance(value, str))),
    (bool, _simple("boolean", "true or false", lambda value: isinstance(value, bool))),
    (int, _simple("integer", "an integer", _is_whole, int)),
    (float, _simple("number", "a number", _is_number, float)),
    (None, _simple("null", "null", lambda value: value is None)),
    (type(None), _simple("null", "null", lambda value: value is None)),
    (list, _simple("array", "a list", lambda value: isinstance(value, list))),
    (dict, _simple("object", "an object", lambda value: isinstance(value, dict))),
)


def _described(shape: Shape, notes: Iterable[object]) -> Shape:
    text = " ".join(note for note in notes if isinstance(note, str))
    return attrs.evolve(shape, schema={**shape.schema, "description": text}) if text else shape


def _pick(options: Iterable[object], value: object) -> object:
    """The option equal to `value` and of its type: 1, 1.0 and True are three."""
    return next((option for option in options if option == value and type(option) is type(value)), None)


def _choice(options: tuple[object, ...], where: str) -> Shape:
    if not options or not all(option is None or isinstance(option, (str, int)) for option in options):
        raise BadDeclaration(
            f"{where}: only str, int, bool and None have a JSON form as a choice", next="change the values"
        )
    names = ", ".join(json.dumps(option, ensure_ascii=False) for option in options)

    def read(value: object, path: str) -> object:
        if value is None and None in options:
            return None
        if _pick(options, value) is None:
            raise _wrong(path, f"one of: {names}", value)
        return value

    return Shape(schema={"enum": list(options)}, read=read, build=_same)


def _enum(kind: type[Enum], where: str) -> Shape:
    choice = _choice(tuple(member.value for member in kind), where)
    return attrs.evolve(choice, build=kind, plain=False)


def _list(item: Shape) -> Shape:
    def read(value: object, path: str) -> object:
        if not isinstance(value, list):
            raise _wrong(path, "a list", value)
        return [item.read(each, f"{path}[{index}]") for index, each in enumerate(cast("list[object]", value))]

    def build(plain: object) -> object:
        return [item.build(each) for each in cast("list[object]", plain)]

    return Shape(schema={"type": "array", "items": item.schema}, read=read, build=build, plain=item.plain)


def _dict(item: Shape) -> Shape:
    def read(value: object, path: str) -> object:
        if not isinstance(value, dict):
            raise _wrong(path, "an object", value)
        return {key: item.read(each, _at(path, key)) for key, each in cast("dict[str, object]", value).items()}

    def build(plain: object) -> object:
        return {key: item.build(each) for key, each in cast("dict[str, object]", plain).items()}

    schema: Json = {"type": "object", "additionalProperties": item.schema}
    return Shape(schema=schema, read=read, build=build, plain=item.plain)


def _union(options: list[Shape]) -> Shape:
    def fitting(value: object, path: str) -> tuple[Shape, object]:
        errors: list[str] = []
        for option in options:
            try:
                return option, option.read(value, path)
            except BadArguments as error:
                errors.append(error.message)
        # "or null" is no help to one who gave something.
        useful = [error for error in errors if "expected null" not in error] or errors
        raise BadArguments("; or ".join(dict.fromkeys(useful)))

    return Shape(
        schema={"anyOf": [option.schema for option in options]},
        read=lambda value, path: fitting(value, path)[1],
        # The plain form says again which option it is: options are tried in the same order.
        build=lambda plain: fitting(plain, "")[0].build(plain),
        plain=all(option.plain for option in options),
    )


@attrs.frozen(kw_only=True)
class _Field:
    name: str
    key: str
    required: bool


def _fields(kind: type) -> list[_Field]:
    """The fields that its constructor takes; `key` is the constructor's word for `name`."""
    if attrs.has(kind):
        return [
            _Field(name=field.name, key=field.alias, required=field.default is attrs.NOTHING)
            for field in attrs.fields(kind)
            if field.init
        ]
    nothing = dataclasses.MISSING
    return [
        _Field(name=field.name, key=field.name, required=field.default is nothing and field.default_factory is nothing)
        for field in dataclasses.fields(kind)
        if field.init
    ]


def _record(kind: type, where: str) -> Shape:
    hints = get_type_hints(kind, include_extras=True)
    fields = _fields(kind)
    shapes = {field.key: shape_of(hints.get(field.name, str), f"{where}.{field.name}", inner=True) for field in fields}
    required = [field.key for field in fields if field.required]

    def read(value: object, path: str) -> object:
        if not isinstance(value, dict):
            raise _wrong(path, "an object", value)
        return read_fields(cast("dict[str, object]", value), shapes, required, path)

    def build(plain: object) -> object:
        values = cast("dict[str, object]", plain)
        return kind(**{key: shapes[key].build(value) for key, value in values.items()})

    return Shape(schema=object_schema(shapes, required), read=read, build=build, plain=False)


def _type_name(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
