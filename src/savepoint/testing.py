"""The door for tests: crash points that kill the process, and the contract suites that every implementation passes."""

import os
import signal
from collections import Counter
from typing import Any

from ._crashpoint import CrashPoint as CrashPoint
from ._crashpoint import arm as arm
from ._crashpoint import reach as reach

ENVIRONMENT = "SAVEPOINT_KILL"
"""`POINT` or `POINT:N`: where the process kills itself, at the N-th time it gets there (1 by default)."""


def kill_at(point: CrashPoint, nth: int = 1) -> None:
    """From here on this process dies by SIGKILL at the `nth` arrival at `point`: no handler runs, nothing is flushed."""
    arrivals: Counter[CrashPoint] = Counter()

    def hook(reached: CrashPoint) -> None:
        arrivals[reached] += 1
        if reached is point and arrivals[point] == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    arm(hook)


def kill_from_environment() -> None:
    """Arms what `SAVEPOINT_KILL` says; nothing if it is not set. For child processes of a crash test."""
    wanted = os.environ.get(ENVIRONMENT)
    if wanted:
        name, _, nth = wanted.partition(":")
        kill_at(CrashPoint(name), int(nth or 1))


def count_points() -> Counter[CrashPoint]:
    """Counts arrivals at every point from here on; what a suite enumerates its kills from."""
    arrivals: Counter[CrashPoint] = Counter()
    arm(lambda point: arrivals.update([point]))
    return arrivals


def __getattr__(name: str) -> Any:
    """The contract suites, imported when asked for: they need Hypothesis, which a killed child does not.

    `StoreContract` and `StoreMachine` are for implementations of `Store`, `SystemContract` for those of `System`.
    """
    if name in {"StoreContract", "StoreMachine"}:
        from . import _contract_store as suites  # noqa: PLC0415

        return getattr(suites, name)
    if name == "SystemContract":
        from ._contract_system import SystemContract  # noqa: PLC0415

        return SystemContract
    raise AttributeError(f"savepoint.testing has no {name!r}")
