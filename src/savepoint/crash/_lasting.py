"""One system call as a person reads it, and whether what it does lasts: read from the stopped process and `/proc`.

What does not count: pipes, terminals and the program's own output; devices, `/proc`, compiled modules (`__pycache__`);
files without a name; messages between the program's own threads and processes (socket pairs), netlink, name services.
"""

# ruff: noqa: PTH112, PTH115, PTH116, PTH118, PTH120
# Not pathlib: it takes `//` and `/.` apart before the kernel does, and costs more than the call that it looks at.
import os
import socket
import stat
from collections.abc import Iterable
from pathlib import Path

from attrs import define, field, frozen

from ._calls import CUTS, MAKES, SHAPES, UNLINK_DIRECTORY, WRITES, Kind, Shape
from ._ptrace import Entered, read, read_text

_HERE = -100
"""AT_FDCWD"""
_NAME_SERVICES = ("/var/run/nscd/", "/run/nscd/")
_NOT_KEPT = ("/proc/", "/sys/", "/dev/")
_IN_MEMORY = "/dev/shm/"  # noqa: S108  # a file system as any other to the program
_FAMILY = 16  # bytes of a socket address that are read at least


@frozen(kw_only=True)
class Call:
    """One system call, at its entry."""

    name: str
    shape: Shape
    arguments: tuple[int, ...]
    text: str
    counts: bool
    """it may change what outlives the process, or makes that durable"""
    paths: tuple[str, ...] = ()
    """absolute, as the process names them; of a descriptor, where it leads"""
    handles: tuple[str, ...] = ()
    """the same places as this process may open them now, links not followed"""
    existed: bool = False
    """of an open: what it opens was there"""


def _signed(value: int) -> int:
    """An `int` argument as the kernel takes it: its lower half."""
    return (value & 0xFFFFFFFF) - ((value & 0x80000000) << 1)


@define
class Reader:
    """Reads the calls of one traced program."""

    cwd: Path
    mute: frozenset[tuple[int, int]]
    """(device, inode) of the files that are its own output"""
    _sockets: dict[str, str] = field(factory=dict[str, str], init=False)
    """which sockets never last, by what their descriptor's link says: `pair`, `netlink`, `datagram`"""

    def call(self, pid: int, entered: Entered) -> Call:  # noqa: C901  # a table of cases
        """What `pid` is about to do. Raises `OSError` where it is gone."""
        shape, arguments = SHAPES[entered.number], entered.arguments
        match shape.kind:
            case Kind.WRITE | Kind.FILE:
                return self._descriptor(pid, shape, arguments, _signed(arguments[0]))
            case Kind.COPY:
                return self._descriptor(pid, shape, arguments, _signed(arguments[shape.at[0]]))
            case Kind.OPEN | Kind.OPEN2:
                return self._open(pid, shape, arguments)
            case Kind.MAKE:
                return self._make(pid, shape, arguments)
            case Kind.CHANGE:
                return self._change(pid, shape, arguments)
            case Kind.PAIR:
                return self._pair(pid, shape, arguments)
            case Kind.LINK_TEXT:
                return self._link_text(pid, shape, arguments)
            case Kind.SEND:
                return self._send(pid, shape, arguments)
            case Kind.SOCKET | Kind.SOCKETS:
                return self._made(shape, arguments, "", counts=False)
            case Kind.ALL:
                return self._made(shape, arguments, "", counts=True)

    # -- descriptors ------------------------------------------------------------------------------------------------

    def _descriptor(self, pid: int, shape: Shape, arguments: tuple[int, ...], fd: int) -> Call:
        handle = f"/proc/{pid}/fd/{fd}"
        try:
            path, found = os.readlink(handle), os.stat(handle)
        except OSError:
            return self._made(shape, arguments, f"descriptor {fd}", counts=False)
        return self._made(
            shape, arguments, self._short(path), counts=self._kept(path, found), paths=(path,), handles=(handle,)
        )

    def _kept(self, path: str, found: os.stat_result) -> bool:
        if stat.S_ISSOCK(found.st_mode):
            return self._sockets.get(path) not in ("pair", "netlink")
        if stat.S_ISDIR(found.st_mode):
            return True
        if not stat.S_ISREG(found.st_mode) or not found.st_nlink or (found.st_dev, found.st_ino) in self.mute:
            return False
        return _named(path)

    def _send(self, pid: int, shape: Shape, arguments: tuple[int, ...]) -> Call:
        fd = _signed(arguments[0])
        try:
            path = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            return self._made(shape, arguments, f"descriptor {fd}", counts=False)
        kind = self._sockets.get(path)
        if shape.name != "connect":
            return self._made(shape, arguments, path, counts=kind not in ("pair", "netlink"))
        address = _address(read(pid, arguments[1], max(2, min(arguments[2], 128))))
        return self._made(shape, arguments, address, counts=kind is None and not address.startswith(_NAME_SERVICES))

    def made_sockets(self, pid: int, call: Call, returned: int) -> None:
        """At the exit of a call that makes sockets: which of them never last."""
        if returned < 0:
            return
        if call.shape.kind is Kind.SOCKETS:
            pair = read(pid, call.arguments[3], 8)
            fds, kind = (int.from_bytes(pair[:4], "little"), int.from_bytes(pair[4:], "little")), "pair"
        elif call.arguments[0] == socket.AF_NETLINK:
            fds, kind = (returned,), "netlink"
        elif call.arguments[1] & 0xFF == socket.SOCK_DGRAM:
            fds, kind = (returned,), "datagram"  # connecting one sends nothing
        else:
            return
        for fd in fds:
            self._sockets[os.readlink(f"/proc/{pid}/fd/{fd}")] = kind

    # -- names ------------------------------------------------------------------------------------------------------

    def _open(self, pid: int, shape: Shape, arguments: tuple[int, ...]) -> Call:
        directory, at, where = shape.at
        if shape.kind is Kind.OPEN2:
            flags = int.from_bytes(read(pid, arguments[where], 8), "little")
        else:
            flags = MAKES | CUTS | os.O_WRONLY if where < 0 else arguments[where]
        path, handle = self._place(pid, arguments, directory, at)
        try:
            found = os.stat(handle)
        except OSError:
            found = None
            counts = bool(flags & MAKES) and os.path.isdir(os.path.dirname(handle)) and _named(path)
        else:
            empties = bool(flags & CUTS and flags & WRITES and found.st_size)
            counts = empties and self._kept(path, found)
        text, existed = self._short(path), found is not None
        return self._made(shape, arguments, text, counts=counts, paths=(path,), handles=(handle,), existed=existed)

    def _make(self, pid: int, shape: Shape, arguments: tuple[int, ...]) -> Call:
        path, handle = self._place(pid, arguments, *shape.at)
        counts = _named(path) and not os.path.lexists(handle)
        return self._made(shape, arguments, self._short(path), counts=counts, paths=(path,), handles=(handle,))

    def _change(self, pid: int, shape: Shape, arguments: tuple[int, ...]) -> Call:
        path, handle = self._place(pid, arguments, *shape.at)
        name = shape.name
        if name == "unlink" and len(shape.at) == 2 and shape.at[0] == 0 and arguments[2] & UNLINK_DIRECTORY:
            name = "rmdir"
        counts = _named(path) and os.path.lexists(handle)
        text = self._short(path)
        return self._made(shape, arguments, text, counts=counts, paths=(path,), handles=(handle,), name=name)

    def _pair(self, pid: int, shape: Shape, arguments: tuple[int, ...]) -> Call:
        old, old_handle = self._place(pid, arguments, *shape.at[:2])
        new, new_handle = self._place(pid, arguments, *shape.at[2:4])
        counts = _named(new) and os.path.lexists(old_handle)
        text = f"{self._short(old)} -> {self._short(new)}"
        return self._made(shape, arguments, text, counts=counts, paths=(old, new), handles=(old_handle, new_handle))

    def _link_text(self, pid: int, shape: Shape, arguments: tuple[int, ...]) -> Call:
        text = os.fsdecode(read_text(pid, arguments[shape.at[0]]))
        path, handle = self._place(pid, arguments, *shape.at[1:])
        return self._made(
            shape,
            arguments,
            f"{self._short(path)} -> {text}",
            counts=_named(path) and not os.path.lexists(handle),
            paths=(text, path),
            handles=("", handle),
        )

    def _place(self, pid: int, arguments: tuple[int, ...], directory: int, at: int) -> tuple[str, str]:
        """The path as the process means it, and the same as this process may reach it (also in another mount space)."""
        given = os.fsdecode(read_text(pid, arguments[at]))
        if given.startswith("/"):
            return os.path.normpath(given), f"/proc/{pid}/root{given}"
        fd = _HERE if directory < 0 else _signed(arguments[directory])
        base = f"/proc/{pid}/cwd" if fd == _HERE else f"/proc/{pid}/fd/{fd}"
        try:
            where = os.readlink(base)
        except OSError:
            where = f"descriptor {fd}"
        if not given:  # AT_EMPTY_PATH: the descriptor itself
            return where, base
        return os.path.normpath(os.path.join(where, given)), f"{base}/{given}"

    # -- text -------------------------------------------------------------------------------------------------------

    def _short(self, path: str) -> str:
        return path.removeprefix(f"{self.cwd}/")

    def _made(
        self,
        shape: Shape,
        arguments: tuple[int, ...],
        text: str,
        *,
        counts: bool,
        paths: tuple[str, ...] = (),
        handles: tuple[str, ...] = (),
        existed: bool = False,
        name: str = "",
    ) -> Call:
        name = name or shape.name
        return Call(
            name=name,
            shape=shape,
            arguments=arguments,
            text=f"{name}({text})",
            counts=counts,
            paths=paths,
            handles=handles,
            existed=existed,
        )


def _named(path: str) -> bool:
    """It is kept under a name that a person gave it."""
    if "__pycache__" in path.split("/"):
        return False
    return path.startswith(_IN_MEMORY) or not path.startswith((*_NOT_KEPT, "/memfd:"))


def _address(raw: bytes) -> str:
    family = int.from_bytes(raw[:2], "little")
    if family == socket.AF_UNIX:
        return os.fsdecode(raw[2:].partition(b"\0")[0]) if raw[2:3] != b"\0" else f"@{os.fsdecode(raw[3:])}"
    port = int.from_bytes(raw[2:4], "big")
    if family == socket.AF_INET and len(raw) >= 8:
        return f"{socket.inet_ntop(family, raw[4:8])}:{port}"
    if family == socket.AF_INET6 and len(raw) >= 24:
        return f"[{socket.inet_ntop(family, raw[8:24])}]:{port}"
    return f"family {family}"


def outputs(files: Iterable[Path]) -> frozenset[tuple[int, int]]:
    """(device, inode) of each. Raises `OSError`."""
    return frozenset((found.st_dev, found.st_ino) for found in (each.stat() for each in files))
