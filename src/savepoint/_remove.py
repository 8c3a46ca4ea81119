"""Removing a tree for good: read-only directories too, links never followed."""

import os
import stat
from pathlib import Path

_OPEN = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> None:
    """Removes `path` and all below it; an absent path is a no-op. Raises `OSError`."""
    try:
        parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        remove_at(parent, os.fsencode(path.name))
    except FileNotFoundError:
        return
    finally:
        os.close(parent)


def remove_at(parent: int, name: bytes) -> None:
    """The same below a directory descriptor."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=parent)
        return
    fd = _open_writable(parent, name)
    try:
        for child in os.listdir(fd):
            remove_at(fd, os.fsencode(child))
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=parent)


def _open_writable(parent: int, name: bytes) -> int:
    """Opened for listing and unlinking whatever its mode was, without a name that could be swapped for a link."""
    handle = os.open(name, os.O_PATH | _OPEN, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{handle}", 0o700)
        return os.open(b".", os.O_RDONLY | _OPEN, dir_fd=handle)
    finally:
        os.close(handle)
