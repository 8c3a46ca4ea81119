"""Processes of the small program, one forked for each line that is read; `lives.py` is the other end.

A line is the request for an attempt, or a command: `go_on`, `end` (of the stopped process), `words` (of another
program), `fill` (a disk, by this file).
"""

import asyncio
import ctypes
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

from small import Request, asked, attempt, live, tell
from small_program import Json


def serve() -> None:
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(attempt(Request(place=place, plan="note a;send 1|read 2")))  # all is imported now
    gc.freeze()
    child = Child()
    tell({"ready": os.getpid()})
    try:
        for line in sys.stdin:
            tell(_answered(child, json.loads(line)))
    finally:
        child.end()


class Child:
    """One process at a time; what it says comes through a pipe."""

    def __init__(self) -> None:
        self.pid = 0
        self.pipe = -1

    def begin(self, request: Request) -> Json:
        self.pipe, into = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.dup2(into, 1)
            _live_forked(request)
        os.close(into)
        return self.watch()

    def watch(self) -> Json:
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return {"stopped": self.pid}
        self.pid = 0
        with os.fdopen(self.pipe) as pipe:
            said = pipe.read()
        return {"code": os.waitstatus_to_exitcode(status), "out": said}

    def end(self) -> Json:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            return self.watch()
        return {}


def _live_forked(request: Request) -> None:
    try:
        if not request.rights:
            _give_up_rights()
        tell(live(request))
    except BaseException:
        tell({"leak": "it failed", "trace": traceback.format_exc()})
    os._exit(0)


def _give_up_rights() -> None:
    """Into a name space of users where this process is nobody to the files of all others."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x10000000):
        raise OSError(ctypes.get_errno(), "cannot give up rights over files")


def _answered(child: Child, plain: Json) -> Json:
    match plain:
        case {"go_on": _}:
            os.kill(child.pid, signal.SIGCONT)
            return child.watch()
        case {"end": _}:
            return child.end()
        case {"words": words}:
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            return {"code": done.returncode, "out": done.stderr}
        case {"fill": name}:
            return {"out": _fill(Path(name))}
        case _:
            return child.begin(asked(plain))


def _fill(path: Path) -> str:
    """Writes until not one byte more has room."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    said = ""
    for size in (65536, 4096, 1):
        try:
            while True:
                os.write(handle, bytes(size))
        except OSError as error:
            said = os.strerror(error.errno or 0)
    os.close(handle)
    return said


if __name__ == "__main__":
    serve()
