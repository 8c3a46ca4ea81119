"""What is said of a target on a command line, whatever the target is: its ledger, files it gets, files it is compared by."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import define, field

from savepoint._errors import Usage

from ._contents import contents
from ._judge import Rules

TIMEOUT_S = 30.0
_PRINTED = 4096
"""Bytes of standard output and error that are looked at."""


@define(kw_only=True)
class Given:
    """A target's options; each kind of target adds what it is made of. Raises `Usage` where they cannot be meant."""

    ledger: str
    """relative to the run's directory; one line an effect"""
    copies: Sequence[str] = ()
    """files and directories of `here` that each run's directory begins with"""
    compares: Sequence[str] = ()
    """paths in the run's directory whose content at the end must equal that of an unkilled run"""
    rules: Rules = field(factory=Rules)
    timeout_s: float = TIMEOUT_S
    """seconds that one process may take"""
    here: Path = field(factory=Path.cwd)

    def __attrs_post_init__(self) -> None:
        for option, path in (("--ledger", self.ledger), *(("--compare", each) for each in self.compares)):
            _inside(option, path)
        for path in self.copies:
            if not (self.here / path).exists():
                raise Usage(f"--copy {path}: there is none in {self.here}", next="start the command where it lies")

    @property
    def own(self) -> Sequence[str]:
        """The run's own files, as paths in its directory."""
        return (self.ledger, *self.compares, *map(_name_of, self.copies))

    @property
    def words(self) -> list[str]:
        """The options as words of a command line; what is as ever is left out."""
        words = ["--ledger", self.ledger]
        words += [word for each in self.copies for word in ("--copy", each)]
        words += [word for each in self.compares for word in ("--compare", each)]
        words += ["--timeout", f"{self.timeout_s:g}s"] if self.timeout_s != TIMEOUT_S else []
        usual = self.rules.parked_code == Rules().parked_code
        words += [] if usual else ["--parked-code", str(self.rules.parked_code)]
        return [*words, *(["--allow-stdout"] if self.rules.allow_stdout else [])]

    def copy_into(self, work: Path) -> None:
        """Puts the copies into a run's directory."""
        for each in self.copies:
            source, to = self.here / each, work / _name_of(each)
            to.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, to, symlinks=True)
            else:
                shutil.copy2(source, to)

    def compared(self, work: Path) -> Mapping[str, str]:
        """What the compared paths hold. The directory's own path, which differs between runs, does not count."""
        return contents(work, self.compares, os.fsencode(work))


def beginning(path: Path) -> bytes:
    """Of what a process printed; nothing where it printed nothing anywhere."""
    if not path.exists():
        return b""
    with path.open("rb") as file:
        return file.read(_PRINTED)


def last_line(path: Path) -> str:
    """The last line that is not empty."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _PRINTED))
        lines = file.read().decode(errors="backslashreplace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _inside(option: str, path: str) -> None:
    normal = os.path.normpath(path)
    if not path or Path(path).is_absolute() or normal in (".", "..") or normal.startswith("../"):
        raise Usage(
            f"{option} {path}: not a path inside the run's directory",
            next=f"give it relative, as in {option} data/file",
        )


def _name_of(path: str) -> str:
    """Where a copied path lies in the run's directory."""
    normal = os.path.normpath(path)
    return Path(normal).name if Path(normal).is_absolute() or normal.startswith("..") else normal
