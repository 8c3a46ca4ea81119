"""A directory that runs live in, one after the other, always at the same path; what kills left there can be put back."""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from attrs import define, field

from savepoint._digest import Domain, seal
from savepoint._remove import remove_tree

VOLATILE = "-shm"
"""How the names of files end that SQLite makes anew at the first opening after a crash, whatever they hold."""


@define
class Room:
    """`place/live` is the directory of the run at hand; `place/kept` has what lay there before some of its processes."""

    place: Path
    _keep_from: int | None = field(default=None, init=False)

    @property
    def live(self) -> Path:
        return self.place / "live"

    def empty(self, *, keep_from: int | None = None) -> None:
        """A new run begins; what lies here before its processes from `keep_from` on is kept."""
        self.clear()
        self.live.mkdir(parents=True)
        self._keep_from = keep_from

    def before(self, index: int) -> None:
        """The run's process `index` is about to begin."""
        if self._keep_from is not None and index >= self._keep_from:
            _copy(self.live, self._kept(index))

    def restore(self, index: int) -> None:
        """Here lies what lay here before the process `index`; from here on nothing is kept."""
        remove_tree(self.live)
        _copy(self._kept(index), self.live)
        self._keep_from = None

    def clear(self) -> None:
        """Removes all that is here."""
        if self.place.exists():
            remove_tree(self.place)

    def _kept(self, index: int) -> Path:
        return self.place / "kept" / str(index)


def _copy(source: Path, to: Path) -> None:
    """Everything but sockets: nobody listens behind one whose process died."""
    shutil.copytree(source, to, symlinks=True, ignore=_special)
    for directory, _, names in os.walk(source):
        for name in names:
            path = Path(directory, name)
            if stat.S_ISFIFO(path.lstat().st_mode):
                os.mkfifo(to / path.relative_to(source), stat.S_IMODE(path.lstat().st_mode))


def _special(directory: str, names: list[str]) -> list[str]:
    modes = {name: Path(directory, name).lstat().st_mode for name in names}
    return [
        each for each, mode in modes.items() if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))
    ]


def fingerprint(place: Path) -> str:
    """Of all that lies below `place`: names, kinds, modes, contents, where links lead. Not times, and not what a crash
    makes void.

    Two kills that leave the same fingerprint leave the same to the next process: a kernel lock dies with its owner.
    """
    return seal(Domain.CONTENT, b"".join(_entries(place))).hex()


def _entries(place: Path) -> Iterator[bytes]:
    for directory, below, names in os.walk(place):
        below.sort()
        entries = sorted([*below, *names])
        yield b"\0".join(map(os.fsencode, [directory, *entries])) + b"\1"
        for name in entries:
            with suppress(FileNotFoundError):  # another thread of the process is at work: a journal may just be gone
                yield _entry(Path(directory, name))


def _entry(path: Path) -> bytes:
    mode, content = path.lstat().st_mode, b""
    if stat.S_ISLNK(mode):
        content = os.fsencode(path.readlink())
    elif stat.S_ISREG(mode) and not path.name.endswith(VOLATILE):
        content = path.read_bytes()
    return mode.to_bytes(4, "big") + len(content).to_bytes(8, "big") + content
