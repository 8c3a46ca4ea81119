"""What the kills do not reach: errors, cancellations and tasks inside one living process. Each was a fault once."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from effects import Call, Idempotency, NotPerformed, Performed, Unknown, branch, current_call, effect
from effects._question import Choice, Decision, Question
from effects._receipt import Receipt, Status
from savepoint import Held, KeyValue, MemoryStore, Registry, RunResult, World, resumable, run_program
from savepoint._claim import Claim
from savepoint._events import Called, read_events
from savepoint._frame import Frame
from savepoint._gate import Gate
from savepoint._guard import Guard
from savepoint._point import current_world
from savepoint._questions import record_decision
from savepoint._run_result import get_run
from savepoint._store import Space

ONCE, READ, KEYED = Idempotency.ONCE, Idempotency.READ, Idempotency.KEYED
CONTAINED, COMPOSITE = Idempotency.CONTAINED, Idempotency.COMPOSITE


async def lived(body: Any, store: MemoryStore, *effects: Any, world: World | None = None, **more: Any) -> RunResult:
    """One attempt of a run whose program is `body`; its function has the same name in each."""
    program = resumable("test/program")(body)
    registry = Registry([program], effects=effects)
    return await run_program(program.at(), store=store, run_id="run", world=world, registry=registry, **more)


async def newest(store: MemoryStore) -> dict[str, Status]:
    """Effect -> the newest status of its newest call."""
    lineage = (await get_run(store, "run")).lineage
    rows = await store.scan(Space.EVENT, lineage)
    called = [event.receipt for row in rows for event in read_events(row) if isinstance(event, Called)]
    return {receipt.effect: receipt.status for receipt in called}


async def decide(store: MemoryStore, question: Question, choice: Choice, value: object = None) -> None:
    lineage = (await get_run(store, "run")).lineage
    decision = Decision(question=question.id, choice=choice, value=value)
    await record_decision(store, lineage, question, decision, Registry().types)


# -- doubt ------------------------------------------------------------------------------------------------------------


async def test_a_probe_that_fails_knows_nothing_and_its_error_is_not_the_calls() -> None:
    @effect("send", idempotency=ONCE)
    async def send() -> None:
        raise TimeoutError

    @send.probe
    async def probe(call: Call) -> Unknown:
        raise ConnectionError("the same network")

    async def program(world: World) -> str:
        try:
            await send()
        except Exception:
            return "sent it in another way"
        return "sent"

    store = MemoryStore()
    for _ in range(2):  # in the attempt itself, and in one that resumes
        result = await lived(program, store, send)
        assert result.status == "waiting"
        assert [question.kind for question in result.questions] == ["in_doubt"]
    assert await newest(store) == {"send": Status.IN_DOUBT}


async def test_a_probe_knows_the_idempotency_key_of_the_call() -> None:
    keys: list[str] = []

    @effect("send", idempotency=ONCE)
    async def send() -> str:
        keys.append(current_call().idempotency_key)
        raise TimeoutError

    @send.probe
    async def probe(call: Call) -> Performed[str]:
        keys.append(current_call().idempotency_key)
        return Performed("found")

    async def program(world: World) -> str:
        return await send()

    result = await lived(program, MemoryStore(), send)
    assert result.value == "found"
    assert len(keys) == 2
    assert len(set(keys)) == 1


async def test_a_body_that_is_tried_again_makes_the_same_calls_again() -> None:
    entered: Counter[str] = Counter()

    @effect("inner", idempotency=ONCE)
    async def inner() -> str:
        entered["inner"] += 1
        return "inner"

    @effect("bump", idempotency=CONTAINED)
    async def bump() -> int:
        entered["bump"] += 1
        kv: Any = current_world().system("kv")
        kv["n"] = kv.get("n", 0) + 1
        return kv["n"]

    @effect("outer", idempotency=KEYED, window_s=60)
    async def outer() -> str:
        entered["outer"] += 1
        said = f"{await inner()} {await bump()}"
        if entered["outer"] == 1:
            raise TimeoutError
        return said

    async def program(world: World) -> str:
        return await outer()

    result = await lived(program, MemoryStore(), world=World({"kv": KeyValue()}))
    assert result.value == "inner 1"
    assert entered == {"outer": 2, "inner": 1, "bump": 1}


# -- parking and ending -----------------------------------------------------------------------------------------------


@effect("gone", idempotency=ONCE)
async def gone() -> None:
    raise TimeoutError


async def test_a_run_that_parks_inside_a_task_group_waits() -> None:
    async def program(world: World) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(gone())

    assert (await lived(program, MemoryStore())).status == "waiting"


async def test_a_failing_program_waits_for_the_call_in_flight_and_records_it() -> None:
    failing = asyncio.Event()

    @effect("slow", idempotency=ONCE)
    async def slow() -> str:
        await failing.wait()
        return "done"

    async def fail() -> None:
        failing.set()
        raise ValueError("the program's own")

    async def program(world: World) -> None:
        await asyncio.gather(slow(), fail())

    store = MemoryStore()
    assert (await lived(program, store)).status == "failed"
    assert await newest(store) == {"slow": Status.PERFORMED}


async def test_a_task_that_outlives_its_run_does_nothing_any_more() -> None:
    after, entered = asyncio.Event(), []
    left: list[asyncio.Task[None]] = []

    @effect("late", idempotency=ONCE)
    async def late() -> None:
        entered.append("late")

    async def wait_and_send() -> None:
        await after.wait()
        await late()

    async def program(world: World) -> str:
        left.append(asyncio.create_task(wait_and_send()))
        return "done"

    store = MemoryStore()
    assert (await lived(program, store)).value == "done"
    rows = await store.scan(Space.EVENT)
    after.set()
    await asyncio.wait(left)
    assert left[0].exception() is not None
    assert not entered
    assert await store.scan(Space.EVENT) == rows


async def test_a_program_that_fails_without_asking_again_for_what_was_performed_has_diverged() -> None:
    first = [True]

    @effect("send", idempotency=ONCE)
    async def send() -> str:
        return "sent"

    async def program(world: World) -> None:
        if first.pop():
            await send()
        raise ValueError("the program's own")

    store = MemoryStore()
    assert (await lived(program, store)).status == "failed"
    first.append(False)
    result = await lived(program, store)
    assert [question.kind for question in result.questions] == ["diverged"]


async def test_an_error_of_the_host_gives_the_claim_back() -> None:
    class Full(KeyValue):
        async def fork(self, contents: Any, *, at: bytes | None, place: Path) -> Any:
            raise OSError("no space left")

    fails = [True]

    async def program(world: World) -> str:
        if fails.pop():
            raise ValueError
        return "done"

    store = MemoryStore()
    assert (await lived(program, store, world=World({"kv": KeyValue()}))).status == "failed"
    with pytest.raises(OSError, match="no space"):
        await lived(program, store, world=World({"kv": Full()}))
    assert (await get_run(store, "run")).status == "interrupted"
    fails.append(False)
    assert (await lived(program, store, world=World({"kv": KeyValue()}))).value == "done"


async def test_of_two_restarts_of_one_run_one_wins() -> None:
    async def program(world: World) -> str:
        await asyncio.sleep(0)
        return "done"

    store = MemoryStore()
    await lived(program, store)
    restarts = (lived(program, store, if_run_exists="restart") for _ in range(2))
    met = await asyncio.gather(*restarts, return_exceptions=True)
    assert {type(each) for each in met} == {Held, RunResult}


# -- decisions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "value"),
    [(Choice.PERFORMED, "sent"), (Choice.REDO, "sent"), (Choice.FAIL, "failed")],
)
async def test_every_verdict_on_a_performed_call_counts_where_recovery_is_strict(choice: Choice, value: str) -> None:
    sent: list[int] = []
    crash = [True]

    @effect("send", idempotency=ONCE)
    async def send() -> str:
        sent.append(1)
        return "sent"

    async def program(world: World) -> str:
        try:
            said = await send()
        except Exception:
            said = "failed"
        if crash.pop():
            raise ValueError
        return said

    store = MemoryStore()
    assert (await lived(program, store, send, recovery="strict")).status == "failed"
    crash.append(False)
    waiting = await lived(program, store, send)
    assert [question.kind for question in waiting.questions] == ["performed"]
    await decide(store, waiting.questions[0], choice)
    assert (await lived(program, store, send)).value == value
    assert len(sent) == (2 if choice is Choice.REDO else 1)


async def test_two_equal_calls_are_compensated_twice_and_the_host_is_not_touched() -> None:
    undone: list[str] = []
    host = KeyValue({"n": 0})

    @effect("book")
    async def book(what: str) -> str:
        raise TimeoutError

    @book.compensate
    async def unbook(call: Call, result: str) -> None:
        undone.append(str(call.arguments["what"]))

    @effect("note", idempotency=ONCE)
    async def note() -> None: ...

    @effect("team", idempotency=COMPOSITE)
    async def team(name: str) -> str:
        try:
            return await book("seat")
        except Exception as error:
            return type(error).__name__

    async def program(world: World) -> list[str]:
        await note()  # performed, and not asked for again when the compensations run
        return list(await asyncio.gather(team("a"), team("b")))

    store, world = MemoryStore(), World({"kv": host})
    decided = 0
    while (result := await lived(program, store, book, note, world=world)).status == "waiting":
        assert {question.kind for question in result.questions} == {"in_doubt"}
        for question in result.questions:
            await decide(store, question, Choice.COMPENSATE)
            decided += 1
    assert result.value == ["Compensated", "Compensated"]
    assert undone == ["seat"] * decided == ["seat", "seat"]
    assert dict(host.items()) == {"n": 0}


async def test_a_compensation_that_fails_fails_the_run() -> None:
    @effect("book", idempotency=ONCE)
    async def book() -> None:
        raise TimeoutError

    @book.compensate
    async def unbook(call: Call, result: None) -> None:
        raise ValueError("too late")

    async def program(world: World) -> None:
        await book()

    store = MemoryStore()
    waiting = await lived(program, store, book)
    await decide(store, waiting.questions[0], Choice.COMPENSATE)
    result = await lived(program, store, book)
    assert result.status == "failed"
    assert result.error is not None
    assert "too late" in result.error.message


# -- leases, gates, guards ----------------------------------------------------------------------------------------------


async def test_two_renewals_at_once_do_not_take_each_other_for_another_owner() -> None:
    store = MemoryStore()
    claim = Claim(store=store, run_key=b"run", epoch=1, lease_s=30.0, lock=None)
    async with store.commit() as tx:
        claim.write(tx)
    await asyncio.gather(claim.renew(), claim.renew(), claim.ensure())
    await claim.rest()
    async with store.commit() as tx:
        claim.give_back(tx)
    assert await store.read(Space.LEASE, b"run") is None


async def test_bodies_that_perform_calls_which_run_alone_do_not_wait_for_each_other_for_ever() -> None:
    @effect("tool")
    async def tool(name: str) -> str:
        return name

    @effect("fetch", idempotency=READ)
    async def fetch(name: str) -> str:
        await asyncio.sleep(0)
        return await tool(name)

    async def part(name: str) -> str:
        with branch(name):
            return await fetch(name)

    async def program(world: World) -> list[str]:
        return list(await asyncio.gather(part("a"), part("b"), part("c")))

    async with asyncio.timeout(10):
        result = await lived(program, MemoryStore(), world=World({"kv": KeyValue()}))
    assert result.value == ["a", "b", "c"]


async def test_a_call_that_runs_alone_has_nobody_beside_it() -> None:
    gate, seen = Gate(), []

    async def body(name: bytes, *, alone: bool) -> None:
        async with gate.running(name, alone=alone):
            seen.append((name, "in"))
            await asyncio.sleep(0)
            seen.append((name, "out"))

    await asyncio.gather(body(b"a" * 16, alone=False), body(b"b" * 16, alone=True), body(b"c" * 16, alone=False))
    at = seen.index((b"b" * 16, "in"))
    assert seen[at + 1] == (b"b" * 16, "out")
    assert gate.idle


async def test_who_waits_for_what_was_not_asked_yet_does_not_spin() -> None:
    looked = Counter[bytes]()

    class Counting(Guard):
        def _missing(self, levels: tuple[bytes, ...]) -> list[Receipt]:
            looked[levels[0]] += 1
            return super()._missing(levels)

    missed = Receipt(key=b"m" * 16, step=0, effect="e", version=1, idempotency=ONCE, status=Status.PERFORMED, number=1)
    guard = Counting(past=(missed,))
    guard.new_step(0)
    frames = [Frame(key=name * 16) for name in (b"a", b"b", b"c")]
    with guard.running(frames[0]), guard.running(frames[1]), guard.running(frames[2]):
        waiting = [asyncio.create_task(guard.missing(frame, (b"",))) for frame in frames[:2]]
        for _ in range(1000):
            await asyncio.sleep(0)
        assert sum(looked.values()) < 20
        guard.ask(missed.key)
        assert await asyncio.gather(*waiting) == [[], []]


async def test_a_final_not_performed_is_tried_again_at_once() -> None:
    tries: list[int] = []

    @effect("send", idempotency=ONCE)
    async def send() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise TimeoutError
        return "sent"

    @send.probe
    async def probe(call: Call) -> NotPerformed:
        return NotPerformed(final=True)

    async def program(world: World) -> str:
        return await send()

    assert (await lived(program, MemoryStore())).value == "sent"
    assert len(tries) == 2
