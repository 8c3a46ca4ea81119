"""The fork server's process: everything is imported once, then each life is a child that dies or reports.

`python -m savepoint.crash._serve MODULE:FUNCTION` answers each request line with `{killed, timed_out, children,
report, arrivals, lasting}`; with a third argument it lives through that one request itself, as a truly fresh interpreter does.

The function takes the request and returns its report, both JSON objects. The module may have `warm_up()`, which is
called once before the first fork, must leave no thread behind, and spares children what happens once.
"""

import gc
import importlib
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from savepoint._crashpoint import CrashPoint, arm

from ._ends import adopt_orphans, die_with_parent, end_orphans
from ._room import fingerprint

Json = dict[str, Any]
LifeFunction = Callable[[Json], Json]


PATIENCE_S = 5.0
"""For a thread that is ending."""


def main() -> None:
    module, _, name = sys.argv[1].partition(":")
    function: LifeFunction = getattr(importlib.import_module(module), name)
    if len(sys.argv) > 2:
        sys.stdout.write(json.dumps(_lived(function, json.loads(sys.argv[2]))))
        return
    getattr(sys.modules[module], "warm_up", lambda: None)()
    arm(None)
    for each in threading.enumerate():
        if each is not threading.current_thread():
            each.join(PATIENCE_S)  # one that was told to end, as of a store that was closed, may need a moment
    if threading.active_count() > 1:
        names = ", ".join(sorted(each.name for each in threading.enumerate()))
        raise RuntimeError(f"importing it starts threads ({names}), and a fork copies one thread only")
    adopt_orphans()
    gc.collect()
    gc.freeze()  # children do not touch, hence not copy, what is frozen
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_forked(function, json.loads(line))) + "\n")
        sys.stdout.flush()


def _lived(function: LifeFunction, request: Json) -> Json:
    """One life in this process. `kill`: `[point, nth]`, where it dies; else every arrival is noted.

    `lasting`: a directory whose fingerprint is taken at each arrival, so that kills that leave the same can be told.
    """
    arrivals: list[tuple[str, int]] = []
    lasting: list[str] = []
    arm(_note(arrivals, lasting, request))
    return {"report": function(request), "arrivals": arrivals, "lasting": lasting}


def _note(arrivals: list[tuple[str, int]], lasting: list[str], request: Json) -> Callable[[CrashPoint], None]:
    counts: Counter[str] = Counter()
    kill, place = request.get("kill"), request.get("lasting")

    def hook(point: CrashPoint) -> None:
        counts[point] += 1
        if kill is not None and [point, counts[point]] == kill:
            os.kill(os.getpid(), signal.SIGKILL)
        arrivals.append((point, counts[point]))
        if place is not None:
            lasting.append(fingerprint(Path(place)))

    return hook


def _forked(function: LifeFunction, request: Json) -> Json:
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        _die_reporting(function, request, into)
    os.close(into)
    said, in_time = _read_all(out, request["timeout_s"])
    if not in_time:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    killed = in_time and os.WIFSIGNALED(status)
    reply = {"killed": killed, "timed_out": not in_time, "children": end_orphans()}
    return {**reply, **(json.loads(said) if in_time and not killed else {})}


def _die_reporting(function: LifeFunction, request: Json, into: int) -> None:
    """The child: it never returns into the server's loop."""
    die_with_parent()
    try:
        reply = _lived(function, request)
    except BaseException:  # whatever it was, the client hears of it
        reply = {"fault": traceback.format_exc()}
    view = memoryview(json.dumps(reply).encode())
    while view:
        view = view[os.write(into, view) :]
    os._exit(0)


def _read_all(handle: int, patience_s: float) -> tuple[bytes, bool]:
    """All that is written until the other end closes, and whether that was in time and the client still there."""
    deadline = time.monotonic() + patience_s
    parts: list[bytes] = []
    try:
        while True:
            left = deadline - time.monotonic()
            ready = select.select([handle, sys.stdin], [], [], max(0.0, left))[0]
            if handle not in ready:  # too late, or the client, who sends nothing meanwhile, is gone
                return b"".join(parts), False
            part = os.read(handle, 1 << 16)
            if not part:
                return b"".join(parts), True
            parts.append(part)
    finally:
        os.close(handle)


if __name__ == "__main__":
    main()
