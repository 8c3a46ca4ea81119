"""What a type checker must accept and must refuse of effects and handlers. Checked by basedpyright, never run.

Each ignore below is a refusal: it becomes an error itself when the checker no longer refuses.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=error, reportUnusedFunction=false

import asyncio
from typing import assert_type

from effects import Call, Effect, Forward, NotPerformed, Performed, Unknown, effect, handler, intercept


@effect("mail/send")
async def send(to: str, *, body: str = "") -> int:
    return len(to + body)


async def performing() -> None:
    assert_type(await send("ada", body="hi"), int)
    assert_type(await asyncio.create_task(send("ada")), int)
    assert_type(send.bind("ada"), dict[str, object])
    await send(1)  # pyright: ignore[reportArgumentType]
    await send("ada", "hi")  # pyright: ignore[reportCallIssue]
    await send()  # pyright: ignore[reportCallIssue]


async def fits(to: str, *, body: str = "") -> int:
    return 0


async def wider(to: str | None, *, body: object = "", extra: int = 0) -> bool:
    return True


async def wrong_result(to: str, *, body: str = "") -> str:
    return ""


async def wrong_shape(to: int) -> int:
    return to


def not_async(to: str, *, body: str = "") -> int:
    return 0


def handling() -> None:
    handler(send, fits)
    handler(send, wider)
    handler(send, wrong_result)  # pyright: ignore[reportArgumentType]
    handler(send, wrong_shape)  # pyright: ignore[reportArgumentType]
    handler(send, not_async)  # pyright: ignore[reportArgumentType]
    effect("x")(not_async)  # pyright: ignore[reportArgumentType]


async def passing(call: Call, forward: Forward) -> object:
    return await forward(call)


async def half(call: Call) -> object:
    return call


def intercepting() -> None:
    intercept(passing, only=[send, "other"])
    intercept(half)  # pyright: ignore[reportArgumentType]


@send.probe
async def was_sent(call: Call) -> Performed[int] | NotPerformed | Unknown:
    return Performed(3)


@send.probe  # pyright: ignore[reportArgumentType]
async def was_sent_wrongly(call: Call) -> Performed[str] | NotPerformed:
    return Performed("3")


@send.compensate
async def unsend(call: Call, result: int) -> None: ...


assert_type(unsend, Effect[[Call, int], None])
