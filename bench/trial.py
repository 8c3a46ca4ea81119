"""One phase of a candidate, measured from inside: its clock, its cpu, its bytes, its peak memory.

A candidate gets a `Trial` and calls `begin` when set-up is over, `mark` at the start of each turn, and one of the
three ends. Each end checks the work against the workload and then kills the process, so nothing gets to tidy up.
"""

import json
import os
import re
import statistics
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from attrs import Factory, define

from workload import digest, expected

Pairs = Sequence[tuple[str, str]]
RESULT_MARK = "@@"
"""Starts the one line of a phase's output that is its result."""


def written_bytes() -> int:
    """What this process has caused to be written to the block layer; 0 where the kernel does not count it."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split(":")[1]) for line in lines if line.startswith("write_bytes"))


def peak_mb() -> float:
    # Not ru_maxrss: a process inherits it from the one that started it.
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) / 1024 if found else 0.0


@define(kw_only=True)
class Trial:
    """`dir` holds what the run leaves on disk, `fork_at` is the number of turns before a fork."""

    dir: str
    variant: str
    turns: int
    fork_at: int
    forks: int
    marks: list[float] = Factory(list)
    wall_at_start: float = 0.0
    cpu_at_start: float = 0.0
    written_at_start: int = 0

    def path(self, name: str) -> str:
        return str(Path(self.dir) / name)

    def begin(self) -> None:
        self.written_at_start = written_bytes()
        self.cpu_at_start = time.process_time()
        self.wall_at_start = time.perf_counter()

    def mark(self) -> None:
        self.marks.append(time.perf_counter())

    def stop_here(self) -> NoReturn:
        """The end of `run`: where turn `turns` would start."""
        figures = self._figures()
        marks = [*self.marks[: self.turns], time.perf_counter()]
        gaps = [(after - before) * 1e3 for before, after in pairwise(marks)]
        if len(gaps) != self.turns:
            sys.exit(f"{len(gaps)} turns were marked, {self.turns} asked for")
        tenth = max(1, self.turns // 10)
        early = gaps[50:150] if self.turns >= 500 else gaps[:tenth]
        late = gaps[-100:] if self.turns >= 500 else gaps[-tenth:]
        finish(
            figures
            | {
                "ms_p50": statistics.median(gaps),
                "ms_max": max(gaps),
                "ms_first10": statistics.fmean(gaps[:tenth]),
                "ms_last10": statistics.fmean(gaps[-tenth:]),
                "growth": statistics.median(late) / statistics.median(early),
            }
        )

    def resumed(self, pairs: Pairs) -> NoReturn:
        """The end of `resume`: at the start of turn `turns`, holding `pairs`."""
        figures = self._figures()
        if digest(pairs) != expected(self.turns):
            sys.exit("what was resumed differs from the workload")
        finish({"resume_ms": figures["wall_s"] * 1e3, "resume_cpu_ms": figures["cpu_s"] * 1e3})

    def forked(self, many: Sequence[Pairs]) -> NoReturn:
        """The end of `fork`: each continuation's pairs, its own durable turn included, in the order of the forks."""
        figures = self._figures()
        if [digest(pairs) for pairs in many] != [expected(self.fork_at, fork=index) for index in range(self.forks)]:
            sys.exit("what was forked differs from the workload")
        finish({"fork_ms": figures["wall_s"] * 1e3, "fork_cpu_ms": figures["cpu_s"] * 1e3})

    def _figures(self) -> dict[str, float]:
        return {
            "wall_s": time.perf_counter() - self.wall_at_start,
            "cpu_s": time.process_time() - self.cpu_at_start,
            "write_bytes": written_bytes() - self.written_at_start,
        }


def finish(figures: dict[str, Any]) -> NoReturn:
    """Reports and dies as a killed process does: no exit handlers, nothing flushed or closed."""
    sys.stdout.write(RESULT_MARK + json.dumps(figures | {"rss_mb": peak_mb()}) + "\n")
    sys.stdout.flush()
    os._exit(0)
