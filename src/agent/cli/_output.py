"""Where words go: results to stdout, messages to stderr; with `--json`, stdout is JSON alone, one object a line."""

import json
import os
import re
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from io import StringIO, TextIOWrapper
from pathlib import Path
from typing import TextIO

from attrs import field, frozen
from rich.console import Console
from rich.table import Table

from agent._render import _plain as plain_of
from savepoint._errors import SavepointError

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(value: object) -> object:
    """Any portable value as JSON types."""
    return plain_of(value)


def printable(text: str) -> str:
    """`text` without characters that would steer a terminal: what a model or a tool said is shown, not obeyed."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str, width: int) -> str:
    """At most `width` characters of `text` on one line."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= width else f"{flat[: max(0, width - 1)]}…"


def size(count: int) -> str:
    """Bytes for people: 812 B, 3.4 kB, 12 MB; in steps of 1000."""
    if count < _STEP:
        return f"{count} B"
    amount, unit = count / _STEP, "kB"
    for larger in ("MB", "GB", "TB"):
        if amount < _STEP:
            break
        amount, unit = amount / _STEP, larger
    return f"{amount:.1f} {unit}" if amount < _TEN else f"{amount:.0f} {unit}"


_STEP, _TEN = 1000, 10


@frozen(kw_only=True)
class Output:
    """One command's voice. A reader that goes away (`| head`) never disturbs the run."""

    json: bool = False
    debug: bool = False
    out: TextIO = field(factory=lambda: sys.stdout)
    err: TextIO = field(factory=lambda: sys.stderr)

    def emit(self, document: Mapping[str, object]) -> None:
        """One JSON object on stdout. ASCII, so that any reader of any locale can take it."""
        _write(self.out, json.dumps(document))

    def result(self, text: str) -> None:
        """Text on stdout, as it is; control characters are escaped on a terminal."""
        _write(self.out, printable(text) if self.out.isatty() else text)

    def note(self, text: str) -> None:
        """A message to people."""
        _write(self.err, printable(text))

    def table(self, table: Table) -> None:
        """On stdout, its cells printable already. Not on a terminal: as wide as it gets, so that no cell is broken."""
        terminal, drawn = self.out.isatty(), StringIO()
        console = Console(file=drawn, highlight=False, force_terminal=terminal, width=None if terminal else 1000)
        console.print(table)
        _write(self.out, drawn.getvalue().removesuffix("\n"))

    def fail(self, code: str, message: str, move: str) -> None:
        """An error: one line on stderr, with `--json` an object on stdout too."""
        if self.json:
            self.emit({"error": {"code": code, "message": message, "next": move}})
        self.note(" ".join(f"savepoint: {message}{f' (next: {move})' if move else ''}".split()))


def _write(stream: TextIO, line: str) -> None:
    # Closed or full: what a run does outside must not depend on who reads along.
    with suppress(OSError, ValueError):
        stream.write(f"{line}\n")
        stream.flush()


def error_parts(error: SavepointError) -> tuple[str, str, str]:
    return error.code, error.message, error.next


@contextmanager
def streams(*, json_only: bool) -> Generator[tuple[TextIO, TextIO]]:
    """Standard output and error for `Output`.

    With `json_only`, what anything else writes to descriptor 1 (a tool, a process that it starts) goes to stderr: its
    lines would not be JSON.
    """
    _open_standard_descriptors()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    err = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  for the life of the process
    if not json_only:
        try:
            yield sys.stdout or err, err
        finally:
            _let_go(sys.stdout)
        return
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        yield out, err
    finally:
        os.dup2(out.fileno(), 1)
        # Closed or full: its last lines are lost, the exit code is not.
        with suppress(OSError, ValueError):
            out.close()


def _let_go(stdout: TextIO | None) -> None:
    """What a reader that went away did not take is dropped: the interpreter would fail at it again on its way out."""
    if stdout is None or stdout.closed:
        return
    try:
        stdout.flush()
    except OSError:
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), stdout.fileno())


def _open_standard_descriptors() -> None:
    """A closed stdin, stdout or stderr would be the number of the next file opened, such as the store's."""
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(handle)
