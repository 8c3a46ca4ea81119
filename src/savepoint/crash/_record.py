"""Records what a traced program does to the files below one directory.

Files are known by device and inode, so that a rename is a rename. Not seen: what is written through a shared mapping,
or by the kernel alone (a cloned range, `io_uring`). SQLite maps its `-shm` file, which no one reads after a power cut:
files of that name are left out altogether.
"""

# ruff: noqa: PTH115, PTH116, PTH208
# Not pathlib, as in `_lasting`.
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import define, evolve, field

from . import _ptrace
from ._calls import Kind
from ._kill import Kill
from ._lasting import Call
from ._recording import Change, Event, Named, Node, Recording, Resized, Sort, Synced, Wrote
from ._room import VOLATILE
from ._trace import Traced, run

_HOLES = 0x02 | 0x10
"""`fallocate`'s flags that put zeros: punch a hole, zero a range"""
_EXCHANGE = 0x2
"""`renameat2`'s flag"""
_CHUNK = 1 << 20


@define
class Recorder:
    """A listener of the tracer; `root` must not change but by the program."""

    root: Path
    _nodes: dict[int, Node] = field(factory=dict[int, Node], init=False)
    _names: dict[int, dict[str, int]] = field(factory=dict[int, dict[str, int]], init=False)
    _known: dict[tuple[int, int], int] = field(factory=dict[tuple[int, int], int], init=False)
    _events: list[Event] = field(factory=list[Event], init=False)

    def __attrs_post_init__(self) -> None:
        self._scan(str(self.root))

    def recording(self) -> Recording:
        return Recording(nodes=dict(self._nodes), names=self._names, events=list(self._events))

    # -- what is there ----------------------------------------------------------------------------------------------

    def _scan(self, path: str) -> int:
        """The node of what is there at the start; below a directory too."""
        node, found = self._new(path)
        if stat.S_ISDIR(found.st_mode):
            self._names[node] = {
                name: self._scan(f"{path}/{name}") for name in sorted(os.listdir(path)) if not name.endswith(VOLATILE)
            }
        return node

    def _new(self, path: str, *, empty: bool = False, follow: bool = False) -> tuple[int, os.stat_result]:
        """A new node for what is at `path`, without what is below it."""
        found = os.stat(path, follow_symlinks=follow)
        mode, text, content = stat.S_IMODE(found.st_mode), "", b""
        if stat.S_ISLNK(found.st_mode):
            sort, text = Sort.LINK, os.readlink(path)
        elif stat.S_ISDIR(found.st_mode):
            sort = Sort.DIRECTORY
        else:
            sort, content = Sort.FILE, b"" if empty else Path(path).read_bytes()
        number = self._known.get((found.st_dev, found.st_ino), -1)
        if number < 0 or empty:  # an inode may be used again; two names at the start are one node
            number = len(self._nodes)
            self._nodes[number] = Node(sort=sort, mode=mode, text=text, content=content)
            self._known[found.st_dev, found.st_ino] = number
        return number, found

    def _node(self, path: str, *, follow: bool = True) -> int | None:
        """The node at a path that may be opened now; `None` where it is not one of ours."""
        try:
            found = os.stat(path, follow_symlinks=follow)
        except OSError:
            return None
        return self._known.get((found.st_dev, found.st_ino))

    def _entry(self, handle: str) -> tuple[int, str] | None:
        """Directory and name of a path; `None` where it is not below `root`, or volatile."""
        parent, _, name = handle.rstrip("/").rpartition("/")
        directory = self._node(f"{parent}/")
        return None if directory is None or name.endswith(VOLATILE) else (directory, name)

    # -- events -----------------------------------------------------------------------------------------------------

    def __call__(self, pid: int, calls: int, call: Call, returned: int) -> None:
        """Hears of one call that was made."""
        for change in self._changes(pid, call, returned):
            self._events.append(Event(change=change, text=call.text, calls=calls))

    def _changes(self, pid: int, call: Call, returned: int) -> Sequence[Change]:
        match call.shape.kind:
            case Kind.WRITE | Kind.COPY:
                return self._wrote(pid, call, returned)
            case Kind.FILE:
                return self._filed(call)
            case Kind.OPEN | Kind.OPEN2:
                return self._opened(pid, call, returned)
            case Kind.MAKE | Kind.LINK_TEXT:
                return self._made(call.handles[-1])
            case Kind.CHANGE:
                return self._changed(call)
            case Kind.PAIR:
                return self._linked(call) if call.name == "link" else self._renamed(call)
            case Kind.ALL:
                return [Synced(node=None)] if call.name == "sync" else []
            case Kind.SEND | Kind.SOCKET | Kind.SOCKETS:
                return []

    def _wrote(self, pid: int, call: Call, returned: int) -> Sequence[Change]:
        node = self._node(call.handles[0]) if call.handles else None
        if node is None or not returned:
            return []
        name, arguments = call.shape.name, call.arguments
        position, flags = _position(pid, call.handles[0])
        offset = position - returned
        if name.startswith("pwrite") and (arguments[3] < 1 << 63):  # pwritev2 with -1 is a plain write
            at_end = flags & os.O_APPEND  # the kernel appends then, whatever the offset says
            offset = os.stat(call.handles[0]).st_size - returned if at_end else arguments[3]
        if call.shape.kind is Kind.COPY:
            where = {"copy_file_range": 3, "splice": 3}.get(name)
            if where is not None and arguments[where]:
                offset = int.from_bytes(_ptrace.read(pid, arguments[where], 8), "little") - returned
            data = _content(call.handles[0], offset, returned)
        elif name.endswith(("v", "v2")):
            data = _vectors(pid, arguments[1], arguments[2], returned)
        else:
            data = _ptrace.read(pid, arguments[1], returned)
        return [Wrote(node=node, offset=offset, data=data)]

    def _filed(self, call: Call) -> Sequence[Change]:
        node = self._node(call.handles[0]) if call.handles else None
        if node is None:
            return []
        match call.name:
            case "fsync" | "fdatasync":
                return [Synced(node=node)]
            case "fchmod":
                return self._moded(call.handles[0])
            case "syncfs":
                return [Synced(node=None)]
            case "ftruncate":
                return [Resized(node=node, size=call.arguments[1])]
            case "fallocate":
                _, flags, offset, length, *_ = call.arguments
                size = os.stat(call.handles[0]).st_size
                zeros = b"\0" * max(0, min(length, size - offset))
                wrote = [Wrote(node=node, offset=offset, data=zeros)] if flags & _HOLES else []
                return [Resized(node=node, size=size), *wrote]
            case _:  # sync_file_range promises nothing of sizes and names: it makes nothing durable here
                return []

    def _opened(self, pid: int, call: Call, returned: int) -> Sequence[Change]:
        if not call.counts:
            return []
        handle = f"/proc/{pid}/fd/{returned}"
        if not call.existed:
            return self._made(os.readlink(handle), follow_to=handle)
        node = self._node(handle)
        return [] if node is None else [Resized(node=node, size=0)]

    def _made(self, handle: str, follow_to: str | None = None) -> Sequence[Change]:
        entry = self._entry(handle)
        if entry is None:
            return []
        node, _ = self._new(follow_to or handle, empty=True, follow=follow_to is not None)
        return [Named(changes=((*entry, node),))]

    def _moded(self, handle: str) -> Sequence[Change]:
        """A changed mode is no event: it counts from the start."""
        if (node := self._node(handle)) is not None:
            self._nodes[node] = evolve(self._nodes[node], mode=stat.S_IMODE(os.stat(handle).st_mode))
        return []

    def _changed(self, call: Call) -> Sequence[Change]:
        if call.name == "truncate":
            node = self._node(call.handles[0])
            return [] if node is None else [Resized(node=node, size=call.arguments[1])]
        if call.name == "chmod":
            return self._moded(call.handles[0])
        if call.name not in ("unlink", "rmdir"):
            return []
        entry = self._entry(call.handles[0])
        return [] if entry is None else [Named(changes=((*entry, None),))]

    def _linked(self, call: Call) -> Sequence[Change]:
        entry = self._entry(call.handles[1])
        return [] if entry is None else self._appeared(entry, call.handles[1])

    def _renamed(self, call: Call) -> Sequence[Change]:
        old, new = (self._entry(each) for each in call.handles)
        exchanged = len(call.shape.at) > 4 and bool(call.arguments[call.shape.at[4]] & _EXCHANGE)
        changes: list[Change] = []
        names: list[tuple[int, str, int | None]] = []
        if old is not None and not exchanged:
            names.append((*old, None))
        for entry, handle in (
            ((new, call.handles[1]), (old, call.handles[0])) if exchanged else ((new, call.handles[1]),)
        ):
            if entry is not None:
                *before, named = self._appeared(entry, handle)
                changes += before
                assert isinstance(named, Named)
                names += named.changes
        return [*changes, Named(changes=names)] if names else []

    def _appeared(self, entry: tuple[int, str], path: str) -> list[Change]:
        """A name for what may be new to us: then its content is as if it was written now."""
        node = self._node(path, follow=False)
        if node is not None:
            return [Named(changes=((*entry, node),))]
        node, found = self._new(path, empty=True)
        changes: list[Change] = []
        if stat.S_ISREG(found.st_mode):
            changes.append(Wrote(node=node, offset=0, data=Path(path).read_bytes()))
        elif stat.S_ISDIR(found.st_mode):
            for name in sorted(os.listdir(path)):
                changes += self._appeared((node, name), f"{path}/{name}")
        return [*changes, Named(changes=((*entry, node),))]


def _position(pid: int, handle: str) -> tuple[int, int]:
    """Of a descriptor: where it stands, and the flags that it was opened with."""
    lines = Path(handle.replace("/fd/", "/fdinfo/")).read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(found["pos"]), int(found["flags"], 8)


def _content(path: str, offset: int, length: int) -> bytes:
    with Path(path).open("rb") as file:
        file.seek(offset)
        return file.read(length)


def _vectors(pid: int, address: int, count: int, length: int) -> bytes:
    raw = _ptrace.read(pid, address, 16 * count)
    data = bytearray()
    for at in range(0, len(raw), 16):
        base, size = int.from_bytes(raw[at : at + 8], "little"), int.from_bytes(raw[at + 8 : at + 16], "little")
        if size and len(data) < length:
            data += _ptrace.read(pid, base, min(size, length - len(data)))
    return bytes(data)


def record(
    argv: Sequence[str],
    *,
    root: Path,
    cwd: Path,
    env: Mapping[str, str],
    stdout: Path,
    stderr: Path,
    kill: Kill | None = None,
    timeout_s: float,
) -> tuple[Traced, Recording]:
    """One run as `run` does it, and what it did below `root`. Where tracing is refused, nothing is recorded."""
    recorder = Recorder(root)
    traced = run(
        argv, cwd=cwd, env=env, stdout=stdout, stderr=stderr, kill=kill, timeout_s=timeout_s, listener=recorder
    )
    return traced, recorder.recording()
