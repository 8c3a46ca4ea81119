"""What `effect` accepts, what it refuses and how, and what a declared effect knows."""

import asyncio
import inspect
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effects import (
    BadDeclaration,
    Call,
    Effect,
    Idempotency,
    NotPerformed,
    Performed,
    Unknown,
    effect,
    handler,
    stricter,
)

CLASSES = st.sampled_from(Idempotency)


async def body(to: str, *, text: str = "hi") -> str:
    """Sends it."""
    return to + text


def test_an_effect_without_a_class_is_once_and_writes_the_world():
    declared = effect("x")(body)
    assert (declared.idempotency, declared.writes_world, declared.version) == (Idempotency.ONCE, True, 1)
    assert not effect("x", idempotency=Idempotency.ONCE)(body).writes_world
    assert not effect("x", writes_world=False)(body).writes_world


def test_an_effect_reads_like_its_body():
    declared = effect("x", version=3)(body)
    assert (declared.__doc__, vars(declared)["__name__"], declared.body) == ("Sends it.", "body", body)
    assert inspect.signature(declared) == declared.signature == inspect.signature(body)
    assert repr(declared) == "<effect x v3 once>"


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"name": ""}, "empty, padded or unprintable"),
        ({"name": " x"}, "empty, padded or unprintable"),
        ({"name": "a\nb"}, "empty, padded or unprintable"),
        ({"name": "a\x00"}, "empty, padded or unprintable"),
        ({"name": "\ud800"}, "empty, padded or unprintable"),
        ({"name": 7}, "no name"),
        ({"version": 0}, "version 0"),
        ({"version": True}, "version True"),
        ({"version": "1"}, "version '1'"),
        ({"idempotency": "once"}, "class 'once'"),
        ({"idempotency": Idempotency.KEYED}, "keyed without a window"),
        ({"idempotency": Idempotency.ONCE, "window_s": 5}, "window_s means nothing"),
        ({"window_s": 5}, "window_s means nothing"),
        ({"idempotency": Idempotency.KEYED, "window_s": -1}, "window_s=-1"),
        ({"idempotency": Idempotency.KEYED, "window_s": math.inf}, "window_s=inf"),
        ({"idempotency": Idempotency.KEYED, "window_s": True}, "window_s=True"),
        ({"idempotency": Idempotency.READ, "settles_within_s": 5}, "settles_within_s means nothing"),
        ({"idempotency": Idempotency.ONCE, "max_age_s": 5}, "max_age_s means nothing"),
        ({"idempotency": Idempotency.READ, "max_age_s": "5"}, "max_age_s='5'"),
        ({"idempotency": Idempotency.READ, "writes_world": True}, "writes the world"),
        ({"idempotency": Idempotency.COMPOSITE, "writes_world": True}, "writes the world"),
        ({"idempotency": Idempotency.READ, "ambiguous": (OSError,)}, "knows no doubt"),
        ({"ambiguous": OSError}, "ambiguous="),
        ({"ambiguous": ("OSError",)}, "'OSError' in ambiguous"),
        ({"raises": (KeyboardInterrupt,)}, "in raises"),
        ({"raises": (int,)}, "in raises"),
    ],
    ids=ascii,
)
def test_a_mistaken_declaration_fails_at_once_and_says_what_to_do(options, cause):
    with pytest.raises(BadDeclaration, match=cause) as caught:
        effect(**{"name": "x"} | options)
    assert caught.value.next
    assert isinstance(caught.value, TypeError)


def sync(to: str) -> str:
    return to


async def generator(to: str):
    yield to


async def method(self, to: str) -> str:
    return to


@pytest.mark.parametrize(
    "wrong", [sync, generator, method, "text", None], ids=["sync", "generator", "method", "text", "none"]
)
def test_only_async_functions_are_bodies(wrong):
    with pytest.raises(BadDeclaration) as caught:
        effect("x")(wrong)
    assert caught.value.next


@given(CLASSES, CLASSES)
def test_stricter_is_the_later_class(a, b):
    order = ["pure", "read", "contained", "composite", "idempotent", "keyed", "once"]
    assert stricter(a, b) == order[max(order.index(a), order.index(b))]


def test_the_classes_that_change_the_outside_and_those_that_can_be_in_doubt():
    assert {each for each in Idempotency if each.outside} == {"idempotent", "keyed", "once"}
    assert {each for each in Idempotency if each.doubtful} == {"keyed", "once"}


@pytest.mark.parametrize(
    "error",
    [TimeoutError(), asyncio.CancelledError(), ConnectionResetError(), PermissionError()],
    ids=lambda e: type(e).__name__,
)
def test_a_lost_answer_leaves_a_doubt_for_once_and_keyed_only(error):
    plain = effect("x")(body)
    keyed = effect("x", idempotency=Idempotency.KEYED, window_s=60)(body)
    declared = effect("x", ambiguous=(PermissionError,))(body)
    read = effect("x", idempotency=Idempotency.READ)(body)
    lost = not isinstance(error, PermissionError)
    assert (plain.leaves_doubt(error), keyed.leaves_doubt(error)) == (lost, lost)
    assert declared.leaves_doubt(error)
    assert not read.leaves_doubt(error)
    assert not declared.leaves_doubt(ValueError())


async def test_a_probe_is_kept_and_stays_callable():
    send = effect("mail/send")(body)

    @send.probe
    async def was_sent(call: Call) -> Performed[str] | NotPerformed | Unknown:
        return Performed("yes") if call.arguments["to"] == "ada" else NotPerformed(final=True)

    assert send.prober is was_sent
    assert await was_sent(send.recall({"to": "ada", "text": "hi"})) == Performed("yes")
    assert await was_sent(send.recall({"to": "bob", "text": "hi"})) == NotPerformed(final=True)
    with pytest.raises(BadDeclaration, match="a probe already"):
        send.probe(was_sent)


async def test_a_compensation_is_a_once_effect_of_its_own():
    send = effect("mail/send", version=2)(body)
    undone: list[tuple[object, str]] = []

    @send.compensate
    async def unsend(call: Call, result: str) -> None:
        undone.append((call.arguments["to"], result))

    assert send.compensation is unsend
    assert (unsend.name, unsend.version, unsend.idempotency) == ("mail/send/compensate", 2, Idempotency.ONCE)
    call = send.recall({"to": "ada", "text": "hi"})
    assert unsend.identify(call, "done") == {
        "effect": "mail/send",
        "version": 2,
        "arguments": {"to": "ada", "text": "hi"},
    }
    await unsend(call, "done")
    assert undone == [("ada", "done")]

    async def fake(call: Call, result: str) -> None:
        undone.append(("fake", result))

    with handler(unsend, fake):
        await unsend(call, "done")
    assert undone[-1] == ("fake", "done")
    with pytest.raises(BadDeclaration, match="a compensation already"):
        send.compensate(fake)


def test_what_is_never_in_doubt_has_no_probe_and_no_compensation():
    read: Effect[..., str] = effect("x", idempotency=Idempotency.READ)(body)

    async def never(call: Call) -> Unknown:
        return Unknown()

    async def undo(call: Call, result: str) -> None: ...

    with pytest.raises(BadDeclaration, match="a probe is never asked"):
        read.probe(never)
    with pytest.raises(BadDeclaration, match="a compensation is never asked"):
        read.compensate(undo)


def test_a_declaration_does_not_change():
    declared = effect("x")(body)
    with pytest.raises(AttributeError):
        declared.name = "y"


def test_errors_survive_a_copy_across_processes():
    from effects import CallFailed, ConcurrentCalls, NoCall, Parked, Refused

    for error in (CallFailed("Boom", "why"), Refused("x", "no", next="ask"), ConcurrentCalls("a", "b"), NoCall()):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    assert pickle.loads(pickle.dumps(Parked(("q",)))).questions == ("q",)
