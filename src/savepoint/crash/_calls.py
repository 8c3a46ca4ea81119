"""The system calls that may last: their numbers, how their arguments lie, and the filter that stops only at them.

What can be told from the filter's few registers is told there, so that a program that only reads runs at full speed.
"""

import errno
import os
import platform
import struct
from enum import Enum, auto

from attrs import frozen


class Kind(Enum):
    """How a call's arguments lie."""

    WRITE = auto()
    """argument 0 is the descriptor that is written to"""
    COPY = auto()
    """argument `at[0]` is the descriptor that is written to"""
    FILE = auto()
    """argument 0 is the descriptor of a file (or directory) that is changed or synced"""
    OPEN = auto()
    """`at`: directory or -1, path, flags or -1 (`creat`)"""
    OPEN2 = auto()
    """the same, the flags in memory"""
    MAKE = auto()
    """`at`: directory or -1, path of what must not be there yet"""
    CHANGE = auto()
    """`at`: directory or -1, path of what must be there"""
    PAIR = auto()
    """`at`: two pairs as in `CHANGE`, the old and the new name; of a rename that has flags, where they are"""
    LINK_TEXT = auto()
    """`at`: a text, directory or -1, path of what must not be there yet"""
    SEND = auto()
    """argument 0 is a socket"""
    SOCKET = auto()
    """makes a socket: does not last, but tells of which kind it is"""
    SOCKETS = auto()
    """makes two that are connected to each other"""
    ALL = auto()
    """changes or syncs what no argument names"""


@frozen
class Shape:
    """One system call."""

    name: str
    """for people: without the `at` and the number of its variant"""
    kind: Kind
    at: tuple[int, ...] = ()


_W, _F, _S = Kind.WRITE, Kind.FILE, Kind.SEND
_SHAPES: dict[tuple[int | None, int | None], Shape] = {  # number on x86-64, on arm64
    (1, 64): Shape("write", _W),
    (18, 68): Shape("pwrite", _W),
    (20, 66): Shape("writev", _W),
    (296, 70): Shape("pwritev", _W),
    (328, 287): Shape("pwritev2", _W),
    (40, 71): Shape("sendfile", Kind.COPY, (0,)),
    (326, 285): Shape("copy_file_range", Kind.COPY, (2,)),
    (275, 76): Shape("splice", Kind.COPY, (2,)),
    (77, 46): Shape("ftruncate", _F),
    (285, 47): Shape("fallocate", _F),
    (74, 82): Shape("fsync", _F),
    (75, 83): Shape("fdatasync", _F),
    (277, 84): Shape("sync_file_range", _F),
    (306, 267): Shape("syncfs", _F),
    (91, 52): Shape("fchmod", _F),
    (93, 55): Shape("fchown", _F),
    (162, 81): Shape("sync", Kind.ALL),
    (26, 227): Shape("msync", Kind.ALL),
    (2, None): Shape("open", Kind.OPEN, (-1, 0, 1)),
    (85, None): Shape("open", Kind.OPEN, (-1, 0, -1)),
    (257, 56): Shape("open", Kind.OPEN, (0, 1, 2)),
    (437, 437): Shape("open", Kind.OPEN2, (0, 1, 2)),
    (76, 45): Shape("truncate", Kind.CHANGE, (-1, 0)),
    (90, None): Shape("chmod", Kind.CHANGE, (-1, 0)),
    (268, 53): Shape("chmod", Kind.CHANGE, (0, 1)),
    (452, 452): Shape("chmod", Kind.CHANGE, (0, 1)),
    (92, None): Shape("chown", Kind.CHANGE, (-1, 0)),
    (94, None): Shape("chown", Kind.CHANGE, (-1, 0)),
    (260, 54): Shape("chown", Kind.CHANGE, (0, 1)),
    (87, None): Shape("unlink", Kind.CHANGE, (-1, 0)),
    (263, 35): Shape("unlink", Kind.CHANGE, (0, 1)),
    (84, None): Shape("rmdir", Kind.CHANGE, (-1, 0)),
    (83, None): Shape("mkdir", Kind.MAKE, (-1, 0)),
    (258, 34): Shape("mkdir", Kind.MAKE, (0, 1)),
    (133, None): Shape("mknod", Kind.MAKE, (-1, 0)),
    (259, 33): Shape("mknod", Kind.MAKE, (0, 1)),
    (82, None): Shape("rename", Kind.PAIR, (-1, 0, -1, 1)),
    (264, 38): Shape("rename", Kind.PAIR, (0, 1, 2, 3)),
    (316, 276): Shape("rename", Kind.PAIR, (0, 1, 2, 3, 4)),
    (86, None): Shape("link", Kind.PAIR, (-1, 0, -1, 1)),
    (265, 37): Shape("link", Kind.PAIR, (0, 1, 2, 3)),
    (88, None): Shape("symlink", Kind.LINK_TEXT, (0, -1, 1)),
    (266, 36): Shape("symlink", Kind.LINK_TEXT, (0, 1, 2)),
    (41, 198): Shape("socket", Kind.SOCKET),
    (53, 199): Shape("socketpair", Kind.SOCKETS),
    (42, 203): Shape("connect", _S),
    (44, 206): Shape("sendto", _S),
    (46, 211): Shape("sendmsg", _S),
    (307, 269): Shape("sendmmsg", _S),
}
_URING = 425
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, the kernel's AUDIT_ARCH

MACHINE: str = platform.machine()
_column, _arch = _MACHINES.get(MACHINE, (0, 0))
SUPPORTED = MACHINE in _MACHINES
SHAPES: dict[int, Shape] = {
    number: shape for numbers, shape in _SHAPES.items() if (number := numbers[_column]) is not None
}
"""By number, on this machine."""

UNLINK_DIRECTORY = 0x200
"""`unlinkat`'s flag that makes it `rmdir`"""
MAKES, CUTS, WRITES = os.O_CREAT, os.O_TRUNC, os.O_WRONLY | os.O_RDWR

# -- the filter (classic BPF; see the kernel's Documentation/userspace-api/seccomp_filter.rst) --------------------------

_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _STOP, _NO_SUCH_CALL = 0x7FFF0000, 0x7FF00000, 0x00050000 | errno.ENOSYS
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16


def _instruction(code: int, if_true: int, if_false: int, operand: int) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, operand)


def _filter() -> bytes:
    """Stops at the calls above; of opens only at those that may make or cut a file. Other architectures' calls pass.

    `io_uring` is answered as if the kernel had none: what goes through it would not be seen.
    """
    opens = {number: each.at[2] for number, each in SHAPES.items() if each.kind is Kind.OPEN and each.at[2] >= 0}
    plain = [number for number in SHAPES if number not in opens]
    # The tail: one pair of instructions for each open, then allow, stop, refuse.
    allow = 2 * len(opens)
    head = [*opens, *plain, _URING]
    body = [
        _instruction(_LOAD, 0, 0, _ARCH_AT),
        _instruction(_EQUAL, 0, len(head) + 1, _arch),
        _instruction(_LOAD, 0, 0, _NUMBER_AT),
    ]
    for index, number in enumerate(head):
        left = len(head) - 1 - index + 1  # to the first of the tail, past the jump below
        target = 2 * index if number in opens else allow + (2 if number == _URING else 1)
        body.append(_instruction(_EQUAL, left + target, 0, number))
    body.append(_instruction(_RETURN, 0, 0, _ALLOW))
    for index, position in enumerate(opens.values()):
        rest = allow - 2 * index - 2
        body.append(_instruction(_LOAD, 0, 0, _ARGUMENTS_AT + 8 * position))
        body.append(_instruction(_ANY_BIT, rest + 1, rest, MAKES | CUTS))
    body += [_instruction(_RETURN, 0, 0, each) for each in (_ALLOW, _STOP, _NO_SUCH_CALL)]
    return b"".join(body)


FILTER = _filter()
