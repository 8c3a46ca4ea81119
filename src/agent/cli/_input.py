"""INPUT and JSON values as a command line gives them: the text itself, `-` for stdin, `@FILE` for a file."""

import json
import sys
from pathlib import Path

from savepoint import Missing, Usage

STDIN = "@-"
"""How `-` reaches a command: the parser would take a lone dash for an option."""


def read_input(given: str | None) -> str:
    """The text; empty where none was given. Raises `Missing`, `Usage` (unreadable, or empty where one was given)."""
    if given is None:
        return ""
    text = _stdin() if given == STDIN else _file(Path(given[1:])) if given.startswith("@") else given
    if not text.strip():
        source = {STDIN: "stdin"}.get(given, given or "INPUT")
        raise Usage(f"the input is empty ({source})", next="write what the agent is to do, as text, - or @FILE")
    return text


def read_value(given: str | None) -> object:
    """Raises `Usage` for what is not JSON."""
    if given is None:
        return None
    try:
        return json.loads(given)
    except (ValueError, RecursionError) as error:
        raise Usage(
            f"--value is not JSON: {error}", next="""write a text as '"text"', an object as '{"key": 1}'"""
        ) from None


def _stdin() -> str:
    if sys.stdin is None:
        raise Usage("the input is to be read from stdin, which is closed", next="pass it as text, or @FILE")
    try:
        return sys.stdin.read()
    except (OSError, ValueError) as error:
        raise Usage(f"stdin cannot be read: {error}", next="pass the input as UTF-8 text, or @FILE") from None


def _file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Missing(f"there is no file {path}", next="check the path after @") from None
    except (OSError, ValueError) as error:
        raise Usage(f"{path} cannot be read: {error}", next="name a UTF-8 text file after @") from None
