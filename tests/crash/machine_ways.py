"""Ways in which processes of the state machine live: two at once, and with a disk that is too small."""

import ctypes
import json
import os
import select
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from savepoint.crash._ends import die_with_parent

Json = dict[str, Any]
OnClaim = Callable[[Any], None]
PATIENCE_S = 5.0
"""How long a process that claimed a run waits for the end of one that should be told `Held`."""


def _forked(life: Callable[[], Json]) -> tuple[int, int]:
    """A child that lives and reports into a pipe."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        die_with_parent()
        try:
            said = life()
        except BaseException:
            said = {"fault": traceback.format_exc()}
        os.write(into, json.dumps(said).encode())
        os._exit(0)
    os.close(into)
    return child, out


def _read_all(handle: int) -> bytes:
    with os.fdopen(handle, "rb") as pipe:
        return pipe.read()


def twice(life: Callable[[OnClaim], Json]) -> list[Json]:
    """Two processes that want the run at once. Who claims it goes on only when the other one has ended."""
    ends, started = [os.pipe(), os.pipe()], os.pipe()
    children: list[tuple[int, int]] = []
    for mine in (0, 1):

        def lived(mine: int = mine) -> Json:
            os.close(started[1])
            os.close(ends[1 - mine][1])
            os.read(started[0], 1)  # ends with the last writer: both begin

            def claimed(_: object) -> None:
                # Likewise, when the other one has ended; where both have claimed the run, both go on after a while.
                select.select([ends[1 - mine][0]], [], [], PATIENCE_S)

            return {**life(claimed), "pid": os.getpid()}

        children.append(_forked(lived))
    for handle in (ends[0][1], ends[1][1], started[1]):
        os.close(handle)
    said = [_read_all(out) for _, out in children]
    for child, _ in children:
        os.waitpid(child, 0)
    return [json.loads(each) for each in said]


_NEWNS, _PRIVATE = 0x20000, 0x44000


def can_fill_disk() -> bool:
    """Whether a process may have a small disk of its own here."""
    libc = ctypes.CDLL(None)
    if os.geteuid() or not hasattr(libc, "unshare"):
        return False
    child = os.fork()
    if child == 0:
        os._exit(1 if libc.unshare(_NEWNS) or libc.mount(b"none", b"/", None, _PRIVATE, None) else 0)
    return os.waitpid(child, 0)[1] == 0


def in_small_disk(place: Path, spare_kb: int, life: Callable[[], Json]) -> Json:
    """Lives with the store on a disk of its own that has room for `spare_kb` more; what it wrote is kept.

    The mount is in a namespace of this process and ends with it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    store, kept = place / "store", place / "store.kept"
    size_kb = sum(-(-path.stat().st_size // 4096) * 4 + 4 for path in store.rglob("*")) + spare_kb
    store.rename(kept)
    store.mkdir(mode=0o700)
    options = f"size={size_kb}k,mode=700".encode()
    if (
        libc.unshare(_NEWNS)
        or libc.mount(b"none", b"/", None, _PRIVATE, None)
        or libc.mount(b"tmpfs", os.fsencode(store), b"tmpfs", 0, options)
    ):
        raise OSError(ctypes.get_errno(), "a small disk")
    shutil.copytree(kept, store, dirs_exist_ok=True)
    child, out = _forked(life)
    said = _read_all(out)
    os.waitpid(child, 0)
    after = place / "store.after"
    shutil.copytree(store, after)
    libc.umount2(os.fsencode(store), 0)
    store.rmdir()
    after.rename(store)
    shutil.rmtree(kept)
    return json.loads(said) if said else {"died": True}
