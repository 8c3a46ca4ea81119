"""Reading, writing, editing and listing files of the workspace: bounded answers, no path that leads outside."""

import asyncio
import fcntl
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

from ._errors import Mismatch, Unsuitable
from ._place import DIRECTORY, Place, kind, place, shown

READ_LINES = 500
READ_BYTES = 65_536
LINE_BYTES = 4_096
EDIT_BYTES = 8 << 20
LIST_ENTRIES = 500
BINARY_PROBE = 8_192
REGULAR = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # non-blocking: a named pipe must not hang us

T = TypeVar("T")


async def read_file(root: Path, path: str, *, start_line: int = 1, lines: int = READ_LINES) -> str:
    """Lines of a text file, each after its number and a tab; says how to go on where there are more.

    At most `READ_BYTES` of text; longer lines than `LINE_BYTES` are cut. Undecodable bytes are escaped. Raises
    `Outside`, `Unsuitable` (missing, a directory, binary).
    """
    if start_line < 1 or lines < 1:
        raise Unsuitable(f"{path}: start_line and lines count from 1")
    return await _finish(lambda: _read(root, path, start_line, lines))


async def write_file(root: Path, path: str, text: str) -> str:
    """Makes or replaces a file, whole or not at all; parents are made, the mode of a replaced file is kept."""
    data = _encoded(path, text)

    def write() -> str:
        with place(root, path, make_parents=True) as target:
            _replace(target, data)
            return f"wrote {len(data)} bytes to {target.path}"

    return await _finish(write)


async def edit_file(root: Path, path: str, old: str, new: str, *, count: int = 1) -> str:
    """Replaces `old`, which must occur exactly `count` times, by `new`. Raises `Mismatch` and changes nothing."""
    if not old or old == new:
        raise Mismatch(f"{path}: old must be some text, and differ from new")
    before, after = _encoded(path, old), _encoded(path, new)

    def edit() -> str:
        with place(root, path) as target:
            fcntl.flock(target.directory, fcntl.LOCK_EX)  # two edits of one reply must not undo each other
            data, found = _found(target, before, after)
            _replace(target, _replaced(target, data, found, count))
            line = data.count(b"\n", 0, data.find(found[0])) + 1
            return f"edited {target.path}: {count} place(s), the first at line {line}"

    return await _finish(edit)


async def list_files(root: Path, path: str = ".", *, depth: int = 1, limit: int = LIST_ENTRIES) -> str:
    """Names in a directory in byte order, `depth` levels deep: `name/`, `name (bytes)`, `name -> target`."""

    def entries() -> str:
        with place(root, path) as target:
            directory = _open(target, DIRECTORY)
        try:
            found = _entries(directory, "", depth)
            lines = [line for _, line in zip(range(limit), found, strict=False)]
            more = next(found, None) is not None
        finally:
            os.close(directory)
        note = [f"[more than {limit} entries: list a directory below, or use a smaller depth]"] if more else []
        return "\n".join([*lines, *note]) or "[empty]"

    return await _finish(entries)


async def _finish(work: Callable[[], T]) -> T:
    """Runs blocking work in a thread; a cancellation waits for its end, so that it never writes behind our back."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    finally:
        await asyncio.wait([running])


def _encoded(path: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Unsuitable(f"{path}: character {error.start} of the text is half of a surrogate pair") from None


def _open(target: Place, flags: int) -> int:
    try:
        return os.open(target.name, flags, dir_fd=target.directory)
    except OSError as error:
        raise Unsuitable(f"{target.path}: {error.strerror}") from None


def _open_file(target: Place) -> BinaryIO:
    descriptor = _open(target, REGULAR)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise Unsuitable(f"{target.path}: is a {kind(status)}, not a file")
    return os.fdopen(descriptor, "rb")


def _read(root: Path, path: str, start_line: int, lines: int) -> str:
    with place(root, path) as target, _open_file(target) as file:
        if b"\0" in file.read(BINARY_PROBE):
            size = os.fstat(file.fileno()).st_size
            raise Unsuitable(f"{target.path}: is binary ({size} bytes); use a command to look into it")
        file.seek(0)
        numbered, used, number = list[str](), 0, 0
        for number, line in enumerate(_lines(file), 1):
            if number < start_line:
                continue
            if len(numbered) == lines or used > READ_BYTES:
                return "\n".join([*numbered, f"[more lines: go on with start_line={number}]"])
            numbered.append(f"{number}\t{line}")
            used += len(line)
        if not numbered and number:
            raise Unsuitable(f"{target.path}: has {number} lines, start_line={start_line} is past its end")
        return "\n".join(numbered) or "[empty file]"


def _lines(file: BinaryIO) -> Iterator[str]:
    """Never holds more than a part of a line, whatever the file."""
    while line := file.readline(LINE_BYTES + 1):
        cut, rest = len(line) > LINE_BYTES and not line.endswith(b"\n"), line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(1 << 20)
        text = line.removesuffix(b"\n").decode("utf-8", "backslashreplace")
        yield f"{text} [line cut]" if cut else text


def _found(target: Place, old: bytes, new: bytes) -> tuple[bytes, tuple[bytes, bytes]]:
    """The file's bytes, and `old` and `new` with the line ends that it uses."""
    with _open_file(target) as file:
        data = file.read(EDIT_BYTES + 1)
    if len(data) > EDIT_BYTES:
        raise Unsuitable(f"{target.path}: longer than {EDIT_BYTES} bytes; use a command to edit it")
    if old not in data and b"\n" in old and b"\r\n" in data:  # a model is shown, and writes, bare line ends
        old, new = (text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") for text in (old, new))
    return data, (old, new)


def _replaced(target: Place, data: bytes, found: tuple[bytes, bytes], count: int) -> bytes:
    times = data.count(found[0])
    if times == 0:
        raise Mismatch(f"{target.path}: old text not found; read the file again, spaces and line ends count")
    if times != count:
        raise Mismatch(f"{target.path}: old text found {times} times, not {count}; give more of its context, or count")
    return data.replace(*found)


def _replace(target: Place, data: bytes) -> None:
    """Atomic: a temporary file in the same directory takes the name."""
    status = target.status()
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise Unsuitable(f"{target.path}: is a {kind(status)}, not a file")
    temporary = f".{os.getpid()}-{threading.get_ident()}.tmp"  # ours alone while this thread runs
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=target.directory)
        with os.fdopen(os.open(temporary, flags, 0o666, dir_fd=target.directory), "wb") as file:
            if status is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
            file.write(data)
        os.rename(temporary, target.name, src_dir_fd=target.directory, dst_dir_fd=target.directory)
    except OSError as error:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=target.directory)
        raise Unsuitable(f"{target.path}: {error.strerror}; nothing was changed") from None


def _entries(directory: int, prefix: str, depth: int) -> Iterator[str]:
    with os.scandir(directory) as scan:
        entries = sorted(scan, key=lambda entry: os.fsencode(entry.name))
    for entry in entries:
        name = prefix + shown(entry.name)
        yield _entry(directory, entry, name)
        if depth > 1 and entry.is_dir(follow_symlinks=False):
            with suppress(OSError):  # gone or unreadable by now: its own line was given
                below = os.open(entry.name, DIRECTORY, dir_fd=directory)
                try:
                    yield from _entries(below, f"{name}/", depth - 1)
                finally:
                    os.close(below)


def _entry(directory: int, entry: os.DirEntry[str], name: str) -> str:
    try:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return f"{name} -> {shown(os.readlink(entry.name, dir_fd=directory))}"
    except OSError:
        return f"{name} (gone)"
    if stat.S_ISDIR(status.st_mode):
        return f"{name}/"
    return f"{name} ({status.st_size} bytes)" if stat.S_ISREG(status.st_mode) else f"{name} ({kind(status)})"
