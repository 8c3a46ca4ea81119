"""The walk through handlers and bodies agrees with the plainest model of it, for any nesting."""

import asyncio
from contextlib import ExitStack

from hypothesis import example, given
from hypothesis import strategies as st

from effects import Call, Forward, Idempotency, effect, handler, intercept

log: list[str] = []


@effect("c", idempotency=Idempotency.READ)
async def c() -> None:
    log.append("body c")


@effect("b", idempotency=Idempotency.READ)
async def b() -> None:
    log.append("body b")
    await c()


@effect("a", idempotency=Idempotency.READ)
async def a() -> None:
    log.append("body a")
    await b()
    await c()


EFFECTS = {each.name: each for each in (a, b, c)}
PERFORMS = {"a": "bc", "b": "c", "c": ""}
WAYS = ["answer", "forward", "intercept", "perform a", "install"]
HANDLER = st.tuples(st.sampled_from("abc"), st.sampled_from(WAYS))


def install(name: str, way: str, tag: str):
    target = EFFECTS[name]

    async def answer() -> None:
        log.append(f"{way} {name} {tag}")
        match way:
            case "forward":
                await target()
            case "perform a":
                await a()
            case "install":
                with install("c", "answer", f"{tag}+"):
                    await target()
            case _:
                pass

    async def between(call: Call, forward: Forward) -> object:
        log.append(f"{way} {name} {tag}")
        return await forward(call)

    return intercept(between, only=[name]) if way == "intercept" else handler(target, answer)


def expected(name: str, visible: list[tuple[str, str, str]], performer: list[tuple[str, str, str]]) -> list[str]:
    """`visible`: the handlers that may be asked, `performer`: those of the body; innermost first."""
    for place, (handled, way, tag) in enumerate(visible):
        if handled != name:
            continue
        outer = visible[place + 1 :]
        said = [f"{way} {name} {tag}"]
        extra = [("c", "answer", f"{tag}+")]
        match way:
            case "answer":
                return said
            case "perform a" if name != "a":
                return said + expected("a", outer, outer)
            case "install":
                return said + expected(name, extra + outer, extra + performer)
            case _:
                return said + expected(name, outer, performer)
    return [f"body {name}", *(line for inner in PERFORMS[name] for line in expected(inner, performer, performer))]


@example([("b", "perform a"), ("c", "answer")])  # the body of `a` runs for the handler: `c` must stay unseen
@given(st.lists(HANDLER, max_size=6))
def test_any_nesting_is_walked_as_the_model_says(nesting):
    log.clear()
    tagged = [(name, way, str(place)) for place, (name, way) in enumerate(nesting)]
    with ExitStack() as stack:
        for each in tagged:
            stack.enter_context(install(*each))
        asyncio.run(a())
    assert log == expected("a", tagged[::-1], tagged[::-1])
