"""Runs one command to its end and takes everything that it started down with it.

The owner writes the order to our standard input and keeps that pipe open: its end of file means that the owner gave
up or died, and the command dies at once. Standard output carries one report: a line of numbers, then kept output.
"""

from __future__ import annotations

import gc
import marshal
import os
import select
import sys
import time

from . import _namespaces as ns
from ._output import Output

TYPE_CHECKING = False  # see _namespaces
if TYPE_CHECKING:
    import signal
    from typing import NoReturn

    from ._order import Layout, Order
else:
    import _signal as signal  # the same without its enums, which take as long to load as the rest of this program

LINUX = sys.platform == "linux"
GIVE_UP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # to us: as if the owner had closed its pipe
DEATH_S = 5.0  # how long a killed process may take to go (it can hang in the kernel) before we stop waiting


def main() -> None:
    try:
        order: Order = marshal.load(sys.stdin.buffer)  # noqa: S302  written by our owner, same interpreter
    except EOFError:  # the owner died before it had told us anything
        return
    gc.disable()
    try:
        command = _Command(order)
    except OSError as error:
        _report(127, False, Output(0), str(error).encode("utf-8", "replace"))
        return
    code, timed_out = command.watch()
    command.drain()
    _report(code, timed_out, command.output, command.error())


def _report(code: int, timed_out: bool, output: Output, error: bytes) -> None:
    head, tail, dropped = output.kept()
    numbers = (code, int(timed_out), len(head), len(tail), dropped, len(error))
    try:
        sys.stdout.buffer.write(" ".join(map(str, numbers)).encode() + b"\n" + head + tail + error)
        sys.stdout.buffer.flush()
    except BrokenPipeError:  # the owner died: nobody wants the report
        pass
    os._exit(0)  # nothing to tidy up: saves the interpreter's own farewell


class _Command:
    """The running command, seen from outside of its sandbox."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        for number in (signal.SIGCHLD, *GIVE_UP):
            signal.signal(number, _ignore)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._out, out = os.pipe()
        self._errors, errors = os.pipe()
        self.output = Output(order["limit"])
        self._code: int | None = None
        self._pid = _start(order, out, errors)
        os.close(out)
        os.close(errors)
        os.set_blocking(self._out, False)

    def watch(self) -> tuple[int, bool]:
        """Exit code (128 + n for signal n) and whether the time was up; returns when the command has ended."""
        deadline, timed_out = time.monotonic() + self._order["timeout_s"], False
        waiting = [0, self._wake, self._out]
        while self._code is None:
            left = deadline - time.monotonic()
            if left <= 0:
                if timed_out:
                    break
                timed_out, deadline = True, time.monotonic() + self._order["grace_s"]
                self._ask()
                continue
            ready = select.select(waiting, (), (), left)[0]
            if 0 in ready and not os.read(0, 1):
                break
            if self._out in ready and not self._pump():
                waiting.remove(self._out)
            if self._wake in ready:
                if any(number in GIVE_UP for number in os.read(self._wake, 512)):
                    break
                self._reap()
        self._kill()
        return (128 + signal.SIGKILL if self._code is None else self._code), timed_out

    def _pump(self) -> bool:
        """False at the end of the output."""
        try:
            data = os.read(self._out, 1 << 18)
        except BlockingIOError:
            return True
        self.output.add(data)
        return bool(data)

    def _reap(self) -> None:
        """Notes the command's end and collects orphans (we are their subreaper).

        The command itself stays a zombie, so that its process group's id cannot be given to anybody else before
        `_kill` has used it.
        """
        if not LINUX:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._code = _shell_code(os.waitstatus_to_exitcode(status))
            return
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid == self._pid:
                exited = ended.si_code == os.CLD_EXITED
                self._code = _shell_code(ended.si_status if exited else -ended.si_status)
                return
            os.waitpid(ended.si_pid, 0)

    def _ask(self) -> None:
        """The polite signal: to the sandbox's first process, which passes it to all, else to the group."""
        if self._order["layout"] is None:
            _signal_group(self._pid, signal.SIGTERM)
        else:
            os.kill(self._pid, signal.SIGTERM)

    def _kill(self) -> None:
        """Nothing that the command started is alive when this returns, unless the kernel holds it."""
        if self._order["layout"] is None:
            _signal_group(self._pid, signal.SIGKILL)
        elif self._code is None:
            os.kill(self._pid, signal.SIGKILL)  # the end of its first process ends the PID namespace
        pause, deadline = 0.0002, time.monotonic() + DEATH_S
        while self._bury() and time.monotonic() < deadline:
            for pid in _children():  # those that left the group (`setsid`, `timeout`) come to us as orphans
                _signal(pid, signal.SIGKILL)
            time.sleep(pause)  # noqa: TID251  there is no loop here
            pause = min(pause * 2, 0.02)

    def _bury(self) -> bool:
        """Collects the dead; false when no child is left."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._pid and self._code is None:
                    self._code = _shell_code(os.waitstatus_to_exitcode(ended[1]))
        except ChildProcessError:
            return False
        return True

    def drain(self) -> None:
        """What was still in the pipe is part of the output: written between our last look and the end.

        One pipe's worth: nobody writes any more.
        """
        for _ in range(64):
            if not self._readable() or not self._pump():
                return

    def _readable(self) -> bool:
        return bool(select.select([self._out], (), (), 0)[0])

    def error(self) -> bytes:
        """Why the command could not be started; empty if it was."""
        os.set_blocking(self._errors, False)
        try:
            return os.read(self._errors, 4096)
        except BlockingIOError:
            return b""


def _ignore(_signal: int, _frame: object) -> None:
    """A handler of our own: an ignored SIGCHLD would not wake us and would be inherited."""


def _shell_code(code: int) -> int:
    return code if code >= 0 else 128 - code


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):  # a set-user-ID program is out of our reach
        return


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
        return


def _children() -> list[int]:
    """Our children, orphans of the command included (we are their subreaper); elsewhere than on Linux: none known."""
    if not LINUX:
        return []
    own, found = str(os.getpid()).encode(), list[int]()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b") ")[2].split(maxsplit=2)[:2]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent == own and state != b"Z":
                found.append(int(name))
    return found


def _start(order: Order, out: int, errors: int) -> int:
    """Forks the command, or in a sandbox its PID namespace's first process."""
    layout = order["layout"]
    if layout is not None:
        ns.unshare()
    elif LINUX:
        ns.prctl(ns.PR_SET_CHILD_SUBREAPER, 1)
    pid = os.fork()
    if pid == 0:
        _guarded(order, out, errors, layout)
    return pid


def _guarded(order: Order, out: int, errors: int, layout: Layout | None) -> NoReturn:
    """The forked child: whatever goes wrong here must never run its parent's code."""
    try:
        signal.set_wakeup_fd(-1)
        if layout is None:
            _become(order, out)
        _first(layout, order, out, errors)
    except BaseException as error:  # noqa: BLE001
        os.write(errors, str(error).encode("utf-8", "replace"))
    finally:
        os._exit(127)


def _first(layout: Layout, order: Order, out: int, errors: int) -> NoReturn:
    """The first process of the sandbox: prepares it, starts the command, ends with it."""
    ns.prctl(ns.PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGTERM, _pass_on)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # the owner's pipes are not for the sandbox
        os.dup2(nothing, descriptor)
    ns.furnish(layout)
    ns.raise_loopback()
    ns.drop_privileges()
    command = os.fork()
    if command == 0:
        _guarded(order, out, errors, None)
    os.close(out)
    os.close(errors)
    while True:
        pid, status = os.wait()
        if pid == command:
            os._exit(_shell_code(os.waitstatus_to_exitcode(status)))


def _pass_on(_signal: int, _frame: object) -> None:
    os.kill(-1, signal.SIGTERM)  # all of this PID namespace but us


def _become(order: Order, out: int) -> NoReturn:
    """This process turns into the command: its own session and group, no input, its output to the pipe."""
    os.setsid()
    if LINUX:
        ns.prctl(ns.PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; programs expect to die of them
        signal.signal(number, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.chdir(order["cwd"])
    try:
        os.execvpe(order["argv"][0], order["argv"], order["env"])  # noqa: S606  our order
    except FileNotFoundError:
        raise FileNotFoundError(f"{order['argv'][0]}: no such program") from None
