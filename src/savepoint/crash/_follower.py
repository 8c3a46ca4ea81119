"""Follows one traced program, stop by stop, to its end."""

import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import define, field, frozen

from . import _ptrace
from ._calls import Kind
from ._ends import command
from ._kill import CALL, TIME, Kill
from ._lasting import Call, Reader

GRACE_S = 0.25
"""How long a process may outlive the main one before it counts as left behind"""
_LOOK_S = 0.005
_STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


@frozen(kw_only=True)
class Traced:
    """What was seen of one run of a program."""

    code: int | None
    """its exit code; `None` where it ended by a signal or was killed"""
    signal: int | None
    """the signal that ended it, of its own"""
    killed: bool
    """it died at `kill`"""
    timed_out: bool
    arrivals: Sequence[Kill]
    """where it could have died, in order: before and after each call that lasts"""
    calls: Sequence[str]
    """the n-th call as text for people, paths relative to the working directory where they are below it"""
    children: Sequence[str]
    """command lines of processes that outlived the main one; they were killed then"""


Listener = Callable[[int, int, Call, int], None]
"""Hears of each system call that ended well: process, how many calls lasted so far (its own included), the call, what it
returned. Called while the process is stopped."""


@define(kw_only=True)
class Follower:
    """Follows one traced program to its end, in the thread that forked it.

    That thread may have no other children: the kernel tells of all its children at once.
    """

    pid: int
    kill: Kill | None
    reader: Reader
    timeout_s: float
    listener: Listener | None = None
    _alive: set[int] = field(factory=set[int], init=False)
    _inside: dict[int, Call] = field(factory=dict[int, Call], init=False)
    """by thread: the call whose exit is waited for"""
    _numbers: dict[int, int] = field(factory=dict[int, int], init=False)
    """by thread: which call that lasts it is in"""
    _texts: list[str] = field(factory=list[str], init=False)
    _dying: bool = field(default=False, init=False)
    _killed: bool = field(default=False, init=False)
    _late: bool = field(default=False, init=False)
    _due: bool = field(default=False, init=False)
    _status: int | None = field(default=None, init=False)
    _handle: int = field(default=-1, init=False)
    _handling: threading.Lock = field(factory=threading.Lock, init=False)

    def follow(self, gate: int) -> Traced:
        """Traces it, lets it go on by closing and writing `gate` (the other end of `trace_me`'s), returns at its end.

        Raises `OSError` where it cannot be traced; it is dead then.
        """
        self._handle = os.pidfd_open(self.pid)
        try:
            self._seize(gate)
            with self._alarms():
                while self._status is None and self._step():
                    pass
            children = () if self._dying else self._left()
        finally:
            self._end()
            with self._handling:
                os.close(self._handle)
                self._handle = -1
        return self._traced(children)

    def _seize(self, gate: int) -> None:
        self._alive.add(self.pid)
        try:
            _ptrace.seize(self.pid)
            os.write(gate, b"!")
        finally:
            os.close(gate)

    @contextmanager
    def _alarms(self) -> Generator[None]:
        def late() -> None:
            self._late = True
            self.stop()

        def due() -> None:
            self._due = True
            self.stop()

        times = [threading.Timer(self.timeout_s, late)]
        if self.kill is not None and self.kill.at == TIME:
            times.append(threading.Timer(self.kill.nth / 1000, due))
        for each in times:
            each.daemon = True
            each.start()
        try:
            yield
        finally:
            for each in times:
                each.cancel()
            for each in times:
                each.join()

    def stop(self) -> None:
        """From any thread: kills the main process; that wakes the thread that follows it, which kills the rest."""
        self._dying = True
        with self._handling, suppress(ProcessLookupError):
            if self._handle >= 0:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    # -- one stop ---------------------------------------------------------------------------------------------------

    def _step(self, *, hang: bool = True) -> bool:
        """One change of one process; `False` where none is left, or none yet."""
        try:
            pid, status = _ptrace.wait(hang=hang)
        except ChildProcessError:
            return False
        if not pid:
            return False
        if not os.WIFSTOPPED(status):
            self._forget(pid)
            if pid == self.pid:
                self._status = status
            return True
        self._alive.add(pid)
        with suppress(ProcessLookupError):  # it was killed while it was stopped: its end is told of next
            self._stopped(pid, os.WSTOPSIG(status), status >> 16)
        return True

    def _forget(self, pid: int) -> None:
        self._alive.discard(pid)
        self._inside.pop(pid, None)
        self._numbers.pop(pid, None)

    def _stopped(self, pid: int, number: int, event: int) -> None:
        if self._dying:
            self._strike()
        elif event == _ptrace.EVENT_SECCOMP:
            self._entered(pid)
        elif event == _ptrace.EVENT_STOP and number in _STOPS:
            _ptrace.stay_stopped(pid)
        elif event == _ptrace.EVENT_EXEC:
            former = _ptrace.message(pid)  # a thread's exec takes the id of the process; its own is gone
            if former != pid:
                self._forget(former)
            _ptrace.go_on(pid)
        elif event:
            _ptrace.go_on(pid)
        elif number == _ptrace.SYSCALL_STOP:
            self._left_call(pid)
        else:
            _ptrace.go_on(pid, signal=number)

    def _entered(self, pid: int) -> None:
        found = _ptrace.call_at(pid)
        if not isinstance(found, _ptrace.Entered):
            return _ptrace.go_on(pid)
        try:
            call = self.reader.call(pid, found)
        except OSError:  # a bad address, or it is gone: the kernel will say the same to it
            return _ptrace.go_on(pid)
        here = None
        if call.counts and self._status is None:
            self._texts.append(call.text)
            here = Kill(CALL, len(self._texts))
            if self.kill == here:
                # A call whose process is killed at this stop never happens: the kernel looks for a fatal signal
                # between its filter's stop and the call (`__seccomp_filter`).
                self._killed = True
                return self._strike()
        after = self.kill is not None and here is not None and self.kill == Kill(CALL, here.nth, after=True)
        if not after and self.listener is None and call.shape.kind not in (Kind.SOCKET, Kind.SOCKETS):
            return _ptrace.go_on(pid)
        self._inside[pid] = call
        self._numbers[pid] = len(self._texts) if here is not None else 0
        return _ptrace.go_on(pid, to_exit=True)

    def _left_call(self, pid: int) -> None:
        call, number, returned = self._inside.pop(pid, None), self._numbers.pop(pid, 0), _ptrace.call_at(pid)
        if call is None or not isinstance(returned, int):
            return _ptrace.go_on(pid)
        if self.listener is not None and returned >= 0:
            self.listener(pid, len(self._texts), call, returned)
        if number and self.kill == Kill(CALL, number, after=True):
            self._killed = True
            return self._strike()
        if call.shape.kind in (Kind.SOCKET, Kind.SOCKETS):
            with suppress(OSError):
                self.reader.made_sockets(pid, call, returned)
        return _ptrace.go_on(pid)

    # -- the end ----------------------------------------------------------------------------------------------------

    def _strike(self) -> None:
        """Kills everything that is known; what is not yet known is met at its first stop."""
        self._dying = True
        for pid in self._alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _left(self) -> list[str]:
        """The command lines of those that live on after the main process, once they had time to end."""
        passed = threading.Event()
        for _ in range(int(GRACE_S / _LOOK_S)):
            while self._step(hang=False):
                pass
            if not self._alive:
                return []
            passed.wait(_LOOK_S)
        return [line for group in sorted({_group(pid) for pid in self._alive}) if (line := command(group))]

    def _end(self) -> None:
        """All are dead and reaped when this returns, also where it could not be traced."""
        self._strike()
        while self._step():
            pass

    def _traced(self, children: Sequence[str]) -> Traced:
        status = 0 if self._status is None else self._status
        struck = os.WIFSIGNALED(status)  # else it ended by itself just before the alarm
        killed, timed_out = self._killed or (struck and self._due), struck and self._late
        own = not (killed or timed_out)
        return Traced(
            code=os.WEXITSTATUS(status) if own and os.WIFEXITED(status) else None,
            signal=os.WTERMSIG(status) if own and os.WIFSIGNALED(status) else None,
            killed=killed,
            timed_out=timed_out and not killed,
            arrivals=[Kill(CALL, n, after) for n in range(1, len(self._texts) + 1) for after in (False, True)],
            calls=list(self._texts),
            children=children,
        )


def _group(pid: int) -> int:
    """The process that a thread belongs to."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("Tgid:"):
                return int(line.split()[1])
    return pid
