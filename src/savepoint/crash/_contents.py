"""What files and directories hold, as digests that can be compared between runs."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from savepoint._digest import Domain, seal

MISSING = "missing"


def contents(root: Path, paths: Iterable[str], hidden: bytes) -> dict[str, str]:
    """Path relative to `root` -> what is there, of each of `paths` and all below them.

    `hidden`: the path of the run's directory, which differs between runs: it counts as if it were another text.
    """
    return {os.fspath(path.relative_to(root)): _content(path, hidden) for each in paths for path in _below(root / each)}


def _below(path: Path) -> Iterator[Path]:
    yield path
    if path.is_dir() and not path.is_symlink():
        for each in sorted(path.iterdir()):
            yield from _below(each)


def _content(path: Path, hidden: bytes) -> str:
    if path.is_symlink():
        return f"link to {path.readlink()}"
    if path.is_dir():
        return "directory"
    if path.is_file():
        return seal(Domain.CONTENT, path.read_bytes().replace(hidden, b"{here}")).hex()
    return "special" if path.exists() else MISSING
