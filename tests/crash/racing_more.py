"""More of `racing`: an owner that is stopped between its intent and its body, or that is merely slow, and a claimant
that is stopped before it claims. Each prints what its processes met, as JSON.
"""

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import outside
from racing import REGISTRY, RUN, _report, _rows, _started, in_child, program

from effects._question import Choice, Decision
from savepoint import Held, RunResult, _program, open_store, resume_program, run_program
from savepoint._questions import open_questions, record_decision
from savepoint._run import RunStatus
from savepoint._run_result import get_run
from savepoint._sqlite import SqliteStore
from savepoint.testing import CrashPoint, arm, kill_at

LEASE_S = 0.3


def late(place: Path) -> None:
    """The owner sleeps past its lease, its intent durable and its body not entered; the heir is told to do it."""

    _slept(place, _owner(place, CrashPoint.INTENT_AFTER, LEASE_S), _heir(place))


def beside(place: Path) -> None:
    """The owner is slow, and within its lease; somebody else tries once."""

    async def other() -> str:
        async with open_store(place / "store") as store:
            return await _ended(resume_program(RUN, store=store, registry=REGISTRY))

    _slept(place, _owner(place, CrashPoint.BODY_BEFORE, 30.0), other)


def claimants(place: Path) -> None:
    """A run whose owner died; one claimant reads where it stands and sleeps, another one claims and completes it."""

    async def sleeper() -> str:
        claim = _program.claim_run

        async def slow(*what: object, **how: object) -> object:
            os.kill(os.getpid(), signal.SIGSTOP)
            return await claim(*what, **how)  # type: ignore[arg-type]

        _program.claim_run = slow  # type: ignore[assignment]
        async with open_store(place / "store") as store:
            return await _ended(resume_program(RUN, store=store, registry=REGISTRY))

    def dying() -> Awaitable[str]:
        kill_at(CrashPoint.GAP_AFTER)
        return _started(place, 0)

    unread, into = os.pipe()
    os.waitpid(in_child(place, dying, into), 0)
    os.close(unread)
    os.close(into)
    _slept(place, sleeper, _heir(place))


def _owner(place: Path, stops_at: CrashPoint, lease_s: float) -> Callable[[], Awaitable[str]]:
    async def owner() -> str:
        arm(lambda point: os.kill(os.getpid(), signal.SIGSTOP) if point is stops_at else None)
        async with open_store(place / "store") as store:
            return await _ended(
                run_program(program.at(0, 1), store=store, run_id=RUN, registry=REGISTRY, lease_s=lease_s)
            )

    return owner


async def _ended(attempt: Awaitable[RunResult]) -> str:
    try:
        result = await attempt
    except Held as held:
        return f"held: {held}"
    return f"{result.status.value}: {result.value}"


def _heir(place: Path) -> Callable[[], Awaitable[str]]:
    async def heir() -> str:
        async with open_store(place / "store") as store:
            while True:
                try:
                    result = await resume_program(RUN, store=store, registry=REGISTRY)
                except Held:
                    continue  # the lease still runs
                if result.status is RunStatus.WAITING:
                    await _redo(store)
                    continue
                return f"{result.status.value}: {result.value}"

    return heir


async def _redo(store: SqliteStore) -> None:
    lineage = (await get_run(store, RUN)).lineage
    for question in await open_questions(store, lineage, REGISTRY.types):
        decision = Decision(question=question.id, choice=Choice.REDO)
        await record_decision(store, lineage, question, decision, REGISTRY.types)


def _slept(place: Path, sleeper: Callable[[], Awaitable[str]], heir: Callable[[], Awaitable[str]]) -> None:
    """The sleeper until it stops itself, the heir to its end, then the sleeper again."""
    said, into = os.pipe()
    stopped = in_child(place, sleeper, into)
    os.waitpid(stopped, os.WUNTRACED)
    os.waitpid(in_child(place, heir, into), 0)
    before = _rows(place)
    entered = len(outside.entered(place / "outside"))
    os.kill(stopped, signal.SIGCONT)
    os.waitpid(stopped, 0)
    after = len(outside.entered(place / "outside"))
    _report(place, said, into, written=_rows(place) != before, entered=after - entered)
