"""Tools: schema from the signature, arguments from a model, performing, and mistakes that fail at declaration."""

import asyncio
import dataclasses
import inspect
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, Optional, Union

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent._arguments import BadArguments
from agent._context import Context, current_context, in_context
from agent._tool import Tool, tool
from effects import BadDeclaration, Idempotency, handler
from effects._call import Call
from effects._layer import LAYER
from savepoint._errors import Usage


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@attrs.frozen
class Point:
    x: int
    _y: float = 2.0


@dataclasses.dataclass(frozen=True)
class Person:
    name: Annotated[str, "In full."]
    tags: list[str] = dataclasses.field(default_factory=list)


def context(**changes: Any) -> Context[object]:
    fields: dict[str, Any] = {"world": None, "deps": "deps", "run_id": "r", "step": 3, "call_id": "3.0", **changes}
    return Context(**fields)


@tool(idempotency=Idempotency.READ)
async def everything(
    ctx: Context,
    text: Annotated[str, "What to say."],
    count: int,
    *,
    ratio: float = 0.5,
    flag: bool = False,
    words: list[str] = [],  # noqa: B006  a default like any other
    table: dict[str, int] | None = None,
    mode: Literal["fast", 3] = "fast",
    color: Color = Color.RED,
    point: Optional[Point] = None,  # noqa: UP045  both spellings
    person: Union[Person, str] = "nobody",  # noqa: UP007
) -> tuple[object, ...]:
    """Says everything.

    At length.
    """
    return ctx.call_id, text, count, ratio, flag, words, table, mode, color, point, person


def test_the_schema_says_what_the_signature_says_without_the_context() -> None:
    assert everything.spec.name == "everything"
    assert everything.spec.description == "Says everything.\n\nAt length."
    assert everything.spec.parameters == {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "What to say."},
            "count": {"type": "integer"},
            "ratio": {"type": "number", "default": 0.5},
            "flag": {"type": "boolean", "default": False},
            "words": {"type": "array", "items": {"type": "string"}, "default": []},
            "table": {
                "anyOf": [{"type": "object", "additionalProperties": {"type": "integer"}}, {"type": "null"}],
                "default": None,
            },
            "mode": {"enum": ["fast", 3], "default": "fast"},
            "color": {"enum": ["red", "blue"], "default": "red"},
            "point": {
                "anyOf": [
                    {
                        "type": "object",
                        "properties": {"x": {"type": "integer"}, "y": {"type": "number"}},
                        "required": ["x"],
                        "additionalProperties": False,
                    },
                    {"type": "null"},
                ],
                "default": None,
            },
            "person": {
                "anyOf": [
                    {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string", "description": "In full."},
                            "tags": {"type": "array", "items": {"type": "string"}},
                        },
                        "required": ["name"],
                        "additionalProperties": False,
                    },
                    {"type": "string"},
                ],
                "default": "nobody",
            },
        },
        "required": ["text", "count"],
        "additionalProperties": False,
    }
    assert list(everything.signature.parameters) == list(everything.spec.parameters["properties"])  # type: ignore[call-overload]


async def test_a_models_arguments_become_what_the_annotations_say() -> None:
    text = """{"text": "hi", "count": 3.0, "ratio": 1, "color": "blue", "point": {"x": 1, "y": 2},
               "person": {"name": "Ada"}, "table": {"a": 1}, "mode": 3}"""
    plain = everything.parse(text)
    assert plain["point"] == {"x": 1, "y": 2.0}
    assert type(plain["count"]) is int
    assert type(plain["ratio"]) is float
    with in_context(context()):
        result = await everything(**plain)  # type: ignore[arg-type]
    assert result == ("3.0", "hi", 3, 1.0, False, [], {"a": 1}, 3, Color.BLUE, Point(1, 2.0), Person("Ada"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ("[]", "one JSON object, not a list"),
        ("null", "one JSON object, not null"),
        ("{}", "text: required, but not given"),
        ('{"text": "x"}', "count: required, but not given"),
        ('{"text": 1, "count": 1}', "text: expected a text, not the integer 1"),
        ('{"text": "x", "count": "1"}', 'count: expected an integer, not the text "1"'),
        ('{"text": "x", "count": true}', "count: expected an integer, not the boolean true"),
        ('{"text": "x", "count": 1.5}', "count: expected an integer, not the number 1.5"),
        ('{"text": "x", "count": 1, "cuont": 1}', "cuont: there is no such parameter; known: text, count"),
        ('{"text": "x", "count": 1, "ctx": {}}', "ctx: there is no such parameter"),
        ('{"text": "x", "count": 1, "ratio": 1e999}', "ratio: expected a number"),
        ('{"text": "x", "count": 1, "ratio": NaN}', "NaN is not JSON"),
        ('{"text": "x", "count": 1, "words": ["a", 2]}', r"words\[1\]: expected a text"),
        ('{"text": "x", "count": 1, "table": {"a": "b"}}', r"table\.a: expected an integer"),
        ('{"text": "x", "count": 1, "mode": 3.0}', 'mode: expected one of: "fast", 3, not the number 3.0'),
        ('{"text": "x", "count": 1, "color": "green"}', 'color: expected one of: "red", "blue"'),
        ('{"text": "x", "count": 1, "point": {"y": 1}}', r"^point\.x: required, but not given$"),
        ('{"text": "x", "count": 1, "point": {"x": 1, "_y": 1}}', r"point\._y: there is no such parameter"),
        ('{"text": "x", "text": "y", "count": 1}', "'text' is given twice"),
        ('{"text": "\\ud800", "count": 1}', "half of a surrogate pair"),
        ('{"text": "x", "count": ' + "9" * 5000 + "}", "an integer of 5000 digits"),
        ('{"text": "x", "count": 1, "ratio": ' + "9" * 400 + "}", "ratio: expected a number, not a long integer"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_the_parameters_name(text: str, words: str) -> None:
    with pytest.raises(BadArguments, match=words):
        everything.parse(text)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=4))
def test_any_json_is_refused_or_stays_what_it_is_when_read_again(value: object) -> None:
    text = json.dumps({"text": "x", "count": 1, "person": value, "ratio": value})
    try:
        plain = everything.parse(text)
    except BadArguments:
        return
    assert everything.parse(json.dumps(plain)) == plain


class Recording:
    """A layer that keeps the arguments that a receipt would have."""

    def __init__(self) -> None:
        self.seen: list[Mapping[str, object]] = []

    async def settle(self, call: Call, body: Callable[[], Awaitable[object]]) -> object:
        self.seen.append(call.arguments)
        return await body()

    async def answer(self, call: Call, ask: Callable[[], Awaitable[object]]) -> object:
        self.seen.append(call.arguments)
        return await ask()

    def branch(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()


async def test_a_call_has_the_same_plain_arguments_from_a_program_and_from_a_model() -> None:
    layer = Recording()
    token = LAYER.set(layer)
    try:
        with in_context(context()):
            from_program = await everything("x", 1, color=Color.BLUE, point=Point(1))
            plain = everything.parse('{"count": 1, "text": "x", "color": "blue", "point": {"x": 1, "y": 2.0}}')
            from_model = await everything(**plain)  # type: ignore[arg-type]
    finally:
        LAYER.reset(token)
    assert from_program == from_model
    assert layer.seen[0] == layer.seen[1]
    assert layer.seen[0]["color"] == "blue"
    assert "ctx" not in layer.seen[0]


async def test_a_sync_function_runs_in_a_thread_and_meets_its_context_there() -> None:
    @tool(idempotency=Idempotency.READ)
    def where(ctx: Context[str], level: Level) -> tuple[bool, str, Level]:
        return threading.current_thread() is threading.main_thread(), current_context().run_id + ctx.deps, level

    with in_context(context()):
        assert await where(Level.HIGH) == (False, "rdeps", Level.HIGH)


async def test_a_context_outside_of_a_run_is_a_clear_error() -> None:
    with pytest.raises(Usage, match="outside of an agent's run"):
        await everything("x", 1)


async def test_a_handler_answers_a_tool_like_any_effect() -> None:
    @tool
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    async def pretend(amount: int) -> str:
        return f"{await pay(amount + 1)}, not"

    with handler(pay, pretend):
        assert await pay(1) == "paid 2, not"


async def test_a_tool_that_takes_too_long_says_how_long() -> None:
    @tool(timeout_s=0.01)
    async def forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match=r"no result within 0\.01 s") as caught:
        await forever()
    assert forever.leaves_doubt(caught.value)


async def test_a_timeout_of_the_function_itself_stays_its_own() -> None:
    @tool(timeout_s=60)
    async def fail() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await fail()


def test_what_is_declared_is_what_recovery_and_the_fingerprint_read() -> None:
    @tool(name="charge-card", version=2, idempotency=Idempotency.KEYED, window_s=60, approval=True, raises=(KeyError,))
    async def charge(amount: int) -> None:
        """Charges."""

    assert isinstance(charge, Tool)
    assert (charge.name, charge.version, charge.window_s, charge.raises) == ("charge-card", 2, 60, (KeyError,))
    assert charge.approval
    assert charge.definition == {
        "name": "charge-card",
        "version": 2,
        "idempotency": "keyed",
        "writes_world": False,
        "approval": True,
        "description": "Charges.",
        "parameters": charge.spec.parameters,
    }


def test_a_tool_without_a_class_is_once_and_writes_the_world() -> None:
    @tool
    def act() -> None: ...

    assert (act.idempotency, act.writes_world, act.spec.description) == (Idempotency.ONCE, True, "")


def no_annotation(x): ...
def star(*x: int) -> None: ...
def double_star(**x: int) -> None: ...
def positional(x: int, /) -> None: ...
def two_contexts(a: Context, b: Context) -> None: ...
def unknown_name(x: "Nowhere") -> None: ...  # noqa: F821  # type: ignore[name-defined]
def wrong_default(x: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013
def a_set(x: set[int]) -> None: ...
def anything(x: Any) -> None: ...
def int_keys(x: dict[int, str]) -> None: ...
def a_class(x: threading.Thread) -> None: ...
def float_choice(x: Literal[1] | set[str]) -> None: ...


@attrs.frozen
class Outer:
    inner: Point


def two_levels(x: Outer) -> None: ...
def unhashable(x: Annotated[bytes, {}]) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (no_annotation, "'x': no annotation"),
        (star, "'x': variadic positional"),
        (double_star, "'x': variadic keyword"),
        (positional, "'x': positional-only"),
        (two_contexts, "'b': a second Context besides 'a'"),
        (unknown_name, "'x': name 'Nowhere' is not defined"),
        (wrong_default, "'x': its default: x: expected an integer, not null"),
        (a_set, r"'x': set\[int\] has no JSON form"),
        (anything, "'x': Any has no JSON form"),
        (int_keys, r"'x': dict\[int, str\] has no JSON form"),
        (a_class, "'x': Thread has no JSON form"),
        (float_choice, r"'x': set\[str\] has no JSON form"),
        (two_levels, r"'x'.inner: Point has no JSON form here inside another class"),
        (unhashable, "'x': bytes has no JSON form"),
        (lambda: None, "'<lambda>': not a name"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_function_that_can_be_no_tool_is_refused_with_the_next_move(function: Any, words: str) -> None:
    with pytest.raises(BadDeclaration, match=words) as caught:
        tool(function)
    assert caught.value.next


def test_another_annotation_for_type_checkers_only_does_no_harm() -> None:
    def act(x: "int") -> "Nowhere": ...  # noqa: F821  # type: ignore[name-defined]

    assert tool(act).parse('{"x": 1}') == {"x": 1}


def test_a_tool_still_looks_like_its_function() -> None:
    assert vars(everything)["__name__"] == "everything"
    assert "ctx" not in inspect.signature(everything).parameters
