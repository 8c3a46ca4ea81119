"""The walk that turns a directory into nodes, as a generator of the bytes to store: it runs in a thread, a batch a time.

Nothing is followed: every name is opened below its parent's descriptor with O_NOFOLLOW.
"""

import os
import stat
from collections.abc import Generator
from errno import ELOOP, ENOENT, ENXIO

from attrs import define, field, frozen

from ._digest import Domain, seal
from ._errors import SavepointError
from ._ignore import RULES, Ignore
from ._manifest import (
    CHUNK,
    Entry,
    EntryKind,
    Times,
    display,
    encode_node,
    encode_pieces,
    encode_root,
    encode_times,
)
from ._statcache import Node, StatCache, now_ns, stat_key

_ATTEMPTS = 3
_ZERO = bytes(CHUNK)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Blobs = Generator[bytes, None, bytes]
"""Yields what must be stored, returns the digest that names it all."""


class Unreadable(SavepointError):
    """A path that cannot be captured as it is: no permission, or it changes while it is read."""

    code = "unreadable"

    def __init__(self, path: bytes, why: str) -> None:
        super().__init__(
            f"{display(path)}: {why}", next="stop what writes it, make it readable, or name it in .savepointignore"
        )
        self.path = display(path)


class _Changing(Exception):
    """The file moved under the reader; take it again."""


@frozen(kw_only=True)
class Captured:
    """What a scan found, once everything it yielded is stored."""

    root: bytes
    """digest of the root entry: the snapshot id"""
    times: bytes
    """the remark beside it: the times of the tree"""
    unsupported: tuple[tuple[str, str], ...]
    """path and reason of what cannot be captured"""
    cache: StatCache
    """for the next scan"""


@define(kw_only=True)
class Scan:
    """One capture of `path`. `known` is only read; what is learned goes to a new cache."""

    path: bytes
    known: StatCache
    excluded: frozenset[bytes] = frozenset()
    _fresh: StatCache = field(factory=StatCache, init=False)
    _ignore: Ignore = field(factory=Ignore, init=False)
    _unsupported: list[tuple[str, str]] = field(factory=list[tuple[str, str]], init=False)
    _same_rules: bool = field(default=False, init=False)
    _started_ns: int = field(default=0, init=False)

    def blobs(self) -> Generator[bytes, None, Captured]:
        """Raises `Unreadable`, and `OSError` for the root itself."""
        self._started_ns = now_ns()
        root = os.open(self.path, _DIRECTORY)
        try:
            info = os.fstat(root)
            self._ignore = Ignore.parse(rules_at(root), self.excluded)
            self._fresh.ignore = self._ignore
            self._same_rules = self.known.ignore == self._ignore
            node = yield from self._directory(root, b"")
        finally:
            os.close(root)
        entry = Entry(b"", EntryKind.DIRECTORY, stat.S_IMODE(info.st_mode), 0, node.ref)
        root_digest = yield from _store(encode_root(entry))
        times = encode_times(Times((info.st_mtime_ns,), (node.times_ref,)))
        return Captured(root=root_digest, times=times, unsupported=tuple(sorted(self._unsupported)), cache=self._fresh)

    def _directory(self, fd: int, path: bytes) -> Generator[bytes, None, Node]:
        entries: list[Entry] = []
        stamps: list[int] = []
        nodes: list[bytes] = []
        with os.scandir(fd) as listing:
            names = [(os.fsencode(item.name), item) for item in listing]
        names.sort()
        prefix = path + b"/" if path else b""
        for name, item in names:
            here = prefix + name
            try:
                info = item.stat(follow_symlinks=False)
            except FileNotFoundError:
                raise Unreadable(here, "vanished while it was captured") from None
            known = self.known.files.get(here)
            if known is not None and self._same_rules and known[0] == stat_key(info):
                self._fresh.files[here] = known
                entries.append(known[1])
                stamps.append(info.st_mtime_ns)
                continue
            if self._ignore.skips(here, name, directory=stat.S_ISDIR(info.st_mode)):
                continue
            if stat.S_ISREG(info.st_mode):
                info, entry = yield from self._file(fd, name, here, info)
                entries.append(entry)
            elif stat.S_ISDIR(info.st_mode):
                node = yield from self._child(fd, name, here)
                entries.append(Entry(name, EntryKind.DIRECTORY, stat.S_IMODE(info.st_mode), 0, node.ref))
                nodes.append(node.times_ref)
            elif stat.S_ISLNK(info.st_mode):
                entries.append(Entry(name, EntryKind.LINK, 0, 0, _target(fd, name, here)))
            else:
                self._unsupported.append((display(here), _reason(info.st_mode)))
                continue
            stamps.append(info.st_mtime_ns)
        return (yield from self._node(path, tuple(entries), Times(tuple(stamps), tuple(nodes))))

    def _child(self, fd: int, name: bytes, path: bytes) -> Generator[bytes, None, Node]:
        try:
            child = os.open(name, _DIRECTORY, dir_fd=fd)
        except OSError as error:
            raise Unreadable(path, f"cannot be opened: {error.strerror}") from error
        try:
            return (yield from self._directory(child, path))
        finally:
            os.close(child)

    def _node(self, path: bytes, entries: tuple[Entry, ...], times: Times) -> Generator[bytes, None, Node]:
        old = self.known.nodes.get(path)
        if old is not None and old.entries == entries and old.times == times:
            node = old
        else:
            ref = old.ref if old is not None and old.entries == entries else (yield from _store(encode_node(entries)))
            node = Node(entries=entries, ref=ref, times=times, times_ref=(yield from _store(encode_times(times))))
        self._fresh.nodes[path] = node
        return node

    def _file(
        self, fd: int, name: bytes, path: bytes, info: os.stat_result
    ) -> Generator[bytes, None, tuple[os.stat_result, Entry]]:
        known = self.known.files.get(path)
        if known is not None and known[0] == stat_key(info):
            self._fresh.files[path] = known
            return info, known[1]
        info, ref = yield from read_file(fd, name, path)
        entry = Entry(name, EntryKind.FILE, stat.S_IMODE(info.st_mode), info.st_size, ref)
        self._fresh.keep(path, info, entry, self._started_ns)
        return info, entry


def read_file(fd: int, name: bytes, path: bytes) -> Generator[bytes, None, tuple[os.stat_result, bytes]]:
    """The stat and the digest of a regular file, its bytes yielded. Retaken if it changes meanwhile, then `Unreadable`.

    Bytes of a broken-off attempt may have been yielded too; nothing names them.
    """
    for _ in range(_ATTEMPTS):
        try:
            return (yield from _read_once(fd, name, path))
        except _Changing:
            continue
    raise Unreadable(path, "keeps changing while it is read")


def _read_once(fd: int, name: bytes, path: bytes) -> Generator[bytes, None, tuple[os.stat_result, bytes]]:
    try:
        file = os.open(name, _FILE, dir_fd=fd)
    except OSError as error:
        if error.errno in {ELOOP, ENOENT, ENXIO}:
            raise _Changing from None
        raise Unreadable(path, f"cannot be opened: {error.strerror}") from error
    try:
        before = os.fstat(file)
        if not stat.S_ISREG(before.st_mode):
            raise _Changing
        ref = yield from _content(file, before.st_size)
        if stat_key(os.fstat(file)) != stat_key(before):
            raise _Changing
        return before, ref
    finally:
        os.close(file)


def _content(file: int, size: int) -> Blobs:
    if size <= CHUNK:
        return (yield from _store(_pread(file, size, 0)))
    pieces: list[bytes | None] = []
    for offset in range(0, size, CHUNK):
        data = _piece(file, min(CHUNK, size - offset), offset)
        pieces.append(None if data is None else (yield from _store(data)))
    return (yield from _store(encode_pieces(pieces)))


def _piece(file: int, length: int, offset: int) -> bytes | None:
    """`None` where all is zero, whether the file system keeps a hole there or not: identity is about bytes."""
    try:
        if os.lseek(file, offset, os.SEEK_DATA) >= offset + length:
            return None
    except OSError as error:
        if error.errno == ENXIO:  # no data from here to the end
            return None
    data = _pread(file, length, offset)
    return None if data == (_ZERO if length == CHUNK else _ZERO[:length]) else data


def _pread(file: int, length: int, offset: int) -> bytes:
    data = os.pread(file, length, offset)
    while len(data) < length:
        more = os.pread(file, length - len(data), offset + len(data))
        if not more:
            raise _Changing
        data += more
    return data


def _store(data: bytes) -> Blobs:
    yield data
    return seal(Domain.CONTENT, data)


def rules_at(root: int) -> bytes:
    """The text of the rule file, if it is a regular file."""
    try:
        file = os.open(RULES, _FILE, dir_fd=root)
    except OSError:
        return b""
    with open(file, "rb") as stream:
        return stream.read() if stat.S_ISREG(os.fstat(file).st_mode) else b""


def _target(fd: int, name: bytes, path: bytes) -> bytes:
    try:
        return os.readlink(name, dir_fd=fd)
    except OSError as error:
        raise Unreadable(path, f"the link cannot be read: {error.strerror}") from error


def _reason(mode: int) -> str:
    kinds = ((stat.S_ISFIFO, "a fifo"), (stat.S_ISSOCK, "a socket"))
    what = next((word for test, word in kinds if test(mode)), "a device")
    return f"{what} has no content to keep"
