"""The fork server's process: everything is imported once, then each life is a child that dies or reports.

`python -m savepoint.crash._serve MODULE:FUNCTION` answers each request line with `{killed, timed_out, report,
arrivals}`; with a third argument it lives through that one request itself, as a truly fresh interpreter does.

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
from typing import Any

from savepoint._crashpoint import CrashPoint, arm

from ._ends import die_with_parent

Json = dict[str, Any]
LifeFunction = Callable[[Json], Json]


def main() -> None:
    module, _, name = sys.argv[1].partition(":")
    function: LifeFunction = getattr(importlib.import_module(module), name)
    if len(sys.argv) > 2:
        sys.stdout.write(json.dumps(_lived(function, json.loads(sys.argv[2]))))
        return
    getattr(sys.modules[module], "warm_up", lambda: None)()
    assert threading.active_count() == 1, "a fork copies one thread only"
    arm(None)
    gc.collect()
    gc.freeze()  # children do not touch, hence not copy, what is frozen
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_forked(function, json.loads(line))) + "\n")
        sys.stdout.flush()


def _lived(function: LifeFunction, request: Json) -> Json:
    """One life in this process. `kill`: `[point, nth]`, where it dies; else every arrival is noted."""
    arrivals: list[tuple[str, int]] = []
    arm(_note(arrivals, request.get("kill")))
    return {"report": function(request), "arrivals": arrivals}


def _note(arrivals: list[tuple[str, int]], kill: list[Any] | None) -> Callable[[CrashPoint], None]:
    counts: Counter[str] = Counter()

    def hook(point: CrashPoint) -> None:
        counts[point] += 1
        if kill is not None and [point, counts[point]] == kill:
            os.kill(os.getpid(), signal.SIGKILL)
        arrivals.append((point, counts[point]))

    return hook


def _forked(function: LifeFunction, request: Json) -> Json:
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        _die_reporting(function, request, into)
    os.close(into)
    said, in_time = _read_all(out, request.get("timeout_s", 60.0))
    if not in_time:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status)
    return {"killed": killed, "timed_out": not in_time, **(json.loads(said) if said and not killed else {})}


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
    """All that is written until the other end closes, and whether that was in time."""
    deadline = time.monotonic() + patience_s
    parts: list[bytes] = []
    try:
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([handle], [], [], left)[0]:
                return b"".join(parts), False
            part = os.read(handle, 1 << 16)
            if not part:
                return b"".join(parts), True
            parts.append(part)
    finally:
        os.close(handle)


if __name__ == "__main__":
    main()
