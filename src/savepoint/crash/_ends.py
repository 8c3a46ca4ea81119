"""A process that dies with the one that started it, however that one ends."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Called in a child: SIGKILL reaches it when its parent dies. Linux only; elsewhere children end at end of file."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:  # it died before we asked
            os._exit(1)
