"""The kernel's `ptrace` and `seccomp` as far as the tracer needs them, by ctypes: no compiler and no `strace`.

Linux only; the constants are those of the kernel's headers, equal on every architecture that is named in `_calls.py`.
"""

import ctypes
import os
import signal
import struct
import sys
import threading
import warnings

from attrs import frozen

from ._calls import FILTER

_CONT, _SYSCALL, _GETEVENTMSG, _SEIZE, _LISTEN, _GET_SYSCALL_INFO = 7, 24, 0x4201, 0x4206, 0x4208, 0x420E
EVENT_EXEC, EVENT_SECCOMP, EVENT_STOP = 4, 7, 128
"""Of a stop: `status >> 16`."""
SYSCALL_STOP = signal.SIGTRAP | 0x80
# fork, vfork, clone, exec, seccomp, a mark on system call stops, and: whoever is traced dies with its tracer
_OPTIONS = 0x2 | 0x4 | 0x8 | 0x10 | 0x80 | 0x1 | 0x100000
_EXIT_OP, _SECCOMP_OP = 2, 3
_WALL, _WNOTHREAD = 0x40000000, 0x20000000
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_INFO = struct.Struct("B3xIQQ")  # op, arch, instruction and stack pointers; then the union
_ENTERED, _LEFT = struct.Struct("7Q"), struct.Struct("qB")
_PAGE = 4096
_FORKING = threading.Lock()


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


# Made before any fork: the child between fork and exec only calls.
_CODE = ctypes.create_string_buffer(FILTER, len(FILTER))
_PROGRAM = _Program(len(FILTER) // 8, ctypes.addressof(_CODE))


def _bound() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "linux":
        libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        libc.ptrace.restype = ctypes.c_long
        libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
        vectors = [ctypes.POINTER(_Vector), ctypes.c_ulong] * 2
        libc.process_vm_readv.argtypes = [ctypes.c_int, *vectors, ctypes.c_ulong]
        libc.process_vm_readv.restype = ctypes.c_ssize_t
    return libc


_LIBC = _bound()


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> None:
    _checked(_LIBC.ptrace(request, pid, address, data))


# -- the tracer ---------------------------------------------------------------------------------------------------------


def fork() -> int:
    """As `os.fork`; the caller's threads are known: its child only calls the kernel, then `exec`."""
    with _FORKING, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of forks where there are threads
        return os.fork()


def seize(pid: int) -> None:
    """Makes this thread the tracer of `pid` and of all that it will start. Raises `OSError`."""
    _ptrace(_SEIZE, pid, 0, _OPTIONS)


def go_on(pid: int, *, signal: int = 0, to_exit: bool = False) -> None:
    """Ends a stop; `to_exit` stops again where the present system call ends. One that was killed meanwhile is fine."""
    _resume(_SYSCALL if to_exit else _CONT, pid, signal)


def stay_stopped(pid: int) -> None:
    """Leaves a process that was stopped by a signal stopped, and hears of it when it goes on."""
    _resume(_LISTEN, pid, 0)


def _resume(request: int, pid: int, data: int) -> None:
    try:
        _ptrace(request, pid, 0, data)
    except ProcessLookupError:
        return


def wait(*, hang: bool = True) -> tuple[int, int]:
    """The next change of a process that *this thread* traces or forked: its id and `waitpid`'s status; (0, 0) where
    there is none yet. Raises `ChildProcessError` where no process is left.
    """
    return os.waitpid(-1, _WALL | _WNOTHREAD | (0 if hang else os.WNOHANG))


def message(pid: int) -> int:
    """What the kernel says of an event stop: of an exec, the former id of the thread that made it."""
    found = ctypes.c_ulong()
    _ptrace(_GETEVENTMSG, pid, 0, ctypes.addressof(found))
    return found.value


@frozen
class Entered:
    """A system call that is about to happen."""

    number: int
    arguments: tuple[int, ...]


def call_at(pid: int) -> Entered | int | None:
    """At a seccomp stop the call; at an exit stop what it returned (an error as its negative number); else `None`."""
    raw = ctypes.create_string_buffer(128)
    _ptrace(_GET_SYSCALL_INFO, pid, 128, ctypes.addressof(raw))
    op = _INFO.unpack_from(raw)[0]
    if op == _SECCOMP_OP:
        number, *arguments = _ENTERED.unpack_from(raw, _INFO.size)
        return Entered(number, tuple(arguments))
    if op == _EXIT_OP:
        returned: int = _LEFT.unpack_from(raw, _INFO.size)[0]
        return returned
    return None


def read(pid: int, address: int, length: int) -> bytes:
    """Bytes of another process's memory. Raises `OSError`."""
    buffer = ctypes.create_string_buffer(length)
    done = 0
    while done < length:
        local = _Vector(ctypes.addressof(buffer) + done, length - done)
        remote = _Vector(address + done, length - done)
        got = _checked(_LIBC.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0))
        if not got:
            break
        done += got
    return buffer.raw[:done]


def read_text(pid: int, address: int) -> bytes:
    """Bytes up to a zero, page by page: what follows may not be mapped. Raises `OSError`."""
    found = b""
    while len(found) < _PAGE:
        part = read(pid, address + len(found), _PAGE - (address + len(found)) % _PAGE)
        head, zero, _ = part.partition(b"\0")
        found += head
        if zero:
            break
    return found


# -- the traced ---------------------------------------------------------------------------------------------------------


def die_with_parent() -> None:
    """This process is killed when the thread that forked it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def trace_me(gate: int) -> None:
    """In a forked child: waits at the descriptor `gate` until its parent traces it (`follow`), then has every system
    call that lasts stop there. Calls the kernel only. Ends the process where the parent is gone. Raises `OSError`.

    The child can no longer gain privileges by an exec: the kernel asks for that before it takes a filter.
    """
    if os.read(gate, 1) == b"":
        os._exit(1)
    os.close(gate)
    _checked(_LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(_LIBC.prctl(_PR_SET_SECCOMP, 2, ctypes.addressof(_PROGRAM), 0, 0))
