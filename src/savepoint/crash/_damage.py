"""Damage to the files of a store, one place at a time: enumerated purely, done to a copy, undone by writing it back.

Nothing here knows what a store means; the page of a database is read from its header.
"""

import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from attrs import frozen

from savepoint._errors import Usage

_DATABASE = b"SQLite format 3\0"
_MASKS = (0xFF,)
_WHOLE = 0o600
"""Mode of a file that is put back."""


class Hurt(StrEnum):
    """What happens to a file."""

    FLIP = "flip"
    """one byte is another one"""
    CUT = "cut"
    """it ends early"""
    BLANK = "blank"
    """a stretch of it is zeros"""
    GONE = "gone"


_TEXT = re.compile(r"(?P<how>flip|cut|blank|gone):(?P<at>\d+):(?P<size>\d+):(?P<file>.+)", re.DOTALL)


@frozen(kw_only=True)
class Damage:
    """One place of one file, and what happens there; one line of text and back."""

    how: Hurt
    file: str
    """below the store's directory, with `/`"""
    at: int = 0
    """`flip`: the byte; `cut`: bytes that are left; `blank`: its first byte"""
    size: int = 0
    """`flip`: what the byte is xored with, 1 to 255; `blank`: bytes"""

    def __str__(self) -> str:
        return f"{self.how}:{self.at}:{self.size}:{self.file}"

    @classmethod
    def parse(cls, text: str) -> "Damage":
        """Raises `Usage`."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise Usage(f"{text!r} is no damage", next="give it as the report prints it, as in flip:100:255:store.db")
        return cls(how=Hurt(found["how"]), file=found["file"], at=int(found["at"]), size=int(found["size"]))

    def done_to(self, content: bytes) -> bytes | None:
        """The content as it is afterwards; None where the file is gone."""
        match self.how:
            case Hurt.FLIP:
                return content[: self.at] + bytes([content[self.at] ^ self.size]) + content[self.at + 1 :]
            case Hurt.CUT:
                return content[: self.at]
            case Hurt.BLANK:
                end = min(len(content), self.at + self.size)
                return content[: self.at] + bytes(end - self.at) + content[end:]
            case Hurt.GONE:
                return None


@frozen
class Stock:
    """The files of a directory as they were once: what damage is enumerated over and done to copies of."""

    contents: Mapping[str, bytes]
    """path below the directory, with `/` -> content; links and what is no file are left out"""
    directories: Sequence[str] = ()
    """those below it"""

    @classmethod
    def of(cls, place: Path) -> "Stock":
        below = sorted(place.rglob("*"))
        contents = {
            path.relative_to(place).as_posix(): path.read_bytes()
            for path in below
            if path.is_file() and not path.is_symlink()
        }
        return cls(contents, [path.relative_to(place).as_posix() for path in below if path.is_dir()])

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(map(len, self.contents.values()))

    def put(self, place: Path, damage: Damage | None = None) -> None:
        """Makes `place` hold these files and no others, damaged at one place."""
        for name in ("", *self.directories):
            (place / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        keep = {place / name for name in self.contents}
        for path in sorted(place.rglob("*"), reverse=True):
            if path.is_dir() and not path.is_symlink():
                if path.relative_to(place).as_posix() not in self.directories:
                    path.rmdir()
            elif path not in keep:
                path.unlink()
        for name, content in self.contents.items():
            changed = damage.done_to(content) if damage is not None and damage.file == name else content
            if changed is None:
                (place / name).unlink(missing_ok=True)
            else:
                (place / name).write_bytes(changed)
                (place / name).chmod(_WHOLE)

    # -- enumerating ----------------------------------------------------------------------------------------------

    def flips(self, masks: Sequence[int] | None = None) -> Iterator[Damage]:
        """Each byte of each file: by one bit (another one from byte to byte), then by each of `masks` (all eight)."""
        for name, content in self.contents.items():
            for at in range(len(content)):
                for mask in (1 << at % 8, *(_MASKS if masks is None else masks)):
                    yield Damage(how=Hurt.FLIP, file=name, at=at, size=mask)

    def cuts(self, parts: Sequence[float] = (0.0, 0.25, 0.5, 0.75)) -> Iterator[Damage]:
        """Each file cut to these parts of itself, before its last byte, and at each page where it has pages."""
        for name, content in self.contents.items():
            step = page_size(content)
            ends = {int(len(content) * part) for part in parts} | {len(content) - 1}
            ends |= set(range(step, len(content), step)) if step else set[int]()
            yield from (Damage(how=Hurt.CUT, file=name, at=end) for end in sorted(ends) if 0 <= end < len(content))

    def losses(self) -> Iterator[Damage]:
        """Each file gone."""
        return (Damage(how=Hurt.GONE, file=name) for name in self.contents)

    def pages(self) -> Iterator[Damage]:
        """Each page of each database blank: what a write that never reached the disk leaves of a new page."""
        for name, content in self.contents.items():
            if step := page_size(content):
                yield from (Damage(how=Hurt.BLANK, file=name, at=at, size=step) for at in range(0, len(content), step))


def page_size(content: bytes) -> int:
    """Of a SQLite database, in bytes; 0 for anything else."""
    if not content.startswith(_DATABASE) or len(content) < 100:
        return 0
    size = int.from_bytes(content[16:18], "big")
    return 65536 if size == 1 else size


@contextmanager
def hurt(place: Path, damage: Damage) -> Generator[None]:
    """The damage while the block runs, in place. For blocks that only read: what else they change is not undone.

    A flip costs two writes of one byte; the rest writes the file back as a whole.
    """
    path = place / damage.file
    whole = path.read_bytes() if damage.how is not Hurt.FLIP else b""
    if damage.how is Hurt.FLIP:
        before = _overwrite(path, damage.at, damage.size)
    else:
        changed = damage.done_to(whole)
        _write(path, changed)
        before = -1
    try:
        yield
    finally:
        if damage.how is Hurt.FLIP:
            _overwrite(path, damage.at, damage.size, back_to=before)
        else:
            _write(path, whole)


def _overwrite(path: Path, at: int, mask: int, *, back_to: int | None = None) -> int:
    """Flips a byte; returns what it was."""
    with path.open("r+b", buffering=0) as file:
        file.seek(at)
        (before,) = file.read(1)
        file.seek(at)
        file.write(bytes([before ^ mask if back_to is None else back_to]))
    return before


def _write(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
        path.chmod(_WHOLE)


def spread(damages: Iterable[Damage], seed: int, *, few: int) -> list[Damage]:
    """About `few` of them, taken evenly, from a start that the seed chooses: in turn, all seeds find all of them."""
    every = list(damages)
    step = max(1, len(every) // few)
    return every[seed % step :: step]
