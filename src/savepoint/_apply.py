"""Carrying out a merge: each path changes in one rename, so a kill leaves every path old or new, never half.

Repeating a killed merge finishes it: `_merge.plan` counts what is new already as done, and names that a kill left
behind are the same ones that the repetition uses.
"""

import ctypes
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from errno import EEXIST, EINVAL, ENOSYS, ENOTEMPTY, ENOTSUP

from attrs import define, field

from ._copyout import pour
from ._digest import Domain, seal
from ._errors import NotWritable
from ._ignore import TEMPORARY
from ._manifest import Entry, EntryKind, display
from ._merge import Plan, is_directory
from ._present import opened, split
from ._remove import remove_at
from ._system import Contents
from ._thread import in_thread
from ._tree import Delta

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_EXCHANGE = 2


@define(kw_only=True)
class Apply:
    """One merge into the tree whose descriptor is `root`."""

    root: int
    contents: Contents
    _touched: set[bytes] = field(factory=set[bytes], init=False)

    async def run(self, plan: Plan) -> None:
        """Raises `NotWritable` naming the path, `Missing`, `Corrupt`; what was done stays done."""
        await in_thread(self._prepare, plan)
        for delta in plan.todo:
            if delta.new is not None and not (is_directory(delta.old) and is_directory(delta.new)):
                await self._place(delta.path, delta.new)
        await in_thread(self._finish, plan.todo)

    def _prepare(self, plan: Plan) -> None:
        for delta in plan.wanted:
            with named(delta.path), self._parent(delta.path) as parent:
                if parent is not None:
                    _clear(parent, _temporary(delta.path))
        for delta in plan.todo:
            if delta.new is not None and is_directory(delta.old) and is_directory(delta.new):
                self._set_mode(delta.path, delta.new.mode | 0o700)
        for delta in reversed(plan.todo):
            if delta.new is None:
                self._remove(delta)

    def _remove(self, delta: Delta) -> None:
        _, name = split(delta.path)
        with named(delta.path), self._parent(delta.path) as parent:
            if parent is None:
                return
            with suppress(FileNotFoundError):
                if not is_directory(delta.old):
                    os.unlink(name, dir_fd=parent)
                    return
                try:
                    os.rmdir(name, dir_fd=parent)
                except OSError as error:
                    # It holds what is ignored, or what was added here: that stays, and so does its directory.
                    if error.errno not in {ENOTEMPTY, EEXIST}:
                        raise

    async def _place(self, path: bytes, entry: Entry) -> None:
        temporary = _temporary(path)
        _, name = split(path)
        with named(path), self._parent(path) as parent:
            if parent is None:
                raise NotADirectoryError(ENOTEMPTY, "its directory went away")
            try:
                await self._build(parent, temporary, path, entry)
                await in_thread(_swap, parent, temporary, name, directory=is_directory(entry))
            finally:
                await in_thread(_clear, parent, temporary)

    async def _build(self, parent: int, temporary: bytes, path: bytes, entry: Entry) -> None:
        match entry.kind:
            case EntryKind.LINK:
                await in_thread(os.symlink, entry.ref, temporary, dir_fd=parent)
            case EntryKind.DIRECTORY:
                await in_thread(_make_directory, parent, temporary, entry.mode | 0o700)
            case EntryKind.FILE:
                fd = await in_thread(os.open, temporary, _NEW_FILE, 0o600, dir_fd=parent)
                try:
                    await pour(self.contents, entry, path, fd)
                    os.fchmod(fd, entry.mode)
                    await in_thread(os.fsync, fd)
                finally:
                    os.close(fd)

    def _finish(self, todo: Sequence[Delta]) -> None:
        """Final modes, the deepest first, then every directory that changed is synced."""
        for delta in reversed(todo):
            if delta.new is not None and is_directory(delta.new):
                self._set_mode(delta.path, delta.new.mode)
        for directory in sorted(self._touched):
            with named(directory), opened(self.root, directory) as fd:
                if fd is not None:
                    os.fsync(fd)

    def _set_mode(self, path: bytes, mode: int) -> None:
        with named(path), opened(self.root, path) as fd:
            if fd is not None:
                os.fchmod(fd, mode)
        self._touched.add(path)

    @contextmanager
    def _parent(self, path: bytes) -> Generator[int | None]:
        if not path:
            yield None
            return
        parent, _ = split(path)
        self._touched.add(parent)
        with opened(self.root, parent) as fd:
            yield fd


@contextmanager
def named(path: bytes) -> Generator[None]:
    """An `OSError` inside becomes `NotWritable` that names the path."""
    try:
        yield
    except OSError as error:
        raise NotWritable(
            f"{display(path)}: cannot merge: {error.strerror}", next="remove the cause, then merge again to finish"
        ) from error


def _temporary(path: bytes) -> bytes:
    return TEMPORARY + seal(Domain.TREE, path).hex()[:16].encode()


def _clear(parent: int, name: bytes) -> None:
    with suppress(FileNotFoundError):
        remove_at(parent, name)


def _make_directory(parent: int, name: bytes, mode: int) -> None:
    os.mkdir(name, 0o700, dir_fd=parent)
    os.chmod(name, mode, dir_fd=parent)


def _swap(parent: int, temporary: bytes, name: bytes, *, directory: bool) -> None:
    """Puts `temporary` at `name`. A directory and something else cannot replace each other by rename: they change places."""
    try:
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except (NotADirectoryError, IsADirectoryError):
        if not _exchange(parent, temporary, name):
            os.rmdir(name, dir_fd=parent) if not directory else os.unlink(name, dir_fd=parent)
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)


def _exchange(parent: int, left: bytes, right: bytes) -> bool:
    """`renameat2(RENAME_EXCHANGE)`, which Python does not offer; `False` where the system has none."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    if call(parent, ctypes.c_char_p(left), parent, ctypes.c_char_p(right), ctypes.c_uint(_EXCHANGE)) == 0:
        return True
    code = ctypes.get_errno()
    if code in {EINVAL, ENOSYS, ENOTSUP}:
        return False
    raise OSError(code, os.strerror(code))
