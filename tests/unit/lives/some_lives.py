"""Lives for the fork server's own test."""

import os
import signal
import subprocess
import time
from typing import Any

from savepoint.testing import CrashPoint, reach


def live(request: dict[str, Any]) -> dict[str, Any]:
    match request["do"]:
        case "points":
            for point in (CrashPoint.ENTER, CrashPoint.BODY_BEFORE, CrashPoint.ENTER):
                reach(point)
        case "raise":
            raise ValueError("as planned")
        case "sleep":
            time.sleep(60)
        case "child":
            subprocess.Popen(["sleep", "61"], close_fds=True)
        case "short child":
            subprocess.Popen(["true"], close_fds=True)
        case "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        case _:
            pass
    return {"pid": os.getpid(), "seed": os.environ.get("PYTHONHASHSEED"), "big": "x" * request.get("big", 0)}
