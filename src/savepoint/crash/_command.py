"""A target made of two command lines: anyone's program, and the file that its own outside writes."""

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field

from savepoint._errors import Usage
from savepoint.testing import ENVIRONMENT

from . import _trace
from ._given import Given, beginning, last_line
from ._judge import Ran, Saw, judge, needs_no_more, parked, reject
from ._kill import CALL, TIME, Kill
from ._ledger import LedgerFault, read_ledger, rewriting
from ._scratch import MARK
from ._target import Life
from ._verdict import Verdict, Violation
from ._words import anchored, named_files


@define(kw_only=True)
class CommandTarget(Given):
    """A program that `start` starts and `resume` starts again, until it exits with 0 or with the parked code.

    Each run has a fresh directory, which is its working directory; words that name files of `here` are absolute there.
    Raises `Usage` where the words cannot be meant.
    """

    start: Sequence[str]
    resume: Sequence[str]
    """`start` again where it is empty"""
    environment: Mapping[str, str] = field(factory=lambda: dict(os.environ))
    _start: Sequence[str] = field(default=(), init=False)
    _resume: Sequence[str] = field(default=(), init=False)
    _outer: dict[Path, tuple[int, int] | None] = field(factory=dict[Path, tuple[int, int] | None], init=False)
    """files outside of the runs' directories that the words name, and what they were before"""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._start = anchored(self.start, self.here, own=self.own)
        self._resume = anchored(self.resume or self.start, self.here, own=self.own)
        for words in (self._start, self._resume):
            if shutil.which(words[0], path=self.environment.get("PATH")) is None:
                raise Usage(f"there is no program {words[0]}", next="give its path, or put it on PATH")
        self._outer.update({path: _stamp(path) for path in named_files([*self._start[1:], *self._resume[1:]])})

    @property
    def name(self) -> str:
        return shlex.join(self.start)

    @property
    def command(self) -> str:
        """The command line that tries this target: `savepoint crash --start ...`, all that is not as ever included."""
        words = ["savepoint", "crash", "--start", shlex.join(self.start)]
        words += ["--resume", shlex.join(self.resume)] if self.resume else []
        return shlex.join([*words, *self.words])

    @property
    def variants(self) -> Sequence[Mapping[str, Any]]:
        """Twice the same: two unkilled runs that differ say that the program is not deterministic."""
        return ({}, {})

    def live(self, place: Path, past: Sequence[Life], kill: Kill | None, setting: Mapping[str, Any]) -> Life:
        work, out = place / "work", place / "out"
        if not past:
            self._prepare(place)
        named = kill if kill is not None and kill.at not in (CALL, TIME) else None
        stdout, stderr = out / f"{len(past)}.stdout", out / f"{len(past)}.stderr"
        traced = _trace.run(
            self._resume if past else self._start,
            cwd=work,
            env=self._told(place, named),
            stdout=stdout,
            stderr=stderr,
            kill=None if named else kill,
            timeout_s=self.timeout_s,
        )
        ledger, fault = self._ledger(place)
        before = past[-1].seen["ran"].ledger if past else b""
        ran = Ran(
            code=traced.code,
            signal=traced.signal,
            killed=traced.killed or (named is not None and traced.signal == _SIGKILL),
            timed_out=traced.timed_out,
            ledger=ledger,
            ledger_fault=fault,
            rewrote=rewriting(_made(traced, kill), os.path.normpath(self.ledger), empty=not before),
            printed=beginning(stdout),
            children=tuple(traced.children),
            last_words=last_line(stderr).replace(os.fspath(work), "."),
        )
        processes = [*(each.seen["ran"] for each in past), ran]
        return Life(
            killed=ran.killed,
            done=needs_no_more(processes, self.rules),
            arrivals=() if ran.killed else tuple(traced.arrivals),
            seen={"ran": ran, "parked": parked(processes, self.rules), "where": _where(kill, traced.calls)},
        )

    def history(self, place: Path, lives: Sequence[Life]) -> Saw:
        return Saw(
            processes=tuple(each.seen["ran"] for each in lives),
            compared=self.compared(place / "work"),
        )

    def reject(self, references: Sequence[Saw]) -> list[Violation]:
        """Why nothing can be shown of this program."""
        return self._changed_outside() or reject(references, self.rules)

    def judge(self, history: Saw, references: Sequence[Saw]) -> list[Violation]:
        return judge(history, references[0], self.rules)

    # -- the run's directory ------------------------------------------------------------------------------------------

    def _prepare(self, place: Path) -> None:
        for name in ("work", "out", "tmp", "home"):
            (place / name).mkdir(mode=0o700)
        self.copy_into(place / "work")

    def _told(self, place: Path, named: Kill | None) -> dict[str, str]:
        """The environment of its processes: the caller's, with all that is temporary inside the run's directory."""
        tmp, home = os.fspath(place / "tmp"), os.fspath(place / "home")
        told = {
            **self.environment,
            **dict.fromkeys(("TMPDIR", "TMP", "TEMP", "XDG_RUNTIME_DIR"), tmp),
            **dict.fromkeys(("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"), home),
            # Or the first run writes files that no later one does, and its calls are not theirs.
            "PYTHONDONTWRITEBYTECODE": "1",
            MARK: os.fspath(place),
            "PWD": os.fspath(place / "work"),
        }
        if "-m" in self.start or "-m" in self.resume:
            told["PYTHONPATH"] = os.pathsep.join(filter(None, [os.fspath(self.here), told.get("PYTHONPATH", "")]))
        told.pop(ENVIRONMENT, None)
        return told if named is None else {**told, ENVIRONMENT: f"{named.at}:{named.nth}"}

    def _ledger(self, place: Path) -> tuple[bytes, str]:
        """Its content, without the path of the run's directory, which differs between runs; or why there is none."""
        try:
            content = read_ledger(place / "work" / self.ledger)
        except LedgerFault as fault:
            return b"", str(fault)
        return content.replace(os.fsencode(place / "work"), b"{here}"), ""

    def _changed_outside(self) -> list[Violation]:
        changed = [os.fspath(path) for path, stamp in self._outer.items() if _stamp(path) != stamp]
        what = f"it changed {', '.join(changed)}, which its command names and all its runs share"
        return [Violation(Verdict.LEAK, what)] if changed else []


_SIGKILL = 9


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _where(kill: Kill | None, calls: Sequence[str]) -> str:
    """The call that a process died at, in words; nothing where it died elsewhere, or the call is not known."""
    if kill is None or kill.at != CALL or not 0 < kill.nth <= len(calls):
        return ""
    return f"{'after' if kill.after else 'before'} {calls[kill.nth - 1]}"


def _made(traced: _trace.Traced, kill: Kill | None) -> Sequence[str]:
    """Its calls, without the one that it died before."""
    before = traced.killed and kill is not None and kill.at == CALL and not kill.after
    return traced.calls[:-1] if before else traced.calls
