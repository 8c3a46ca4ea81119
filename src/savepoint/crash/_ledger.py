"""Anyone's ledger: what a program's own outside wrote, one line an effect. Bytes in, lines or a fault out."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from attrs import frozen

_TAKES_BACK = frozenset({"open", "truncate", "ftruncate", "unlink", "rename"})
"""Of a file that is there: `open` only counts as a call that lasts where it empties it."""
_ADDS = frozenset(
    {"write", "writev", "pwrite", "pwritev", "pwritev2", "sendfile", "splice", "copy_file_range", "rename"}
)
_SHOWN = 120
"""Characters of a line that are shown."""


@frozen(kw_only=True)
class Ledger:
    """What one ledger says."""

    lines: Counter[str]
    """each line, and how often; in no order, for concurrent effects have none"""
    torn: str = ""
    """the last line, where nothing ends it; it is among `lines` too"""


class LedgerFault(ValueError):
    """The ledger is none: in words."""


def read_ledger(path: Path) -> bytes:
    """What lies there; of a file that is not there, nothing. Raises `LedgerFault`."""
    if not path.exists():
        return b""
    if not path.is_file():
        raise LedgerFault(f"{path.name} is not a file")
    try:
        return path.read_bytes()
    except OSError as error:
        raise LedgerFault(f"{path.name} cannot be read: {error.strerror}") from error


def parse_ledger(content: bytes) -> Ledger:
    """Raises `LedgerFault` where it is not UTF-8 text."""
    lines = content.split(b"\n")
    last = lines.pop()
    if last:
        lines.append(last)
    read = [_line(number, line) for number, line in enumerate(lines, 1)]
    return Ledger(lines=Counter(read), torn=read[-1] if last else "")


def grown_fault(before: bytes, after: bytes) -> str:
    """Why `after` is not `before` and more; nothing where it is. An outside only adds to its ledger."""
    if after.startswith(before):
        return ""
    number = 1 + next((at for at, line in enumerate(before.split(b"\n")) if _nth(after, at) != line), 0)
    lost = shown(before.split(b"\n")[number - 1].decode(errors="backslashreplace"))
    if len(after) < len(before):
        return f"it shrank from {len(before)} to {len(after)} bytes: line {number}, {lost}, is gone"
    return f"its line {number}, {lost}, is another one now"


def torn_over(before: bytes, after: bytes) -> str:
    """The line that began in `before`, was not ended there, and went on in `after`; nothing where there is none."""
    if not before or before.endswith(b"\n") or len(after) == len(before):
        return ""
    start = before.rfind(b"\n") + 1
    return after[start:].partition(b"\n")[0].decode(errors="backslashreplace")


def rewriting(calls: Iterable[str], name: str, *, empty: bool) -> str:
    """The first of a process's calls that took back what was in its ledger `name`; nothing where none did.

    `calls` as the tracer tells them; `empty`: nothing lay there when the process began. What such a call takes back may
    be written again the same, and then no content tells of it.
    """
    for call in calls:
        verb, _, rest = call.removesuffix(")").partition("(")
        if name not in rest.split(" -> "):
            continue
        if not empty and verb in _TAKES_BACK:
            return call
        empty = empty and verb not in _ADDS
    return ""


def shown(line: str) -> str:
    """The line in quotes, whatever it holds, cut to a readable length."""
    quoted = repr(line)
    return quoted if len(quoted) <= _SHOWN else f"{quoted[: _SHOWN - 2]}…'"


def _line(number: int, line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise LedgerFault(
            f"its line {number} is not UTF-8 text: {shown(line.decode(errors='backslashreplace'))}"
        ) from error


def _nth(content: bytes, at: int) -> bytes | None:
    lines = content.split(b"\n")
    return lines[at] if at < len(lines) else None
