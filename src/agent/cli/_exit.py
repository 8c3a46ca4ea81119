"""Exit codes: the one table from what happened to what a script is told."""

from enum import IntEnum

from savepoint import RunStatus


class Exit(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    WAITING = 3
    NOT_FOUND = 4
    HELD = 5
    DAMAGED = 6
    NEWER = 7
    CONFLICT = 8
    NOT_WRITABLE = 9
    INTERRUPTED = 130


OF_CODE: dict[str, Exit] = {
    "usage": Exit.USAGE,
    "not_portable": Exit.USAGE,
    "foreign": Exit.USAGE,  # not this program's: another agent's run, a class that it does not know
    "declaration": Exit.USAGE,
    "bad_call": Exit.USAGE,
    "bad_arguments": Exit.USAGE,
    "out_of_scope": Exit.USAGE,
    "no_call": Exit.USAGE,
    "not_found": Exit.NOT_FOUND,
    "held": Exit.HELD,
    "stale": Exit.HELD,
    "damaged": Exit.DAMAGED,
    "newer": Exit.NEWER,
    "conflict": Exit.CONFLICT,
    "not_writable": Exit.NOT_WRITABLE,
    "unreadable": Exit.NOT_FOUND,
    "busy": Exit.FAILED,
    "error": Exit.FAILED,
    "effect": Exit.FAILED,
    "refused": Exit.FAILED,
    "call_failed": Exit.FAILED,
    "compensated": Exit.FAILED,
    "concurrent_calls": Exit.FAILED,
    "nested_failed": Exit.FAILED,
    "model": Exit.FAILED,
    "model_unavailable": Exit.FAILED,
    "demo": Exit.FAILED,
    "unexpected": Exit.FAILED,
    "interrupted": Exit.INTERRUPTED,
}
"""By the `code` of every error of the three packages."""

OF_STATUS: dict[RunStatus, Exit] = {
    RunStatus.COMPLETED: Exit.DONE,
    RunStatus.WAITING: Exit.WAITING,
    RunStatus.FAILED: Exit.FAILED,
    RunStatus.INTERRUPTED: Exit.FAILED,  # by no signal: its model could not be reached
    RunStatus.CANCELLED: Exit.CONFLICT,
    RunStatus.RUNNING: Exit.HELD,
}
"""How a run stands after an attempt of this process."""
