"""Calls as data: binding, changing, recalling, and what a running body knows of its own."""

import pytest

from effects import BadCall, Call, Idempotency, NoCall, branch, current_call, effect
from effects.testing import PlainLayer


@effect("order", idempotency=Idempotency.READ)
async def order(item: str, count: int = 1, *rest: str, gift: bool = False, **notes: str) -> str:
    return f"{item} {count} {rest} {gift} {notes}"


def test_arguments_are_bound_to_the_signature_with_defaults():
    everything = {"item": "tea", "count": 1, "rest": (), "gift": False, "notes": {}}
    assert Call(effect=order, args=("tea",)).arguments == everything
    assert Call(effect=order, kwargs={"count": 1, "item": "tea"}).arguments == everything
    assert order.bind("tea") == everything


def test_the_rest_parameters_are_bound_by_their_names():
    bound = order.bind("tea", 2, "a", "b", gift=True, colour="red")
    assert bound == {"item": "tea", "count": 2, "rest": ("a", "b"), "gift": True, "notes": {"colour": "red"}}


def test_arguments_that_do_not_fit_name_the_effect():
    with pytest.raises(BadCall, match="order: missing a required argument: 'item'") as caught:
        _ = Call(effect=order).arguments
    assert isinstance(caught.value, TypeError)


async def test_replacing_changes_the_named_parameters_only():
    call = Call(effect=order, args=("tea", 2, "a"), kwargs={"colour": "red"})
    changed = call.replace(count=3, gift=True)
    assert changed.arguments == order.bind("tea", 3, "a", gift=True, colour="red")
    assert await order(*changed.args, **changed.kwargs) == "tea 3 ('a',) True {'colour': 'red'}"
    assert call.arguments["count"] == 2
    with pytest.raises(BadCall, match="no parameter 'colour'"):
        call.replace(colour="blue")


async def test_identity_replaces_the_arguments_but_not_what_the_body_gets():
    @effect("read", idempotency=Idempotency.READ, identity=lambda connection, path: {"path": path})
    async def read(connection: object, path: str = "/") -> object:
        return connection

    connection = object()
    assert Call(effect=read, args=(connection,)).arguments == {"path": "/"}
    assert read.bind(connection) == {"connection": connection, "path": "/"}
    assert await read(connection) is connection


def test_a_recalled_call_has_its_recorded_arguments():
    call = order.recall({"item": "tea", "old": 1})
    assert (call.name, call.version, call.arguments) == ("order", 1, {"item": "tea", "old": 1})


async def test_the_current_call_is_the_one_whose_body_runs():
    @effect("inner", idempotency=Idempotency.ONCE)
    async def inner() -> tuple[str, str]:
        return current_call().call.name, current_call().idempotency_key

    @effect("outer", idempotency=Idempotency.COMPOSITE)
    async def outer() -> list[object]:
        before = current_call().call.name
        return [before, *await inner(), current_call().call.name]

    with PlainLayer().installed():
        assert await outer() == ["outer", "inner", "key-2", "outer"]
        with pytest.raises(NoCall):
            current_call()


async def test_without_a_layer_there_is_no_current_call_and_a_branch_does_nothing():
    @effect("keyed", idempotency=Idempotency.KEYED, window_s=60)
    async def keyed() -> str:
        return current_call().idempotency_key

    with branch("left"), pytest.raises(NoCall) as caught:
        await keyed()
    assert "PlainLayer" in caught.value.next


async def test_a_branch_asks_the_layer():
    from contextlib import contextmanager

    class Branching(PlainLayer):
        @contextmanager
        def branch(self, name):
            names.append(name)
            yield
            names.append(f"end {name}")

    names: list[str] = []
    with Branching().installed(), branch("left"):
        assert names == ["left"]
    assert names == ["left", "end left"]
