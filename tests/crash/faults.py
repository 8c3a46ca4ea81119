"""What befalls a store while processes work on it, by real means, and what must hold once it is mended."""

import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lives import Lives
from small_program import Json, lines

PLAN = "note a;send 1|read x;send 2|note b;send 3"
ACTS = ["send 1", "send 2", "send 3"]
LARGE = 6000
"""Digits of an argument: nothing that holds it fits into the last page of a file that there is."""
LARGE_ACTS = [f"send {n * LARGE}" for n in "123"]
LARGE_PLAN = f"note a;{LARGE_ACTS[0]}|read x;{LARGE_ACTS[1]}|note b;{LARGE_ACTS[2]}"

_HOLD = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=5)
held.execute(f"begin {sys.argv[2]}")
print("held", flush=True)
sys.stdin.readline()
held.execute("rollback")
"""


class Holder:
    """Another process, inside a transaction."""

    def __init__(self, database: Path, how: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _HOLD, str(database), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "held\n"

    def let_go(self) -> None:
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            self._process.stdin.close()
            self._process.wait(30)

    def end(self) -> None:
        self.let_go()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def holding(database: Path, how: str) -> Generator[Holder]:
    """Somebody else writes (`immediate`) or has it alone (`exclusive`) until it lets go, or the block ends."""
    holder = Holder(database, how)
    try:
        yield holder
    finally:
        holder.end()


def failing_syncs(file: Path, when: str) -> list[str]:
    """The prefix of a process whose syncs of one file fail with EIO: the `when`-th one, or `3+`: that and all later."""
    prefix = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(file)]
    if shutil.which("strace") is None or subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode:
        pytest.skip("there is no strace that may trace here, which makes a sync fail")
    return [*prefix, "-e", f"inject=fsync,fdatasync:error=EIO:when={when}"]


# -- what must hold afterwards ----------------------------------------------------------------------------------------


def finished(lives: Lives, **request: object) -> Json:
    """The run, resumed until it is done; every question is answered with the truth."""
    report: Json = {}
    for _ in range(6):
        code, report = lives.lived(decide="truth", **request)
        assert code == 0
        if report.get("status") == "completed":
            return report
        assert report.get("status") == "waiting", report
    raise AssertionError(f"not done after six processes: {report}")


def right(place: Path, report: Json, reference: Json) -> None:
    """It ended as it does without faults; everything was done once."""
    assert same(report) == same(reference)
    assert acts(place) == ACTS


def acts(place: Path) -> list[str]:
    """What the outside was made to do, large or not."""
    return [act.replace(act[-1] * LARGE, act[-1]) for act in lines(place / "outside", "ledger")]


def same(report: Json) -> Json:
    """What two ends must have in common: what was read again is another reading."""
    value = re.sub(r"(\d)\1+", r"\1", re.sub(r"seen \d+", "seen", repr(report["value"])))
    return {"status": report["status"], "value": value, "step": report["step"]}


def named(report: Json, error: str, *words: str) -> None:
    """Refused by name, with a next move."""
    assert report.get("error") == error, report
    assert report["next"], report
    for word in words:
        assert word in report["message"], report


def entered(place: Path) -> list[str]:
    return lines(place / "outside", "entered")
