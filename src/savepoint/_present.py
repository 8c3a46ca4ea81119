"""What is at a path now, without ever passing through a link: every component is opened below its parent."""

import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ._manifest import Entry, EntryKind, join
from ._scan import read_file

T = TypeVar("T")
_STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened(root: int, directory: bytes) -> Generator[int | None]:
    """A descriptor of `directory` below `root`; `None` where a component is absent, a link or no directory."""
    fd = os.dup(root)
    try:
        for name in directory.split(b"/") if directory else ():
            inner = os.open(name, _STEP, dir_fd=fd)
            os.close(fd)
            fd = inner
    except (FileNotFoundError, NotADirectoryError):
        os.close(fd)
        yield None
        return
    except BaseException:
        os.close(fd)
        raise
    try:
        yield fd
    finally:
        os.close(fd)


def split(path: bytes) -> tuple[bytes, bytes]:
    """Parent (empty for the root) and name."""
    parent, _, name = path.rpartition(b"/")
    return parent, name


def present(root: int, path: bytes) -> Entry | None:
    """The entry at `path`; a file is read and hashed, a directory's children are not looked at.

    Something that no snapshot holds (a device, ...) is an entry that equals none.
    """
    if not path:
        return _directory(b"", os.fstat(root))
    parent, name = split(path)
    with opened(root, parent) as fd:
        if fd is None:
            return None
        try:
            info = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if stat.S_ISDIR(info.st_mode):
            return _directory(name, info)
        if stat.S_ISLNK(info.st_mode):
            return Entry(name, EntryKind.LINK, 0, 0, os.readlink(name, dir_fd=fd))
        if stat.S_ISREG(info.st_mode):
            info, ref = _result(read_file(fd, name, path))
            return Entry(name, EntryKind.FILE, stat.S_IMODE(info.st_mode), info.st_size, ref)
        return Entry(name, EntryKind.FILE, 0, -1, b"")


def below(root: int, path: bytes) -> Iterator[bytes]:
    """Every path below a directory; nothing where it is none."""
    with opened(root, path) as fd:
        if fd is None:
            return
        with os.scandir(fd) as listing:
            found = [(join(path, os.fsencode(item.name)), item.is_dir(follow_symlinks=False)) for item in listing]
    for child, directory in found:
        yield child
        if directory:
            yield from below(root, child)


def _directory(name: bytes, info: os.stat_result) -> Entry:
    return Entry(name, EntryKind.DIRECTORY, stat.S_IMODE(info.st_mode), 0, b"")


def _result(blobs: Generator[bytes, None, T]) -> T:
    while True:
        try:
            next(blobs)
        except StopIteration as end:
            return end.value
