"""The Linux side of the sandbox: namespaces, a read-only host, no capabilities. `design/0007-sandbox.md` says why.

Straight system calls: `mount(8)` cannot make a whole tree read-only in one atomic step before util-linux 2.39.
"""

from __future__ import annotations

import ctypes
import os
import sys

TYPE_CHECKING = False  # importing typing or collections costs more than the sandbox itself
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ._order import Layout

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x0002_0000, 0x0400_0000, 0x0800_0000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x1000_0000, 0x2000_0000, 0x4000_0000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 4096, 16384, 1 << 18
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
SYS_MOUNT_SETATTR = 442
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38
CAPABILITY_VERSION_3 = 0x2008_0522
AF_INET, SOCK_DGRAM, SIOCSIFFLAGS, IFF_UP = 2, 2, 0x8914, 1

TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  private and writable inside
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def prctl(option: int, argument: int) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0), f"prctl {option}")


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    names = (source.encode("utf-8", "surrogateescape"), target.encode("utf-8", "surrogateescape"))
    _check(_libc.mount(*names, kind.encode(), ctypes.c_ulong(flags), data.encode()), f"mount {kind} on {target}")


def _set_attributes(path: str, *, add: int = 0, clear: int = 0, recursive: bool = False) -> None:
    attributes = (ctypes.c_uint64 * 4)(add, clear, 0, 0)
    flags = AT_RECURSIVE if recursive else 0
    name = path.encode("utf-8", "surrogateescape")
    arguments = (SYS_MOUNT_SETATTR, AT_FDCWD, name, flags, ctypes.byref(attributes), ctypes.c_size_t(32))
    _check(_libc.syscall(*arguments), f"mount_setattr {path}")


def unshare() -> None:
    """New namespaces for this process and (PID) its next children; a user namespace only where the rest is refused.

    Raises `OSError` where the kernel or a policy refuses.
    """
    wanted = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWPID
    if _libc.unshare(wanted) == 0:
        return
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(wanted | CLONE_NEWUSER), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def furnish(layout: Layout) -> None:
    """Makes the view of the first process of the new PID namespace: run there, before the command is started.

    What must stay reachable is opened first, then everything is made read-only and device-free, then the private
    directories cover what they must, and the opened parts are bound back on top.
    """
    workspace = os.open(layout["workspace"], os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    shown = [(path, os.open(path, os.O_PATH)) for path in layout["shown"] if os.path.exists(path)]
    devices = [(f"/dev/{name}", os.open(f"/dev/{name}", os.O_PATH)) for name in DEVICES]
    _mount("", "/", "", MS_REC | MS_PRIVATE)
    _set_attributes("/", add=ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, recursive=True)
    # Without capabilities root could still write /proc/sys by owning it: the fresh /proc is read-only as a whole.
    _mount("proc", "/proc", "proc", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _cover(("/dev",))
    _furnish_devices(devices)
    private = ["/dev", *_cover(layout["private"])]
    _cover(TEMPORARY, mode="1777")
    for path, opened in shown:
        if not os.path.exists(path):
            _bind(opened, path)
    private += _cover(layout["hidden"])
    _bind(workspace, layout["place"])
    os.makedirs(layout["home"], exist_ok=True)
    for path in private:
        _set_attributes(path, add=ATTR_RDONLY)
    _set_attributes(layout["place"], clear=ATTR_RDONLY)


def _cover(paths: Sequence[str], *, mode: str = "755") -> list[str]:
    """An empty directory in memory over each of `paths` that is a directory here; those covered."""
    covered = [path for path in paths if os.path.isdir(path) and os.path.realpath(path) == path]
    for path in covered:
        _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, f"mode={mode}")
    return covered


def _bind(opened: int, path: str) -> None:
    os.makedirs(path, exist_ok=True)
    _mount(f"/proc/self/fd/{opened}", path, "", MS_BIND | MS_REC)
    os.close(opened)


def _furnish_devices(devices: Iterable[tuple[str, int]]) -> None:
    for path, opened in devices:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        _mount(f"/proc/self/fd/{opened}", path, "", MS_BIND)
        _set_attributes(path, clear=ATTR_NODEV)
        os.close(opened)
    os.mkdir("/dev/shm")  # noqa: S108
    os.mkdir("/dev/pts")
    _mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for name, target in links.items():
        os.symlink(target, f"/dev/{name}")


def raise_loopback() -> None:
    """The new network namespace has nothing but `lo`: up, so that a test can talk to its own server."""
    control = _libc.socket(AF_INET, SOCK_DGRAM, 0)
    _check(control, "socket")
    request = b"lo".ljust(16, b"\0") + IFF_UP.to_bytes(2, sys.byteorder) + bytes(22)
    _check(_libc.ioctl(control, ctypes.c_ulong(SIOCSIFFLAGS), request), "loopback up")
    os.close(control)


def drop_privileges() -> None:
    """No capability now, none to be had from any program started later (an empty bounding set, no new privileges)."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    with open("/proc/sys/kernel/cap_last_cap") as file:
        last = int(file.read())
    for capability in range(last + 1):
        prctl(PR_CAPBSET_DROP, capability)
    header, nothing = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    _check(_libc.capset(header, nothing), "capset")
