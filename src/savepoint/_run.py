"""Run records: what a run is, its status, and the one table of legal transitions (`design/0006-runs.md`)."""

from enum import StrEnum
from typing import NoReturn, cast

from attrs import field, fields, frozen

from effects._failure import Failure

from ._codec import dumps, loads
from ._errors import Corrupt, Usage
from ._store import Row


class RunStatus(StrEnum):
    RUNNING = "running"
    WAITING = "waiting"
    INTERRUPTED = "interrupted"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


_R, _W, _I = RunStatus.RUNNING, RunStatus.WAITING, RunStatus.INTERRUPTED
_C, _F, _X = RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED

TRANSITIONS: dict[RunStatus | None, frozenset[RunStatus]] = {
    None: frozenset({_R}),
    _R: frozenset({_R, _W, _I, _C, _F, _X}),  # to itself: an orphan that a new attempt claims
    _W: frozenset({_R, _X}),
    _I: frozenset({_R, _X}),
    _F: frozenset({_R, _X}),
    _C: frozenset(),
    _X: frozenset(),
}

ID_LENGTH = 256
"""Characters of a run id."""
ENDED = frozenset({_C, _X})
"""Statuses that no attempt ever leaves."""


def may(status: RunStatus | None, to: RunStatus) -> bool:
    """Whether a run may go from one status to another (`None`: from nothing)."""
    return to in TRANSITIONS[status]


class IfExists(StrEnum):
    """What happens when the run id is known already (the first seed's four policies)."""

    RESUME = "resume"
    RESTART = "restart"
    FAIL = "fail"
    RESUME_ONLY = "resume_only"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise Usage(f"{value!r} is not a policy for a run that exists", next=f"one of: {', '.join(cls)}")


class Recovery(StrEnum):
    """What a performed ONCE call after the savepoint means: reuse its result, or ask (`strict`)."""

    REUSE = "reuse"
    STRICT = "strict"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise Usage(f"{value!r} is not a way of recovery", next=f"one of: {', '.join(cls)}")


@frozen(kw_only=True)
class RunRecord:
    """One run. Digests name objects; times are wall clock seconds since 1970 and order nothing."""

    run_id: str
    lineage: bytes
    status: RunStatus
    program: str
    """name of the resumable that the run started with"""
    attempts: int = 0
    created_at: float = 0.0
    changed_at: float = 0.0
    ended_at: float = 0.0
    """when the newest attempt ended; 0: none did"""
    recovery: Recovery = Recovery.REUSE
    result: bytes | None = None
    """the returned value's object"""
    state: bytes | None = None
    """the cells at the end, by name: an object"""
    error: Failure | None = None
    resumed_from: int | None = None
    """step of the savepoint that the newest attempt started from"""
    failures: int = 0
    """attempts in a row that died or failed without leaving the savepoint that they started from"""
    caused_by: str | None = None
    """the run that this one was forked from"""
    parent: str | None = None
    """the run inside which this one is nested: only that one enters it, and merges its world"""
    removed: bool = False
    """a tombstone: the id is taken and the status stands, all else that the run had is gone"""
    base: bytes | None = None
    """the host world's snapshot ids at the start: what a merge compares with"""
    final: bytes | None = None
    """the world's snapshot ids at the end"""
    settled: str | None = None
    """`merged` or `discarded`: the end of the run's world"""
    meta: dict[str, object] = field(factory=dict[str, object])
    """what the caller keeps with the run (the agent's name, the input's object); portable"""
    unknown: dict[str, object] = field(factory=dict[str, object])
    """fields that a newer version wrote: kept as they are, and ignored"""


def refuse_nested(record: RunRecord, command: str) -> None:
    """Raises `Usage` for a run that is nested in another one, which it is cancelled, merged and discarded with."""
    if record.parent is not None:
        raise Usage(
            f"run {record.run_id} is nested in run {record.parent}, and goes with it",
            next=f"savepoint {command} {record.parent}",
        )


def run_key(run_id: str) -> bytes:
    """The row key of a run. Raises `Usage` for text that cannot be an id."""
    if type(run_id) is not str or not run_id or len(run_id) > ID_LENGTH or not run_id.isprintable():
        raise Usage(f"{run_id!r} is not a run id", next=f"use 1 to {ID_LENGTH} printable characters")
    try:
        return run_id.encode()
    except UnicodeEncodeError as error:
        raise Usage(f"{run_id!r} is not a run id", next="use valid text") from error


def former_key(record: RunRecord) -> bytes:
    """Where the record of a restarted run is kept: an id has no NUL, so this is no other run's key."""
    return run_key(record.run_id) + b"\0" + record.lineage


def write_run(record: RunRecord) -> bytes:
    error = None if record.error is None else [record.error.kind, record.error.message]
    return dumps(
        {
            **record.unknown,
            "run_id": record.run_id,
            "lineage": record.lineage,
            "status": record.status.value,
            "program": record.program,
            "attempts": record.attempts,
            "created_at": record.created_at,
            "changed_at": record.changed_at,
            "ended_at": record.ended_at,
            "recovery": record.recovery.value,
            "result": record.result,
            "state": record.state,
            "error": error,
            "resumed_from": record.resumed_from,
            "failures": record.failures,
            "caused_by": record.caused_by,
            "parent": record.parent,
            "removed": record.removed,
            "base": record.base,
            "final": record.final,
            "settled": record.settled,
            "meta": record.meta,
        }
    )


def read_run(row: Row) -> RunRecord:
    """Fields that this version does not know are kept and ignored. Raises `Corrupt`."""
    try:
        plain = cast("dict[str, object]", loads(row.body))
        error = cast("list[str] | None", plain.get("error"))
        return RunRecord(
            run_id=cast("str", plain["run_id"]),
            lineage=cast("bytes", plain["lineage"]),
            status=RunStatus(cast("str", plain["status"])),
            program=cast("str", plain["program"]),
            attempts=cast("int", plain["attempts"]),
            created_at=cast("float", plain["created_at"]),
            changed_at=cast("float", plain["changed_at"]),
            ended_at=cast("float", plain.get("ended_at", 0.0)),
            recovery=Recovery(cast("str", plain["recovery"])),
            result=cast("bytes | None", plain.get("result")),
            state=cast("bytes | None", plain.get("state")),
            error=None if error is None else Failure(kind=error[0], message=error[1]),
            resumed_from=cast("int | None", plain.get("resumed_from")),
            failures=cast("int", plain.get("failures", 0)),
            caused_by=cast("str | None", plain.get("caused_by")),
            parent=cast("str | None", plain.get("parent")),
            removed=cast("bool", plain.get("removed", False)),
            base=cast("bytes | None", plain.get("base")),
            final=cast("bytes | None", plain.get("final")),
            settled=cast("str | None", plain.get("settled")),
            meta=cast("dict[str, object]", plain.get("meta", {})),
            unknown={name: value for name, value in plain.items() if name not in _FIELDS},
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, Usage) as error:
        raise Corrupt(f"the record of run {row.key!r}: {error}") from error


_FIELDS = frozenset(each.name for each in fields(RunRecord))
