"""Runs a candidate's three phases, each in a process of its own on a temporary folder, and collects the figures.

`run` dies where turn N would start; `resume` and `fork` start from copies of what it left. `main` gives a candidate
the command line of the peer benchmarks: one JSON line with the same keys.
"""

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from attrs import frozen

from trial import RESULT_MARK, Trial

PHASE_TIMEOUT_S = 1800
Phase = Callable[[Trial], None]
Figures = dict[str, Any]


@frozen(kw_only=True)
class Plan:
    """One measurement: `forks` continuations after turn `fork_at`; 0 leaves the forks out."""

    script: Path
    variant: str
    turns: int
    fork_at: int
    forks: int

    def command(self, phase: str, where: Path, *, forks: int) -> list[str]:
        numbers = {"--turns": self.turns, "--fork-at": self.fork_at, "--forks": forks}
        options = [part for name, value in numbers.items() for part in (name, str(value))]
        return [
            *(sys.executable, str(self.script), "--phase", phase),
            *("--dir", str(where), "--variant", self.variant, *options),
        ]


def measure(plan: Plan, scratch: Path | None = None) -> Figures:
    """All three phases; keys are those of the peer benchmarks. `scratch` is the file system to measure on."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=scratch) as name:
        base = Path(name)
        live = base / "live"
        live.mkdir()
        figures = {"turns": plan.turns, "variant": plan.variant, "forks": plan.forks}
        figures |= phase(plan, "run", live)
        figures["db_bytes"] = size(live)
        with copied(live, base) as copy:
            figures["db_bytes_compact"] = folded(copy)
        with copied(live, base) as copy:
            figures |= phase(plan, "resume", copy)
        if plan.forks:
            figures |= fork_figures(plan, live, base)
        return figures


def fork_figures(plan: Plan, live: Path, base: Path) -> Figures:
    with copied(live, base) as copy:
        before = folded(copy)
        found = phase(plan, "fork", copy, forks=plan.forks)
        return {
            "forkN_ms": found["fork_ms"],
            "forkN_cpu_ms": found["fork_cpu_ms"],
            "forkN_each_ms": found["fork_ms"] / plan.forks,
            "forkN_bytes": folded(copy) - before,
        }


def phase(plan: Plan, name: str, where: Path, *, forks: int = 0) -> Figures:
    """One phase in a process of its own. Ends this program where the phase fails: a ratio needs both sides."""
    command = plan.command(name, where, forks=forks)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PHASE_TIMEOUT_S, check=False)
    results = [line for line in done.stdout.splitlines() if line.startswith(RESULT_MARK)]
    if done.returncode or len(results) != 1:
        sys.stderr.write(done.stdout[-2000:] + done.stderr[-4000:])
        sys.exit(f"{plan.script.name}/{plan.variant}: phase {name} failed (exit {done.returncode})")
    return json.loads(results[0].removeprefix(RESULT_MARK))


@contextmanager
def copied(live: Path, base: Path) -> Generator[Path]:
    copy = base / "copy"
    shutil.copytree(live, copy, symlinks=True)
    try:
        yield copy
    finally:
        shutil.rmtree(copy)


def size(where: Path) -> int:
    return sum(path.lstat().st_size for path in where.rglob("*") if path.is_file())


def folded(where: Path) -> int:
    """Bytes that stay: every SQLite write-ahead log is folded into its database first."""
    for path in [path for path in where.rglob("*") if path.is_file() and is_database(path)]:
        with closing(sqlite3.connect(path)) as database:
            database.execute("pragma wal_checkpoint(truncate)")
    return size(where)


def is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def main(name: str, variants: Sequence[str], run: Phase, resume: Phase, fork: Phase, packages: Sequence[str]) -> None:
    """A candidate's whole command line: `--phase` does that phase here, without it all of them are measured."""
    options = parser(name, variants).parse_args()
    fork_at = options.turns // 2 if options.fork_at is None else options.fork_at
    if options.phase:
        trial = Trial(
            dir=options.dir, variant=options.variant, turns=options.turns, fork_at=fork_at, forks=options.forks
        )
        {"run": run, "resume": resume, "fork": fork}[options.phase](trial)
        sys.exit(f"{name}: phase {options.phase} came back without a result")
    plan = Plan(
        script=Path(sys.argv[0]).resolve(),
        variant=options.variant,
        turns=options.turns,
        fork_at=fork_at,
        forks=options.forks,
    )
    about = {"peer": name, "fork_at": fork_at, "load1_before": os.getloadavg()[0]}
    versions = {package: version(package) for package in packages}
    print(json.dumps(about | {"versions": versions} | measure(plan)))


def parser(name: str, variants: Sequence[str]) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=f"{name}: an agent-like loop, durable after each turn")
    result.add_argument("--turns", type=int, default=100)
    result.add_argument("--variant", default=variants[0], choices=variants)
    result.add_argument("--fork-at", type=int, default=None, help="default: half of --turns")
    result.add_argument("--forks", type=int, default=100, help="size of the fork (0: none)")
    result.add_argument("--dir", default=None, help="where the phase works")
    result.add_argument("--phase", default=None, choices=["run", "resume", "fork"])
    return result
