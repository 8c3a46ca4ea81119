"""Syncs and written bytes a turn, counted by strace: the two figures that a noisy machine cannot change."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from attrs import evolve, frozen

from harness import PHASE_TIMEOUT_S, Plan

FEW, MANY = 20, 120
"""Turns of the two runs whose difference is counted, so that set-up is not."""
CALLS = "fsync,fdatasync,sync_file_range,write,pwrite64,pwritev,pwritev2"


@frozen(kw_only=True)
class Count:
    syncs: float
    bytes: float

    def per_turn(self, fewer: "Count") -> "Count":
        turns = MANY - FEW
        return Count(syncs=(self.syncs - fewer.syncs) / turns, bytes=(self.bytes - fewer.bytes) / turns)


def available() -> bool:
    return shutil.which("strace") is not None


def per_turn(plan: Plan, scratch: Path | None = None) -> Count:
    few = count(evolve(plan, turns=FEW), scratch)
    return count(evolve(plan, turns=MANY), scratch).per_turn(few)


def count(plan: Plan, scratch: Path | None) -> Count:
    with tempfile.TemporaryDirectory(prefix="syncs-", dir=scratch) as name:
        live, log = Path(name) / "live", Path(name) / "strace.log"
        live.mkdir()
        tracer = ["strace", "-f", "-qq", "-y", "-s", "1", "-e", f"trace={CALLS}", "-o", str(log)]
        command = [*tracer, *plan.command("run", live, forks=0)]
        subprocess.run(command, check=True, capture_output=True, timeout=PHASE_TIMEOUT_S)
        return counted(log.read_text(errors="replace"), str(live))


def counted(log: str, place: str) -> Count:
    """Calls on files below `place` alone; what a call split by another thread's shows at its start counts once."""
    lines = [line for line in log.splitlines() if f"<{place}" in line]
    syncs = sum("sync(" in line or "sync_file_range(" in line for line in lines)
    written = [re.search(r"write\w*\(.* = (\d+)$", line) for line in lines]
    return Count(syncs=syncs, bytes=sum(int(found[1]) for found in written if found))
