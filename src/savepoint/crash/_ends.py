"""How processes end together: with the one that started them, and none that they leave behind."""

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE_S = 0.2
"""How long those that are about to end may take"""


def die_with_parent() -> None:
    """Called in a child: SIGKILL reaches it when its parent dies. Linux only; elsewhere children end at end of file."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:  # it died before we asked
            os._exit(1)


def adopt_orphans() -> None:
    """Children of children become ours when their parent dies, so that none is lost. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_orphans() -> list[str]:
    """Ends all children of this process; the command lines of those that did not end by themselves."""
    found: dict[int, str] = {}
    deadline = time.monotonic() + _PATIENCE_S
    while _any_left():
        if time.monotonic() > deadline:
            for child in _children():
                found[child] = command(child) or f"process {child}"
                os.kill(child, signal.SIGKILL)
        time.sleep(0.002)
    return [found[each] for each in sorted(found)]


def _any_left() -> bool:
    """Reaps those that ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _children() -> list[int]:
    return [int(each) for each in Path("/proc/thread-self/children").read_text().split()]


def command(pid: int) -> str:
    """The command line of a process, or its name in the moment of an exec; empty where it is gone or ended."""
    place = Path(f"/proc/{pid}")
    with suppress(OSError):
        if (place / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return ""
        words = (place / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        return " ".join(os.fsdecode(each) for each in words) or (place / "comm").read_text().strip()
    return ""
