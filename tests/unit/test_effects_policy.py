"""The generic handlers, and that a refused call happens nowhere."""

import asyncio
from typing import Any

import pytest

from effects import (
    BadDeclaration,
    Fault,
    Idempotency,
    Recorded,
    Refused,
    allow,
    deny,
    effect,
    faults,
    quota,
    record,
    replay,
)

sent: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_sent():
    sent.clear()


@effect("mail/send")
async def send(to: str) -> int:
    sent.append(to)
    return len(sent)


@effect("mail/all", idempotency=Idempotency.COMPOSITE)
async def send_all(*people: str) -> list[int]:
    return [await send(each) for each in people]


@effect("fail", idempotency=Idempotency.READ)
async def fail() -> None:
    raise LookupError("gone")


async def test_deny_refuses_before_anything_happens_and_says_why():
    with (
        deny(send, "other", reason="not on Sundays"),
        pytest.raises(Refused, match="mail/send was refused: not on Sundays"),
    ):
        await send("ada")
    assert sent == []


async def test_deny_reaches_into_bodies_and_leaves_the_rest():
    with deny("mail/send"):
        assert await send_all() == []
        with pytest.raises(Refused):
            await send_all("ada")
    assert sent == []


async def test_allow_refuses_all_others_at_any_depth():
    with allow(send_all):
        with pytest.raises(Refused, match="fail"):
            await fail()
        with pytest.raises(Refused) as caught:
            await send_all("ada")
        assert "mail/send" in caught.value.next
    with allow(send_all, "mail/send"):
        assert await send_all("ada") == [1]
    with allow(), pytest.raises(Refused):
        await send("bob")
    assert sent == ["ada"]


async def test_nested_restrictions_all_hold():
    with allow(send), deny(send), pytest.raises(Refused):
        await send("ada")
    with deny(send), allow(send), pytest.raises(Refused):
        await send("ada")
    assert sent == []


async def test_one_policy_serves_concurrent_tasks():
    guard = allow(send)
    both = asyncio.Barrier(2)

    async def program(name: str) -> int:
        with guard:
            await both.wait()
            return await send(name)

    assert sorted(await asyncio.gather(program("ada"), program("bob"))) == [1, 2]
    await fail_is_free()


async def fail_is_free():
    with pytest.raises(LookupError):
        await fail()


async def test_quota_counts_each_effect_and_its_failures():
    with quota({send: 2, "fail": 1}):
        assert await send_all("ada", "bob") == [1, 2]
        with pytest.raises(Refused, match="quota"):
            await send("cid")
        with pytest.raises(LookupError):
            await fail()
        with pytest.raises(Refused):
            await fail()
    assert sent == ["ada", "bob"]


async def test_a_recording_answers_the_same_program_without_performing_anything():
    async def program() -> list[object]:
        answers: list[object] = [await send("ada"), await send("ada"), await send_all("bob")]
        with pytest.raises(LookupError, match="gone"):
            await fail()
        return answers

    recording: list[Recorded] = []
    with record(recording):
        first = await program()
    assert [each.name for each in recording] == ["mail/send", "mail/send", "mail/send", "mail/all", "fail"]
    sent.clear()
    with replay(recording):
        assert await program() == first == [1, 2, [3]]
        with pytest.raises(Refused, match="no such call"):
            await send("ada")
    assert sent == []


async def test_a_replay_refuses_other_arguments_and_other_versions():
    with replay([Recorded(name="mail/send", version=2, arguments={"to": "ada"}, result=1)]), pytest.raises(Refused):
        await send("ada")
    with replay([Recorded(name="mail/send", version=1, arguments={"to": "ada"}, result=1)]):
        with pytest.raises(Refused):
            await send("bob")
        assert await send("ada") == 1
    assert sent == []


async def test_a_cancelled_call_is_not_recorded():
    started = asyncio.Event()

    @effect("hang", idempotency=Idempotency.READ)
    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    recording: list[Recorded] = []

    async def program() -> None:
        with record(recording):
            await hang()

    task = asyncio.create_task(program())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert recording == []


async def test_faults_strike_the_planned_calls_before_or_after_they_happen():
    plan = [
        Fault(effect=send, nth=2, error=TimeoutError("lost"), answered=True),
        Fault(effect="mail/send", nth=3, error=ConnectionError("down")),
    ]
    with faults(plan):
        assert await send("ada") == 1
        with pytest.raises(TimeoutError, match="lost"):
            await send("bob")
        with pytest.raises(ConnectionError, match="down"):
            await send("cid")
        assert await send("dan") == 3
    assert sent == ["ada", "bob", "dan"]


def test_policies_refuse_what_is_no_effect():
    no_effect: Any = len
    for wrong in (lambda: allow(no_effect), lambda: deny(no_effect), lambda: quota({no_effect: 1}), deny):
        with pytest.raises(BadDeclaration) as caught:
            wrong()
        assert caught.value.next
    with pytest.raises(BadDeclaration, match="two faults"):
        faults([Fault(effect=send, error=KeyError()), Fault(effect="mail/send", error=KeyError())])
