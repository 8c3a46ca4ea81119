"""Where the rig works: one directory in memory, gone when it ends, and swept by the next rig when this one was killed."""

import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from types import TracebackType
from typing import Self

from attrs import define, field

from savepoint._ambient import process_id
from savepoint._errors import NotWritable
from savepoint._remove import remove_tree

MARK = "SAVEPOINT_CRASH"
"""The variable that every process of a run has, with its directory as the value: how leftovers are known."""
_PREFIX = "savepoint-crash-"
_SHARED = Path("/dev/shm")  # noqa: S108  memory: a kill loses nothing of it, and syncing costs nothing
_PROCESSES = Path("/proc")


@define
class Scratch:
    """`with Scratch() as scratch:` has `scratch.place`, an empty directory that is this process's own."""

    place: Path = field(default=Path(), init=False)
    _lock: int = field(default=-1, init=False)

    def __enter__(self) -> Self:
        for base in bases():
            sweep(base)
        try:
            self.place = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{process_id()}-", dir=bases()[0])).resolve()
        except OSError as error:
            raise NotWritable(f"{bases()[0]}: {error.strerror}", next="set TMPDIR to a directory with room") from error
        # The kernel gives it back when this process ends, however it does.
        self._lock = os.open(self.place / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        flock(self._lock, LOCK_EX)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_processes()
        clear_away(self.place)
        os.close(self._lock)

    def end_processes(self) -> list[int]:
        """Kills every process that belongs to a run of this rig; those that it killed."""
        return end_processes_of(self.place)


def bases() -> list[Path]:
    """The directories that rigs work below, the best first: memory where there is some, else that of the system."""
    system = Path(tempfile.gettempdir())
    shared = _SHARED.is_mount() and os.access(_SHARED, os.W_OK | os.X_OK)
    return [_SHARED, system] if shared else [system]


def sweep(base: Path) -> list[Path]:
    """Removes what rigs that were killed left below `base`, with their processes; what it removed."""
    gone = [place for place in base.glob(f"{_PREFIX}*-*") if _is_left(place)]
    for place in gone:
        end_processes_of(place)
        clear_away(place)
    return gone


def _is_left(place: Path) -> bool:
    """Whether its rig is gone: no such process, and its lock is free (that process may be in another container)."""
    number = place.name.removeprefix(_PREFIX).partition("-")[0]
    try:
        own = place.lstat()
        if not stat.S_ISDIR(own.st_mode) or own.st_uid != os.getuid() or not number.isdecimal() or _lives(int(number)):
            return False
        handle = os.open(place / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return False
    try:
        flock(handle, LOCK_EX | LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(handle)


def _lives(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def end_processes_of(place: Path) -> list[int]:
    """Kills the processes that a rig started below `place`; those that it killed. Without /proc it finds none."""
    killed: list[int] = []
    # Again, for one of them may have started another meanwhile.
    while found := [number for number in _processes_of(place) if number not in killed]:
        for number in found:
            with suppress(OSError):
                os.kill(number, signal.SIGKILL)
        killed += found
    return killed


def _processes_of(place: Path) -> Iterator[int]:
    mark = os.fsencode(f"{MARK}={place}/")
    for each in _PROCESSES.glob("[0-9]*"):
        if int(each.name) == process_id():
            continue
        with suppress(OSError):  # ended, or another user's
            if any(word.startswith(mark) for word in (each / "environ").read_bytes().split(b"\0")):
                yield int(each.name)


def clear_away(place: Path) -> None:
    """Removes the directory, also where a program took rights away below it."""
    try:
        remove_tree(place)
    except OSError:  # what stands in its way (a mount, a file that cannot be changed) stays; the rest goes
        shutil.rmtree(place, ignore_errors=True)
