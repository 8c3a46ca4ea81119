"""Runs as the store knows them: by their id, and how they stand."""

from typing import Any

from attrs import frozen

from effects._failure import Failure
from effects._question import Question

from ._ending import Played
from ._errors import Missing
from ._events import read_head
from ._questions import open_questions
from ._resumable import Registry
from ._run import RunRecord, RunStatus, read_run, run_key
from ._store import Space, Store
from ._stored import get_value


@frozen(kw_only=True)
class RunResult:
    """How a run stands after an attempt, or as the store knows it."""

    run_id: str
    status: RunStatus
    value: Any = None
    """the program's result, where it completed"""
    error: Failure | None = None
    step: int = 0
    """savepoints published so far"""
    questions: tuple[Question, ...] = ()
    """what a waiting run waits for"""
    replayed: bool = False
    """answered from the store: nothing was run, and new input was ignored"""
    warnings: tuple[str, ...] = ()
    may_repeat: tuple[str, ...] = ()
    """a fork: the effects of ONCE and KEYED calls after its savepoint, which it may do again"""


async def result_after(store: Store, run_id: str, played: Played, registry: Registry) -> RunResult:
    """How a run stands after an attempt of this process."""
    questions: tuple[Question, ...] = ()
    if played.status is RunStatus.WAITING:
        record = await get_run(store, run_id)
        questions = tuple(await open_questions(store, record.lineage, registry.types))
    return RunResult(
        run_id=run_id,
        status=played.status,
        value=played.value,
        error=played.error,
        step=played.step,
        questions=questions,
        warnings=played.warnings,
    )


async def stored_result(store: Store, record: RunRecord, registry: Registry) -> RunResult:
    """The result of a completed run, without running anything."""
    row = await store.read(Space.HEAD, record.lineage)
    value = None if record.result is None else await get_value(store, record.result, registry.types)
    step = 0 if row is None else read_head(row).step
    warnings = (f"run {record.run_id} was removed: only its result is left",) if record.removed else ()
    return RunResult(
        run_id=record.run_id, status=record.status, value=value, error=record.error, step=step, replayed=True,
        warnings=warnings,
    )  # fmt: skip


async def find_run(store: Store, run_id: str) -> RunRecord | None:
    """The record of a run, or None. Raises `Usage` for what cannot be an id."""
    row = await store.read(Space.RUN, run_key(run_id))
    return None if row is None else read_run(row)


async def get_run(store: Store, run_id: str) -> RunRecord:
    """Raises `Missing`."""
    record = await find_run(store, run_id)
    if record is None:
        raise Missing(f"there is no run {run_id}", next="savepoint runs lists the known ones")
    return record
