"""A directory that runs live in, one after the other, always at the same path; what kills left there can be put back."""

import shutil
from pathlib import Path

from attrs import define, field


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
            shutil.copytree(self.live, self._kept(index), symlinks=True)

    def restore(self, index: int) -> None:
        """Here lies what lay here before the process `index`; from here on nothing is kept."""
        shutil.rmtree(self.live)
        shutil.copytree(self._kept(index), self.live, symlinks=True)
        self._keep_from = None

    def clear(self) -> None:
        """Removes all that is here."""
        if self.place.exists():
            shutil.rmtree(self.place)

    def _kept(self, index: int) -> Path:
        return self.place / "kept" / str(index)
