"""Which calls are the same: equal effect, equal arguments *of the same types*, equal place. Pure, beside a naive reading
of what equal means.
"""

import math
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import Context, tool
from agent._arguments import BadArguments
from effects import Call, Effect, Idempotency, effect
from savepoint._codec import encode
from savepoint._frame import Frame, reply_call

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=8)
names = st.text(max_size=4) | st.integers(-2, 2) | st.booleans()


def _wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=3)
    return lists | lists.map(tuple) | st.dictionaries(names, inner, max_size=3)


values = st.recursive(scalars, _wider, max_leaves=6)


def alike(one: Any, other: Any) -> bool:
    """Whether two values are the same, as a person would say it who minds types and not the order of a mapping."""
    if type(one) is not type(other):
        return False
    match one:
        case float():
            return (math.isnan(one) and math.isnan(other)) or (
                one == other and math.copysign(1, one) == math.copysign(1, other)
            )
        case list() | tuple():
            return len(one) == len(other) and all(map(alike, one, other))
        case dict():
            left = list(other.items())
            for name, each in one.items():
                found = next((pair for pair in left if alike(name, pair[0])), None)
                if found is None or not alike(each, found[1]):
                    return False
                left.remove(found)
            return not left
        case _:
            return one == other


def near(value: Any, draw: st.DrawFn) -> Any:
    """The value, or one that is easily taken for it."""
    match value:
        case bool():
            return draw(st.sampled_from([value, int(value), float(value), str(value)]))
        case int():
            return draw(
                st.sampled_from([value, str(value), bool(value), *([float(value)] if abs(value) < 2**53 else [])])
            )
        case float():
            whole = [int(value)] if math.isfinite(value) else []
            return draw(st.sampled_from([value, -value, repr(value), *whole]))
        case str():
            forms = [unicodedata.normalize(form, value) for form in ("NFC", "NFD", "NFKC")]
            return draw(st.sampled_from([value, *forms, f"{value} ", f" {value}", value.casefold(), value.encode()]))
        case bytes():
            return draw(st.sampled_from([value, value.hex(), value + b"\0"]))
        case list():
            return draw(st.sampled_from([[near(each, draw) for each in value], tuple(value), value[::-1]]))
        case tuple():
            return draw(st.sampled_from([tuple(near(each, draw) for each in value), list(value), value[::-1]]))
        case dict():
            pairs = draw(st.permutations(list(value.items())))
            return {name: near(each, draw) for name, each in pairs}
        case _:
            return draw(st.sampled_from([value, 0, "", False, []]))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    value = draw(values)
    return value, near(value, draw)


@effect("mail", idempotency=Idempotency.ONCE)
async def mail(to: object, body: object = None, *, urgent: object = False) -> None: ...


def key(performed: Effect[..., Any], *args: object, frame: Frame | None = None, **kwargs: object) -> bytes:
    call = Call(effect=performed, args=args, kwargs=kwargs)
    return (frame or Frame()).next_key(call.name, encode(dict(call.arguments)).digest)


@given(pairs())
def test_calls_are_the_same_exactly_where_their_arguments_are(pair: tuple[Any, Any]) -> None:
    one, other = pair
    assert (key(mail, one) == key(mail, other)) is alike(one, other)
    assert (key(mail, "x", urgent=one) == key(mail, "x", urgent=other)) is alike(one, other)


@given(values, values, values)
def test_how_arguments_are_given_makes_no_other_call(to: object, body: object, urgent: object) -> None:
    made = key(mail, to, body, urgent=urgent)
    assert made == key(mail, urgent=urgent, body=body, to=to) == key(mail, to, urgent=urgent, body=body)
    assert key(mail, to) == key(mail, to, None) == key(mail, to, body=None, urgent=False)


@given(values)
def test_arguments_are_not_exchanged_between_parameters(value: object) -> None:
    assert (key(mail, value, None) == key(mail, None, value)) is alike(value, None)
    assert (key(mail, value, urgent=False) == key(mail, False, urgent=value)) is alike(value, False)


@given(values, st.integers(1, 4))
def test_equal_calls_differ_by_their_number_and_by_their_parent(value: object, count: int) -> None:
    def made(frame: Frame) -> list[bytes]:
        return [key(mail, value, frame=frame) for _ in range(count)]

    under = [Frame(), Frame().branch("a"), Frame().branch("b"), reply_call(0, 0), reply_call(0, 1), reply_call(1, 0)]
    every = [each for frame in under for each in made(frame)]
    assert len(set(every)) == len(every)
    again = Frame()
    assert made(again) == made(Frame())  # and they are the same in every process
    assert key(mail, value, frame=again) not in every


@given(values)
def test_the_version_is_no_part_of_the_key_and_the_name_is(value: object) -> None:
    async def body(to: object, body: object = None, *, urgent: object = False) -> None: ...

    newer = effect("mail", version=2, idempotency=Idempotency.READ)(body)
    renamed = effect("Mail", idempotency=Idempotency.ONCE)(body)
    assert key(newer, value) == key(mail, value) != key(renamed, value)


# -- what a model writes ------------------------------------------------------------------------------------------------


@tool(idempotency=Idempotency.ONCE)
async def ticket(context: Context[Any], what: str, count: int, share: float = 1.0) -> None:
    """A tool with a text, an integer and a number."""


def written(text: str) -> bytes | None:
    """The key of the call that this text of a model makes; None where it makes none."""
    try:
        return key(ticket, **ticket.parse(text))
    except BadArguments:
        return None


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('{"count": 1, "what": "a"}', True),
        ('{"what":"a","count":1}', True),
        (' {"what" : "a" ,\n "count" : 1 } ', True),
        ('{"what": "\\u0061", "count": 1}', True),
        ('{"what": "a", "count": 1, "share": 1.0}', True),
        ('{"what": "a", "count": 1, "share": 1}', True),
        ('{"what": "a ", "count": 1}', False),
        ('{"what": "A", "count": 1}', False),
        ('{"what": "a", "count": 2}', False),
        ('{"what": "a", "count": 1, "share": 1.0000000000000002}', False),
        ('{"what": "a", "count": "1"}', None),
        ('{"what": "a", "count": true}', None),
        ('{"what": "a", "count": 1, "count": 1}', None),
        ('{"what": 1, "count": 1}', None),
    ],
)
def test_what_a_model_writes_is_the_same_call_where_it_means_the_same(text: str, same: bool | None) -> None:
    made = written(text)
    if same is None:
        assert made is None
    else:
        assert made is not None
        assert (made == written('{"what": "a", "count": 1}')) is same
