"""A savepoint that every attempt dies or fails from: what counts, when it is asked about, and what the answers do."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effects import Idempotency, NotPerformed, effect
from effects._failure import Failure
from effects._question import Choice, Decision, Question, QuestionKind
from savepoint import (
    Conflict,
    MemoryStore,
    Registry,
    RunResult,
    RunStatus,
    Usage,
    World,
    fork_program,
    open_store,
    resumable,
    resume_program,
    run_program,
    savepoint,
)
from savepoint._crashpoint import CrashPoint, arm
from savepoint._errors import Stopped
from savepoint._poison import failures_at, must_ask, poison_reason
from savepoint._questions import record_decision
from savepoint._run import RunRecord, read_run, run_key, write_run
from savepoint._run_result import get_run
from savepoint._store import Row, Space, Store

log: list[str] = []
how: list[str] = []
"""what the attempts at step 1 meet, one after the other; then they return"""


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture(autouse=True)
def _fresh() -> None:
    log.clear()
    how.clear()


@effect("poison/act", idempotency=Idempotency.ONCE)
async def act(what: str) -> None:
    log.append(what)
    if what == "deadly":
        raise Killed


@act.probe
async def acted(call: object) -> NotPerformed:
    log.append("probed")
    raise Killed


@resumable("poison/work")
async def work(world: World, step: int) -> str:
    if step == 0:
        await savepoint("step", resume=work.at(1))
    log.append(f"entered {step}")
    match how.pop(0) if how else "":
        case "dies":
            raise Killed
        case "fails":
            raise ValueError("no such luck")
        case "stops":
            raise Stopped(OSError("away"))
        case "moves on":
            await savepoint("step", resume=work.at(2))
            raise Killed
        case "acts":
            await act("deadly")
        case _:
            return "done"
    return "acted"


REGISTRY = Registry([work], effects=[act])


@asynccontextmanager
async def opened(kind: str, place: Path) -> AsyncGenerator[Store]:
    if kind == "memory":
        yield MemoryStore()
        return
    async with open_store(place / "store") as store:
        yield store


stores = pytest.mark.parametrize("kind", ["memory", "sqlite"])


async def attempt(store: Store, **options: Any) -> RunResult | None:
    """None where the process is gone."""
    try:
        return await run_program(work.at(0), store=store, run_id="r", registry=REGISTRY, **options)
    except Killed:
        if store.locks is None:  # a kernel lock is free when its process is gone; a store in memory has none
            async with store.commit() as tx:
                tx.delete(Space.LEASE, run_key("r"))
        return None


async def answer(store: Store, question: Question, choice: Choice) -> None:
    record = await get_run(store, "r")
    await record_decision(
        store, record.lineage, question, Decision(question=question.id, choice=choice), REGISTRY.types
    )


async def failures(store: Store) -> int:
    return (await get_run(store, "r")).failures


# -- what counts ------------------------------------------------------------------------------------------------------

TABLE: tuple[tuple[str, int | None, int, int, int], ...] = (
    # status, resumed from, failures so far, claimed at -> failures
    ("running", None, 0, 0, 1),  # the first attempt died at savepoint 0
    ("failed", None, 0, 0, 1),
    ("running", None, 0, 1, 0),  # it left savepoint 0, so it is no failure of savepoint 1 yet
    ("running", 1, 0, 1, 1),
    ("failed", 1, 0, 1, 1),
    ("running", 1, 2, 1, 3),
    ("failed", 1, 2, 1, 3),
    ("running", 1, 2, 2, 0),
    ("failed", 1, 2, 2, 0),
    ("interrupted", 1, 2, 1, 2),  # an unreachable model is not the savepoint's fault
    ("waiting", 1, 2, 1, 2),
    ("interrupted", 1, 2, 2, 0),  # it left savepoint 1 before it was interrupted
    ("waiting", 1, 2, 2, 0),
    ("running", 2, 2, 1, 0),  # savepoint 2 is damaged since: another one
)


@pytest.mark.parametrize(("status", "resumed_from", "before", "step", "expected"), TABLE)
def test_what_a_claim_counts(status: str, resumed_from: int | None, before: int, step: int, expected: int) -> None:
    record = _record(status=RunStatus(status), resumed_from=resumed_from, failures=before)
    assert failures_at(record, step) == expected
    assert read_run(Row(key=b"r", body=write_run(record), digest=b"")).failures == before


def _record(**more: Any) -> RunRecord:
    return RunRecord(run_id="r", lineage=b"l" * 16, program="p", **more)


@given(limit=st.integers(1, 7), rounds=st.integers(1, 5))
def test_each_redo_allows_as_many_attempts_as_led_to_the_first_question(limit: int, rounds: int) -> None:
    asked: list[int] = []
    for count in range(limit * rounds + 1):
        if must_ask(count, limit, asked):
            asked.append(count)
    assert asked == [limit * each for each in range(1, rounds + 1)]


@given(count=st.integers(0, 50), limit=st.integers(1, 9), other=st.integers(1, 9))
def test_a_redo_is_never_asked_about_again_at_once_whatever_the_limit(count: int, limit: int, other: int) -> None:
    assert not must_ask(count, None, [])
    if must_ask(count, limit, []):
        assert not must_ask(count, other, [count])
        assert must_ask(count + other, other, [count])


def test_the_reason_names_the_savepoint_and_the_last_error_where_it_is_known() -> None:
    error = Failure(kind="ValueError", message="no such luck")
    failed = _record(status=RunStatus.FAILED, error=error)
    several = "3 attempts in a row died or failed from savepoint 4"
    assert poison_reason(3, 4, failed) == f"{several}; the last error: ValueError: no such luck"
    assert poison_reason(3, 4, _record(status=RunStatus.WAITING)) == several
    died = "1 attempt died or failed from savepoint 4; the process of the last one died"
    assert poison_reason(1, 4, _record(status=RunStatus.RUNNING)) == died


# -- runs -------------------------------------------------------------------------------------------------------------


@stores
async def test_attempts_that_die_or_fail_are_counted_until_one_leaves_the_savepoint(kind: str, tmp_path: Path) -> None:
    how[:] = ["dies", "fails", "stops", "dies", "moves on", "dies", "dies"]
    async with opened(kind, tmp_path) as store:
        counted: list[int] = []
        for _ in range(7):
            await attempt(store)
            counted.append(await failures(store))
        # The first attempt left savepoint 0; the second one is the first that began at savepoint 1.
        assert counted == [0, 0, 1, 1, 2, 0, 1]
        assert (await get_run(store, "r")).resumed_from == 2


@stores
async def test_a_savepoint_that_failed_too_often_is_asked_about_and_not_entered(kind: str, tmp_path: Path) -> None:
    how[:] = ["moves on", *["dies", "fails", "dies"]]
    async with opened(kind, tmp_path) as store:
        for _ in range(4):
            await attempt(store, poison_after=3)
        entered = list(log)
        for _ in range(2):  # once parked, it stays so, also for one who never asks
            result = await attempt(store, poison_after=3)
            assert result is not None
            (question,) = result.questions
            assert (result.status, question.kind, question.step) == (RunStatus.WAITING, QuestionKind.POISON, 2)
            assert question.verdicts == (Choice.REDO, Choice.FAIL)
            assert question.why.startswith("3 attempts in a row died or failed from savepoint 2; the process of")
        result = await attempt(store)
        assert result is not None
        assert (result.status, log) == (RunStatus.WAITING, entered)
        with pytest.raises(Conflict):
            await attempt(store, if_run_exists="fail")


@stores
async def test_redo_allows_as_many_attempts_and_then_asks_anew(kind: str, tmp_path: Path) -> None:
    how[:] = ["dies"] * 100
    async with opened(kind, tmp_path) as store:
        ids: set[str] = set()
        for expected in (3, 2, 2):  # the first attempt began at savepoint 0
            entered = len(log)
            while (result := await attempt(store, poison_after=2)) is None:
                pass
            (question,) = result.questions
            assert len(log) - entered == expected
            ids.add(question.id)
            await answer(store, question, Choice.REDO)
        assert len(ids) == 3
        how.clear()
        result = await attempt(store, poison_after=2)
        assert result is not None
        assert result.value == "done"


@stores
async def test_fail_ends_the_run_whoever_resumes_it(kind: str, tmp_path: Path) -> None:
    how[:] = ["moves on", "fails", "dies"]
    async with opened(kind, tmp_path) as store:
        for _ in range(3):
            await attempt(store)
        result = await attempt(store, poison_after=1)
        assert result is not None
        await answer(store, result.questions[0], Choice.FAIL)
        entered = list(log)
        for options in ({}, {"poison_after": 1}):
            result = await attempt(store, **options)
            assert result is not None
            assert result.error is not None
            assert (result.status, result.error.kind) == (RunStatus.FAILED, "Poison")
            assert "from savepoint 2" in result.error.message
        assert log == entered
        fork = await fork_program("r", store=store, registry=REGISTRY, fork_id="f")
        assert (fork.value, (await get_run(store, "f")).failures) == ("done", 0)


@stores
async def test_a_person_is_never_asked(kind: str, tmp_path: Path) -> None:
    how[:] = ["dies"] * 20
    async with opened(kind, tmp_path) as store:
        for _ in range(20):
            assert await attempt(store) is None
        result = await attempt(store)
        assert result is not None
        assert result.value == "done"


@stores
@pytest.mark.parametrize("limit", [1, None])
async def test_a_question_whose_asker_died_is_not_asked_twice_and_not_passed_over(
    kind: str, tmp_path: Path, limit: int | None
) -> None:
    how[:] = ["moves on", "dies"]

    def dies(point: CrashPoint) -> None:
        if point is CrashPoint.PARK_AFTER:
            raise Killed

    async with opened(kind, tmp_path) as store:
        for _ in range(2):
            await attempt(store)
        arm(dies)
        try:
            assert await attempt(store, poison_after=1) is None
        finally:
            arm(None)
        assert (await get_run(store, "r")).status is RunStatus.RUNNING
        entered = list(log)
        result = await attempt(store, poison_after=limit)
        assert result is not None
        assert [question.kind for question in result.questions] == [QuestionKind.POISON]
        assert log == entered


@stores
async def test_the_last_error_is_shown(kind: str, tmp_path: Path) -> None:
    how[:] = ["fails", "fails"]
    async with opened(kind, tmp_path) as store:
        for _ in range(2):
            await attempt(store)
        result = await attempt(store, poison_after=1)
        assert result is not None
        assert "the last error: ValueError: no such luck" in result.questions[0].why


@stores
async def test_no_probe_runs_before_the_answer_for_it_may_be_what_kills(kind: str, tmp_path: Path) -> None:
    how[:] = ["acts"]
    async with opened(kind, tmp_path) as store:
        for _ in range(3):
            assert await attempt(store) is None
        assert log == ["entered 0", "deadly", "probed", "probed"]
        result = await attempt(store, poison_after=2)
        assert result is not None
        assert [question.kind for question in result.questions] == [QuestionKind.POISON]
        assert log.count("probed") == 2


async def test_a_limit_that_means_nothing_is_refused_before_anything_is_written() -> None:
    store = MemoryStore()
    with pytest.raises(Usage, match="poison_after=0"):
        await attempt(store, poison_after=0)
    assert await store.read(Space.RUN, run_key("r")) is None
    await attempt(store)
    with pytest.raises(Usage, match="poison_after=-1"):
        await resume_program("r", store=store, registry=REGISTRY, poison_after=-1)
