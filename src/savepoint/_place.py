"""Where a store lies: the directory is found, made, and judged before SQLite touches anything in it."""

import fcntl
import os
import re
import struct
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

from ._ambient import boot_clock_s
from ._engine import APPLICATION, create
from ._errors import Corrupt, Foreign, Missing, NotWritable, Usage
from ._migrations import check_version

NAME = ".savepoint"
DATABASE = "store.db"
_NEW = "store.db.new"
_IGNORE = ".gitignore"
"""Tells git that nothing here is the project's."""
_DIRECTORIES = ("packs", "forks", "locks")
_HEADER = struct.Struct(">16s44xI4xI")
"""Of a SQLite file: magic, user version, application id."""
_MAGIC = b"SQLite format 3\0"
_NETWORK = frozenset(
    [
        *(
            "9p",
            "afs",
            "beegfs",
            "ceph",
            "cifs",
            "coda",
            "gfs2",
            "glusterfs",
            "lustre",
            "ncpfs",
            "nfs",
            "nfs4",
            "ocfs2",
        ),
        *("smb3", "smbfs"),
        *("drvfs", "fakeowner", "prl_fs", "vboxsf", "virtiofs", "vmhgfs"),
    ]
)
"""File systems without the shared memory or the locks that a write-ahead log needs; `fuse.*` counts too."""


def find_place(start: Path) -> Path:
    """The store directory for work in `start`: in the nearest ancestor that has one, else in the nearest project."""
    here = start.resolve()
    ancestors = (here, *here.parents)
    for marks in ((NAME,), ("pyproject.toml", ".git")):
        for ancestor in ancestors:
            if any((ancestor / mark).exists() for mark in marks):
                return ancestor / NAME
    return here / NAME


def on_network(path: Path, mounts: str) -> bool:
    """Whether `path` lies on a network or pass-through mount. `mounts` is the text of /proc/self/mountinfo."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        point = Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields.split(" ")[4]))
        if path.is_relative_to(point) and len(point.parts) >= best:  # a later mount covers an earlier one
            best, kind = len(point.parts), rest.split(" ")[0]
    return kind in _NETWORK or kind.startswith("fuse.")


def is_network(place: Path) -> bool:
    """`on_network` of this machine; where mounts cannot be listed (not Linux), a disk is taken to be local."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    except OSError:
        return False
    return on_network(place.resolve(), mounts)


def ready(place: Path, *, may_create: bool, patience_s: float) -> None:
    """Makes sure that a whole store of a known version lies at `place`, making an empty one where that is right.

    A database is made aside and renamed when it is whole, so one that is cut or empty is damage, never a beginning.
    Raises `Missing`, `Usage` (something else is there), `Corrupt`, `Newer`, `Foreign`, `NotWritable`.
    """
    try:
        _ready(place, may_create=may_create, patience_s=patience_s)
    except OSError as error:
        raise NotWritable(f"{place}: {error}", next="check its owner and mode, or choose another directory") from error


def _ready(place: Path, *, may_create: bool, patience_s: float) -> None:
    if not (place / DATABASE).exists():
        _must_be_free(place)
        if not may_create and not (place / DATABASE).exists():
            raise Missing(f"there is no store at {place}", next="check the path, or start a run to create one")
        _make(place, patience_s)
    _judge(place / DATABASE)
    if may_create and os.access(place, os.W_OK):
        _furnish(place)


def _must_be_free(place: Path) -> None:
    """An absent, an empty, or a half-made store directory is free; so is one that became a store while we looked."""
    try:
        _refuse_what_is_there(place)
    except (Usage, Corrupt):
        if not (place / DATABASE).exists():
            raise


def _refuse_what_is_there(place: Path) -> None:
    if not place.exists():
        return
    if not place.is_dir():
        raise Usage(f"{place} is not a store but a file", next="name the store's directory")
    if (place / "store.db-wal").exists() or any((place / "packs").glob("*")) or any((place / "forks").glob("*")):
        raise Corrupt(f"{place / DATABASE} is gone while other files of the store are there")
    if other := sorted({entry.name for entry in place.iterdir()} - {*_DIRECTORIES, _IGNORE, _NEW, f"{_NEW}-journal"}):
        raise Usage(f"{place} is not a store: it holds {other[0]}", next="name an empty or a new directory")


def _make(place: Path, patience_s: float) -> None:
    above = {place.parent, *(path.parent for path in place.parents if not path.exists())}
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    place.chmod(0o700)
    ignore = place / _IGNORE
    ignore.touch(mode=0o600)
    ignore.write_text("*\n")
    _furnish(place)
    with _alone(place / "locks" / "create", patience_s):
        if (place / DATABASE).exists():
            return  # another process was faster
        new = place / _NEW
        for leftover in (new, place / f"{_NEW}-journal"):
            leftover.unlink(missing_ok=True)
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        create(new)
        _sync(new)
        new.rename(place / DATABASE)
        for directory in (place, *above):
            _sync(directory)


def _furnish(place: Path) -> None:
    for name in _DIRECTORIES:
        (place / name).mkdir(mode=0o700, exist_ok=True)


@contextmanager
def _alone(lock: Path, patience_s: float) -> Generator[None]:
    """Holds a kernel lock, which ends with the process. Raises `NotWritable` where it is held too long."""
    handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        _lock(handle, lock, boot_clock_s() + patience_s)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, lock: Path, deadline: float) -> None:
    while boot_clock_s() < deadline:
        with suppress(BlockingIOError):
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        Event().wait(0.005)  # in a thread; a kernel lock cannot be awaited
    raise NotWritable(f"{lock} is held by another process", next="try again when it is done")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _judge(database: Path) -> None:
    """Reads the header only: what this version must not touch is refused before SQLite opens it."""
    with database.open("rb") as file:
        header = file.read(_HEADER.size)
    if len(header) < _HEADER.size or not header.startswith(_MAGIC):
        raise Corrupt(f"{database} is cut or overwritten: it is not a database")
    _, version, application = _HEADER.unpack(header)
    if application != APPLICATION:
        raise Foreign(f"{database} is a database, but not a store's", next="name the store's directory")
    check_version(version, str(database))
