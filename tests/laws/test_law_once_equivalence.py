"""Laws 7 and 8, Once and Equivalence, over random programs in one process.

An attempt is stopped at a random crash point by an exception that nothing in the library knows. Real kills of real
processes are in `test_law_killed.py` and `tests/crash`; here the programs are random instead of chosen.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from attrs import field, frozen, mutable
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effects import Call, Idempotency, NotPerformed, Performed, current_call, effect
from effects._call import CURRENT
from effects._question import Choice, Decision, Question, QuestionKind
from savepoint import (
    Cell,
    KeyValue,
    Log,
    MemoryStore,
    Registry,
    RunResult,
    RunStatus,
    World,
    resumable,
    run_program,
    savepoint,
)
from savepoint._codec import dumps
from savepoint._crashpoint import CrashPoint
from savepoint._digest import Domain, seal
from savepoint._point import current_world
from savepoint._questions import record_decision
from savepoint._run import run_key
from savepoint._run_result import get_run
from savepoint._store import Space
from savepoint.testing import arm

TRANSCRIPT: Cell[Log[Any]] = Cell("transcript", Log, default=Log())


@mutable
class Outside:
    """What the effects change: it knows no store, and its count is the truth."""

    done: Counter[tuple[str, Any, str]] = field(factory=Counter[tuple[str, Any, str]])
    """(class, argument, idempotency key) -> performances"""
    answers: dict[str, str] = field(factory=dict[str, str])
    """idempotency key -> answer"""
    told: list[str] = field(factory=list[str])
    """the effects of which somebody had to say that they were performed"""

    def act(self, kind: str, n: Any) -> str:
        key = current_call().idempotency_key
        if kind == "keyed" and key in self.answers:
            return self.answers[key]
        self.done[kind, n, key] += 1
        return self.answers.setdefault(key, f"{kind} {n}")

    def counts(self, *kinds: str) -> Counter[tuple[str, Any]]:
        found = Counter[tuple[str, Any]]()
        for (kind, n, _), times in self.done.items():
            if kind in kinds:
                found[kind, n] += times
        return found


outside = Outside()


@effect("law/read", idempotency=Idempotency.READ)
async def read(n: int) -> str:
    return f"read {n}"


@effect("law/bump", idempotency=Idempotency.CONTAINED)
async def bump(n: int) -> int:
    """Not idempotent on the world: what is done twice shows."""
    state = current_world().system("kv")
    state[str(n)] = state.get(str(n), 0) + 1  # type: ignore[index]
    return state[str(n)]  # type: ignore[index]


@effect("law/put", idempotency=Idempotency.IDEMPOTENT)
async def put(n: int) -> str:
    return outside.act("idempotent", n)


@effect("law/pay", idempotency=Idempotency.KEYED, window_s=3600)
async def pay(n: int) -> str:
    return outside.act("keyed", n)


@effect("law/send", idempotency=Idempotency.ONCE)
async def send(n: int) -> str:
    return outside.act("once", n)


@effect("law/sure", idempotency=Idempotency.ONCE)
async def sure(n: int) -> str:
    return outside.act("once", n)


@sure.probe
async def was_sure(call: Call) -> Performed[str] | NotPerformed:
    current = CURRENT.get()
    assert current is not None
    answer = outside.answers.get(current.idempotency_key)
    return NotPerformed(final=True) if answer is None else Performed(answer)


@effect("law/tool")
async def tool(n: int) -> str:
    """Undeclared: it acts outside, and in the world."""
    said = outside.act("once", n)
    current_world().system("kv")[f"tool {n}"] = said  # type: ignore[index]
    return said


@effect("law/bad", idempotency=Idempotency.ONCE)
async def bad(n: int) -> str:
    outside.act("once", n)
    raise ValueError(f"refused {n}")


@effect("law/group", idempotency=Idempotency.COMPOSITE)
async def group(inner: tuple[tuple[str, int], ...]) -> list[Any]:
    return [await performed(*each) for each in inner]


EFFECTS = {each.name.removeprefix("law/"): each for each in (read, bump, put, pay, send, sure, bad, tool)}


async def performed(name: str, n: int) -> Any:
    try:
        return await EFFECTS[name](n)
    except Exception as error:
        return f"failed: {error}"


@resumable("law/turns")
async def turns(world: World, script: tuple[tuple[Any, ...], ...], turn: int) -> list[Any]:
    while turn < len(script):
        for op in script[turn]:
            said = await group(op) if op and isinstance(op[0], tuple) else await performed(*op)
            world[TRANSCRIPT] = world[TRANSCRIPT].append({"op": op, "said": said})
        turn += 1
        await savepoint("turn", key={"turn": turn}, resume=turns.at(script, turn), state=[TRANSCRIPT])
    return list(world[TRANSCRIPT])


REGISTRY = Registry([turns], effects=[*EFFECTS.values(), group])


class Killed(BaseException):
    """The process is gone."""


@frozen
class Stop:
    """Dies at the `nth` crash point that is reached from now on."""

    nth: int

    def __enter__(self) -> None:
        left = [self.nth]

        def hook(point: CrashPoint) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed(point)

        arm(hook)

    def __exit__(self, *_: object) -> None:
        arm(None)


async def attempt(store: MemoryStore, script: Any) -> RunResult:
    """One process's life: it knows the store, and nothing of an earlier one."""
    return await run_program(
        turns.at(script, 0), store=store, run_id="r", registry=REGISTRY, world=World({"kv": KeyValue({})})
    )


async def bury(store: MemoryStore) -> None:
    """The kernel lock of a dead owner is free; a store in memory has none, so its lease goes instead."""
    async with store.commit() as tx:
        tx.delete(Space.LEASE, run_key("r"))


async def tell_the_truth(store: MemoryStore, questions: Sequence[Question]) -> None:
    run = await get_run(store, "r")
    for question in questions:
        assert question.kind is QuestionKind.IN_DOUBT, question
        key = seal(Domain.IDEMPOTENCY, dumps([run.lineage, question.step, question.key])).hex()
        if key not in outside.answers:
            decision = Decision(question=question.id, choice=Choice.REDO)
        elif question.effect == "law/bad":
            decision = Decision(question=question.id, choice=Choice.FAIL, note="known to have failed")
        else:
            outside.told.append(question.effect)
            decision = Decision(question=question.id, choice=Choice.PERFORMED, value=outside.answers[key])
        await record_decision(store, run.lineage, question, decision, REGISTRY.types)


async def through(script: Any, stops: Sequence[int]) -> tuple[MemoryStore, RunResult]:
    """Runs to the end, dying at each of `stops` on the way."""
    store = MemoryStore()
    for nth in stops:
        try:
            with Stop(nth):
                result = await attempt(store, script)
        except Killed:
            await bury(store)
            continue
        if result.status is RunStatus.COMPLETED:
            return store, result
        await tell_the_truth(store, result.questions)
    for _ in range(50):
        result = await attempt(store, script)
        if result.status is not RunStatus.WAITING:
            return store, result
        await tell_the_truth(store, result.questions)
    raise AssertionError("it waits for ever")


async def points(script: Any) -> int:
    """How many crash points an attempt reaches that nothing stops."""
    reached = [0]

    def hook(point: CrashPoint) -> None:
        reached[0] += 1

    arm(hook)
    try:
        await attempt(MemoryStore(), script)
    finally:
        arm(None)
    return reached[0]


@asynccontextmanager
async def fresh_outside() -> AsyncGenerator[Outside]:
    outside.done, outside.answers, outside.told = Counter(), {}, []
    yield outside


OP = st.tuples(st.sampled_from(["read", "bump", "put", "pay", "send", "sure"]), st.integers(0, 2))
GROUPED = st.lists(OP, min_size=1, max_size=3).map(tuple)
TURN = st.lists(OP | GROUPED, max_size=3).map(tuple)
SCRIPT = st.lists(TURN, min_size=1, max_size=3).map(tuple)
STOPS = st.lists(st.integers(1, 60), max_size=4)


@example(script=((("send", 1), ("send", 1)),), stops=[13])
@settings(max_examples=60)
@given(SCRIPT, STOPS)
async def test_law_7_once_wherever_any_program_is_stopped(script: Any, stops: list[int]) -> None:
    async with fresh_outside() as truth:
        await through(script, [])
        expected, puts = truth.counts("once", "keyed"), truth.counts("idempotent")
    async with fresh_outside() as truth:
        await through(script, stops)
        assert max((times for (kind, *_), times in truth.done.items() if kind == "once"), default=0) <= 1
        assert truth.counts("once", "keyed") == expected, "one performance too many, or one forgotten"
        assert truth.counts("idempotent") >= puts


@example(script=((("bump", 0), ("send", 1)), (("bump", 0),)), stops=[20, 9])
@settings(max_examples=60)
@given(SCRIPT, STOPS)
async def test_law_8_equivalence_wherever_any_program_is_stopped(script: Any, stops: list[int]) -> None:
    async with fresh_outside():
        plain_store, plain = await through(script, [])
    async with fresh_outside():
        store, result = await through(script, stops)
    assert (result.status, result.value, result.step) == (plain.status, plain.value, plain.step)
    run, expected = await get_run(store, "r"), await get_run(plain_store, "r")
    assert run.final is not None
    assert run.final == expected.final, "the worlds differ"
    assert run.state == expected.state


async def test_every_single_stop_of_one_program_of_all_classes() -> None:
    script = (
        (("read", 1), ("put", 1), ("tool", 1)),
        ((("bump", 1), ("pay", 1)), ("sure", 2)),
        (("send", 2), ("bump", 1)),
    )
    async with fresh_outside() as truth:
        plain_store, plain = await through(script, [])
        last = await points(script)
    async with fresh_outside() as truth:
        await through(script, [])
        expected = truth.counts("once", "keyed")
    final = (await get_run(plain_store, "r")).final
    told = 0
    assert last > 40
    for nth in range(1, last + 1):
        async with fresh_outside() as truth:
            store, result = await through(script, [nth])
            assert truth.counts("once", "keyed") == expected, f"stopped at point {nth}"
        assert result.status is RunStatus.COMPLETED, f"stopped at point {nth}"
        assert result.value == plain.value, f"stopped at point {nth}"
        # Nobody passes on the world changes of a call that is only said to have happened: they are recorded as lost.
        lost = "law/tool" in truth.told
        assert ((await get_run(store, "r")).final != final) is lost, f"stopped at point {nth}"
        told += lost
    assert told > 0


async def test_a_failure_that_was_recorded_is_raised_again_and_the_call_is_not_made_again() -> None:
    script = ((("bad", 1), ("send", 2)),)
    async with fresh_outside():
        _, plain = await through(script, [])
        last = await points(script)
    for nth in range(1, last + 1):
        async with fresh_outside() as truth:
            _, result = await through(script, [nth])
            assert truth.counts("once") == Counter({("once", 1): 1, ("once", 2): 1})
        assert (result.status, len(result.value)) == (plain.status, len(plain.value)), f"stopped at point {nth}"
        assert result.value[0]["said"] in (plain.value[0]["said"], "failed: DecidedToFail: known to have failed")
