"""Where words go: results to stdout, messages to stderr; with `--json`, stdout is JSON alone, one object a line."""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TextIO, cast

from attrs import field, frozen

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
def streams(*, json_only: bool) -> Iterator[tuple[TextIO, TextIO]]:
    """stdout and stderr for `Output`. With `json_only`, whatever else writes to stdout (a tool, its children) goes to
    stderr instead: its lines would not be JSON.
    """
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")
    if not json_only:
        yield sys.stdout, sys.stderr
        return
    out = sys.stdout
    sys.stdout = cast("TextIO", sys.stderr)
    try:
        yield out, sys.stderr
    finally:
        sys.stdout = out
