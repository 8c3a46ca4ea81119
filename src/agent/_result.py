"""How a run of an agent stands, as its caller sees it."""

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from effects._failure import Failure
from effects._question import Question
from savepoint import Log, RunResult, RunStatus
from savepoint._run import RunRecord
from savepoint._store import Store
from savepoint._stored import get_value
from savepoint._types import Types

from ._scene import TRANSCRIPT


@frozen(kw_only=True)
class Result:
    """How a run stands. `output` is the final text of a completed one."""

    run_id: str
    status: RunStatus
    output: str | None = None
    error: Failure | None = None
    step: int = 0
    """model replies that led to a savepoint"""
    questions: tuple[Question, ...] = ()
    """what a waiting run waits for"""
    transcript: Log[Any] = field(factory=Log[Any], repr=False)
    """of a completed run, with what came before it in its session"""
    replayed: bool = False
    """answered from the store: nothing was run, and the input was ignored"""
    input_ignored: bool = False
    """the run existed, and goes on with, or was answered for, another input than the one given now"""
    warnings: tuple[str, ...] = ()
    may_repeat: tuple[str, ...] = ()
    """a fork: effects that it may do again"""


async def result_of(store: Store, found: RunResult, record: RunRecord, types: Types) -> Result:
    """With the transcript of a completed run."""
    return Result(
        run_id=found.run_id,
        status=found.status,
        output=found.value if isinstance(found.value, str) else None,
        error=found.error,
        step=found.step,
        questions=found.questions,
        transcript=await transcript_of(store, record, types),
        replayed=found.replayed,
        warnings=found.warnings,
        may_repeat=found.may_repeat,
    )


async def transcript_of(store: Store, record: RunRecord, types: Types) -> Log[Any]:
    """What a completed run left as its transcript; empty for another one."""
    if record.state is None:
        return Log()
    state: Mapping[str, Any] = await get_value(store, record.state, types)
    return state.get(TRANSCRIPT.name, Log())
