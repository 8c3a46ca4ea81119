"""Where a path inside the workspace leads, found one component at a time, so that nothing can lead outside.

Checking a path and then opening it by name would leave a gap in which a running command can swap a directory for a
link; here each directory is held open and the next name is opened relative to it, links never followed by the kernel.
"""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import frozen

from ._errors import Outside, Unsuitable

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LINKS = 40


@frozen(kw_only=True)
class Place:
    """A name in an open directory; the name itself is no link (at the time of looking), or not there yet."""

    directory: int
    """Open while the context of `place` lasts."""
    name: str
    """`.` for the workspace itself."""
    path: str
    """For people: relative to the workspace, links resolved."""

    def status(self) -> os.stat_result | None:
        """`None` if there is nothing of that name."""
        try:
            return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return None


@contextmanager
def place(root: Path, path: str, *, make_parents: bool = False) -> Generator[Place]:
    """Finds `path` below `root`; links that stay inside are followed. Raises `Outside`, `Unsuitable`."""
    walk = _Walk(root, path, make_parents=make_parents)
    try:
        yield walk.run()
    finally:
        walk.close()


class _Walk:
    def __init__(self, root: Path, path: str, *, make_parents: bool) -> None:
        if not is_name(path):
            raise Unsuitable(f"{path!r}: not a path; give one relative to the workspace, '.' for the workspace itself")
        self._asked = path
        self._make = make_parents
        self._root = Path(os.path.realpath(root))
        self._todo = list(reversed(self._parts(path)))
        self._held = [os.open(self._root, DIRECTORY)]
        self._names: list[str] = []
        self._links = 0

    def close(self) -> None:
        for descriptor in self._held:
            os.close(descriptor)

    def _parts(self, path: str) -> list[str]:
        """Relative to the workspace; an absolute path counts where it spells the workspace's own."""
        if not path.startswith("/"):
            return [part for part in path.split("/") if part not in ("", ".")]
        inside = Path(os.path.normpath(path))
        if not inside.is_relative_to(self._root):
            raise self._outside()
        return list(inside.relative_to(self._root).parts)

    def _outside(self) -> Outside:
        return Outside(f"{self._asked}: leads out of the workspace; only paths relative to the workspace can be used")

    def run(self) -> Place:
        while self._todo:
            name = self._todo.pop()
            if name == "..":
                self._up()
            elif (target := self._link(name)) is not None:
                self._follow(target)
            elif not self._todo:
                return Place(directory=self._held[-1], name=name, path="/".join([*self._names, name]))
            else:
                self._down(name)
        return Place(directory=self._held[-1], name=".", path="/".join(self._names) or ".")

    def _up(self) -> None:
        if not self._names:
            raise self._outside()
        self._names.pop()
        os.close(self._held.pop())

    def _link(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self._held[-1])
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):  # no link; not there
                return None
            raise Unsuitable(f"{self._asked}: {error.strerror}") from None

    def _follow(self, target: str) -> None:
        self._links += 1
        if self._links > LINKS:
            raise Unsuitable(f"{self._asked}: its links go in a circle")
        parts = self._parts(target)
        if target.startswith("/"):
            while self._names:
                self._up()
        self._todo += reversed(parts)

    def _down(self, name: str) -> None:
        if self._make:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self._held[-1])
        try:
            self._held.append(os.open(name, DIRECTORY, dir_fd=self._held[-1]))
        except OSError as error:
            raise Unsuitable(f"{self._asked}: {'/'.join([*self._names, name])}: {error.strerror}") from None
        self._names.append(name)


def is_name(text: str) -> bool:
    """Whether the kernel would take it: no NUL, no half of a surrogate pair (escaped bytes are fine), not empty."""
    try:
        return bool(text) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def kind(status: os.stat_result) -> str:
    """A word for what a directory entry is."""
    names = {stat.S_IFDIR: "directory", stat.S_IFREG: "file", stat.S_IFLNK: "link", stat.S_IFIFO: "named pipe"}
    return names.get(stat.S_IFMT(status.st_mode), "device or socket")


def shown(name: str) -> str:
    """A file name as text: bytes that are not UTF-8 are escaped."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
