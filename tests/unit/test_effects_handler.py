"""Handlers: who is asked, in which order, in whose scope, and that nothing leaks."""

import asyncio
from collections.abc import AsyncIterator
from contextvars import Context

import pytest

from effects import BadDeclaration, Call, Forward, Idempotency, OutOfScope, Parked, effect, handler, intercept
from effects.testing import PlainLayer


@effect("mail/send", idempotency=Idempotency.ONCE)
async def send(to: str, *, body: str = "hi") -> str:
    return f"sent {body} to {to}"


@effect("text/upper", idempotency=Idempotency.PURE)
async def upper(text: str) -> str:
    return text.upper()


@effect("mail/all", idempotency=Idempotency.COMPOSITE)
async def send_all(*people: str) -> list[str]:
    return [await send(each) for each in people]


async def fake(to: str, *, body: str = "hi") -> str:
    return f"kept {body} for {to}"


def tagging(tag: str):
    async def tagged(to: str, *, body: str = "hi") -> str:
        return await send(to, body=f"{tag}({body})")

    return tagged


async def test_without_a_handler_the_body_is_performed():
    assert await send("ada") == "sent hi to ada"
    assert await upper("a") == "A"


async def test_a_handler_answers_its_effect_and_no_other():
    with handler(send, fake):
        assert await send("ada", body="x") == "kept x for ada"
        assert await upper("a") == "A"


async def test_forwarding_goes_outward_innermost_first():
    with handler(send, tagging("outer")), handler(send, tagging("inner")):
        assert await send("ada") == "sent outer(inner(hi)) to ada"


async def test_an_outer_handler_answers_what_an_inner_one_forwards():
    with handler(send, fake), handler(send, tagging("inner")):
        assert await send("ada") == "kept inner(hi) for ada"


async def test_one_handler_object_may_be_installed_twice_at_once():
    shout = handler(send, tagging("again"))
    with shout, shout:
        assert await send("ada") == "sent again(again(hi)) to ada"
    assert await send("ada") == "sent hi to ada"


async def test_an_error_of_a_handler_is_raised_where_the_effect_was_performed():
    async def fail(to: str, *, body: str = "hi") -> str:
        raise LookupError(to)

    with handler(send, fail):
        with pytest.raises(LookupError, match="ada"):
            await send("ada")
        # The handlers in scope are as before.
        with pytest.raises(LookupError, match="bob"):
            await send("bob")


async def test_a_handler_may_catch_what_it_forwards_to():
    async def fail(to: str, *, body: str = "hi") -> str:
        raise LookupError(to)

    async def calm(to: str, *, body: str = "hi") -> str:
        try:
            return await send(to, body=body)
        except LookupError:
            return "no"

    with handler(send, fail), handler(send, calm):
        assert await send("ada") == "no"


async def test_parked_passes_a_handler_that_catches_exceptions():
    async def park(to: str, *, body: str = "hi") -> str:
        raise Parked(("q1", "q2"))

    async def greedy(call: Call, forward: Forward) -> object:
        try:
            return await forward(call)
        except Exception:
            return "swallowed"

    with handler(send, park), intercept(greedy), pytest.raises(Parked) as parked:
        await send("ada")
    assert parked.value.questions == ("q1", "q2")


async def test_a_handler_is_gone_after_its_block_and_after_an_error_in_it():
    with pytest.raises(KeyError), handler(send, fake):
        raise KeyError
    assert await send("ada") == "sent hi to ada"


async def test_a_body_runs_under_the_handlers_of_its_performer():
    with handler(send, fake):
        assert await send_all("ada", "bob") == ["kept hi for ada", "kept hi for bob"]


async def test_a_forwarded_body_still_runs_under_the_inner_handlers():
    """Else a fake would be lost, and real mail sent, because somebody further out traces the composite."""

    async def trace(call: Call, forward: Forward) -> object:
        return await forward(call)

    async def trace_typed(*people: str) -> list[str]:
        return await send_all(*people)

    for outer in (intercept(trace), handler(send_all, trace_typed)):
        with outer, handler(send, fake):
            assert await send_all("ada") == ["kept hi for ada"]


async def test_what_a_handler_performs_itself_is_not_handled_by_inner_handlers():
    async def wrapped(*people: str) -> list[str]:
        return [await send(each) for each in people]

    with handler(send_all, wrapped), handler(send, fake):
        assert await send_all("ada") == ["sent hi to ada"]


async def test_a_body_performed_by_a_handler_is_not_taken_for_forwarding():
    """The body of `send_all` runs for the handler of `send`: what it sends meets the handlers outside that one."""
    seen: list[str] = []

    async def outer(to: str, *, body: str = "hi") -> str:
        seen.append(to)
        return "outer"

    async def inner(to: str, *, body: str = "hi") -> str:
        return ",".join(await send_all(to, to))

    with handler(send, outer), handler(send, inner):
        assert await send("ada") == "outer,outer"
    assert seen == ["ada", "ada"]


@pytest.mark.parametrize("typed", [True, False], ids=["handler", "interceptor"])
async def test_what_a_handler_installs_around_forwarding_holds_for_the_body(typed):
    async def sandbox(*people: str) -> list[str]:
        with handler(send, fake):
            return await send_all(*people)

    async def sandbox_any(call: Call, forward: Forward) -> object:
        with handler(send, fake):
            return await forward(call)

    with handler(send_all, sandbox) if typed else intercept(sandbox_any, only=[send_all]):
        assert await send_all("ada") == ["kept hi for ada"]
        assert await send("ada") == "sent hi to ada"


async def test_an_interceptor_sees_every_effect_or_the_named_ones():
    seen: list[str] = []

    async def note(call: Call, forward: Forward) -> object:
        seen.append(call.name)
        return await forward(call)

    with intercept(note):
        await send_all("ada")
        await upper("a")
    with intercept(note, only=[send, "no/such"]):
        await send_all("bob")
    assert seen == ["mail/all", "mail/send", "text/upper", "mail/send"]


async def test_an_interceptor_may_change_a_call_and_forward_it_more_than_once():
    async def twice(call: Call, forward: Forward) -> object:
        return [await forward(call), await forward(call.replace(body="bye"))]

    with intercept(twice, only=[send]):
        assert await send("ada") == ["sent hi to ada", "sent bye to ada"]


async def test_an_interceptor_cannot_forward_a_call_of_another_effect():
    async def mix(call: Call, forward: Forward) -> object:
        return await forward(Call(effect=upper, args=("a",)))

    with intercept(mix, only=[send]), pytest.raises(BadDeclaration, match="text/upper"):
        await send("ada")


async def test_forward_works_in_a_child_task_and_nowhere_else():
    kept: list[Forward] = []

    async def spawn(call: Call, forward: Forward) -> object:
        kept.append(forward)
        async with asyncio.TaskGroup() as tasks:
            done = tasks.create_task(_forwarded(forward, call))
        return done.result()

    async def _forwarded(forward: Forward, call: Call) -> object:
        return await forward(call)

    with intercept(spawn, only=[send]):
        assert await send("ada") == "sent hi to ada"
        with pytest.raises(OutOfScope, match="mail/send"):
            await kept[0](Call(effect=send, args=("ada",)))


async def test_child_tasks_and_threads_inherit_the_handlers():
    with handler(send, fake):
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(send("ada"))
        assert task.result() == "kept hi for ada"
        assert await asyncio.to_thread(lambda: asyncio.run(send("bob"))) == "kept hi for bob"


async def test_a_handler_installed_in_a_task_stays_in_it():
    installed, looked = asyncio.Event(), asyncio.Event()

    async def child() -> None:
        with handler(send, fake):
            installed.set()
            await looked.wait()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(child())
        await installed.wait()
        assert await send("ada") == "sent hi to ada"
        looked.set()


async def test_a_cancelled_handler_leaves_the_scope_as_it_was():
    started = asyncio.Event()

    async def hang(to: str, *, body: str = "hi") -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    async def program() -> str:
        with handler(send, tagging("outer")), handler(send, hang):
            try:
                return await send("ada")
            except asyncio.CancelledError:
                with handler(send, fake):
                    return await send("bob")

    task = asyncio.create_task(program())
    await started.wait()
    task.cancel()
    assert await task == "kept hi for bob"


async def leaky() -> AsyncIterator[int]:
    with handler(send, fake):
        yield 1


async def test_a_block_held_over_a_yield_is_reported_when_left_out_of_order():
    source = leaky()
    await anext(source)
    with handler(send, tagging("mine")):
        with pytest.raises(OutOfScope, match="left in another context") as caught:
            await anext(source)
        assert "async generator" in caught.value.next


async def step(source: AsyncIterator[int]) -> int:
    return await anext(source)


async def test_a_block_held_over_a_yield_is_reported_when_left_in_another_context():
    source = leaky()
    entered = asyncio.create_task(step(source), context=Context())
    await entered
    with pytest.raises(OutOfScope):
        await step(source)


async def test_the_layer_gets_what_reaches_a_body_and_what_a_handler_answers():
    class Noting(PlainLayer):
        def __init__(self):
            super().__init__()
            self.log: list[str] = []

        async def settle(self, call, body):
            self.log.append(f"settle {call.name} {call.arguments}")
            return await super().settle(call, body)

        async def answer(self, call, ask):
            self.log.append(f"answer {call.name} {call.arguments}")
            return await ask()

    layer = Noting()
    with layer.installed():
        await send("ada")
        await upper("a")
        with handler(send, fake):
            await send("bob")
            await upper("a")
        with handler(send, tagging("out")), handler(send, tagging("in")):
            await send("cid")
        with handler(upper, upper.body):
            await upper("b")
    assert layer.log == [
        "settle mail/send {'to': 'ada', 'body': 'hi'}",
        "answer mail/send {'to': 'bob', 'body': 'hi'}",
        "answer mail/send {'to': 'cid', 'body': 'hi'}",
        "settle mail/send {'to': 'cid', 'body': 'out(in(hi))'}",
    ]


async def test_a_layer_may_enter_the_body_in_a_task_of_its_own():
    class Shielding(PlainLayer):
        async def settle(self, call, body):
            return await asyncio.create_task(super().settle(call, body))

    with Shielding().installed(), handler(send, fake):
        assert await send_all("ada") == ["kept hi for ada"]


async def test_nothing_is_bound_where_nobody_reads_it():
    async def blind(call: Call, forward: Forward) -> object:
        return await forward(call)

    bound: list[str] = []

    @effect("counted", idempotency=Idempotency.READ, identity=lambda x: bound.append(x) or {"x": x})
    async def counted(x: str) -> str:
        return x

    with intercept(blind), intercept(blind):
        assert await counted("a") == "a"
    assert bound == []

    async def reading(call: Call, forward: Forward) -> object:
        assert call.arguments is call.arguments
        return await forward(call)

    with intercept(reading), intercept(reading):
        await counted("b")
    assert bound == ["b"]
