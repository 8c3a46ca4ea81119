"""Text for a terminal: colours where they are wanted, boxes, columns, lines that fit."""

import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import TextIO

from attrs import frozen

_CODE = re.compile(r"\x1b\[\d+m")


@frozen(kw_only=True)
class Style:
    """What a stream can show."""

    colour: bool
    boxes: bool
    """characters beyond ASCII"""

    @classmethod
    def of(cls, stream: TextIO) -> "Style":
        """Colours for a terminal only, and not where NO_COLOR is set (no-color.org)."""
        colour = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return cls(colour=colour, boxes=(stream.encoding or "").lower().startswith("utf"))

    def bold(self, text: str) -> str:
        return self._code(1, text)

    def dim(self, text: str) -> str:
        return self._code(2, text)

    def bad(self, text: str) -> str:
        return self._code(31, text)

    def good(self, text: str) -> str:
        return self._code(32, text)

    def warn(self, text: str) -> str:
        return self._code(33, text)

    @property
    def arrow(self) -> str:
        return "→" if self.boxes else "->"

    def _code(self, code: int, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text


def width(stream: TextIO) -> int:
    """Columns of the terminal that `stream` is, or 100."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 100
    except (OSError, ValueError):
        return 100


def seen(text: str) -> int:
    """How many columns `text` takes, its colours aside."""
    return len(_CODE.sub("", text))


def cut(text: str, width: int) -> str:
    """`text`, or as much of it as fits, and dots; a line that is cut keeps no colours."""
    return text if seen(text) <= width else _CODE.sub("", text)[: width - 3] + "..."


def panel(title: str, lines: Sequence[str], width: int, style: Style) -> Iterator[str]:
    """Lines under a title, wrapped, in a box that is open to the right."""
    corner, bar, foot, dash = "┌│└─" if style.boxes else "+|+-"
    yield style.warn(f"{corner}{dash} {title} ".ljust(width, dash))
    for line in lines:
        for part in textwrap.wrap(line, width - 2, break_on_hyphens=False) if seen(line) > width - 2 else [line]:
            yield f"{style.warn(bar)} {part}"
    yield style.warn(foot + dash * (width - 1))


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows of equal length as lines."""
    widths = [max(seen(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell + " " * (width - seen(cell)) for cell, width in zip(row, widths, strict=True)]
        yield ("  " + "   ".join(cells)).rstrip()
