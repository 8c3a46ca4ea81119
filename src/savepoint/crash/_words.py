"""Command lines as a person types them: what they name here still means the same in another directory."""

import os
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from savepoint._errors import Usage


def split_words(command: str, *, option: str) -> list[str]:
    """The words of a command line, as a shell would split it; nothing else of a shell is done. Raises `Usage`."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Usage(f"{option} {command!r}: {error}", next="close the quotes") from error
    if not words:
        raise Usage(f"{option} has no words", next=f"give the command, as in {option} 'python agent.py'")
    return words


def anchored(words: Sequence[str], here: Path, *, own: Collection[str] = ()) -> list[str]:
    """`words` with each that names something in `here` as an absolute path, also behind a `=` (`--config=a.toml`).

    A bare first word is looked up on PATH, as ever. Those of `own` are the run's own files: they stay as they are,
    even where an earlier run left some of the same name here.
    """
    first, *rest = words
    if os.sep in first:
        first = _anchored(first, here, own)
    return [first, *(_anchored(word, here, own) for word in rest)]


def named_files(words: Sequence[str]) -> list[Path]:
    """The files that anchored words name by an absolute path."""
    paths = [Path(word.rpartition("=")[2]) for word in words]
    return [path for path in paths if path.is_absolute() and path.is_file()]


def _anchored(word: str, here: Path, own: Collection[str]) -> str:
    head, equals, tail = word.rpartition("=")
    if not tail or tail.startswith(os.sep) or any(_within(tail, each) for each in own):
        return word
    try:
        there = (here / tail).exists()
    except (OSError, ValueError):  # too long for a name, or a NUL in it
        return word
    return f"{head}{equals}{os.path.normpath(here / tail)}" if there else word


def _within(word: str, own: str) -> bool:
    return Path(os.path.normpath(word)).is_relative_to(os.path.normpath(own))
