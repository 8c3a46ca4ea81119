"""A merge that cannot be: the paths, keys or systems that changed on both sides."""

from collections.abc import Iterable

from ._errors import Conflict


class MergeConflict(Conflict):
    """What changed here since the fork, to something other than the fork's. Nothing was written."""

    def __init__(self, what: str, paths: Iterable[str]) -> None:
        self.paths = tuple(sorted(paths))
        super().__init__(
            f"{what}: changed on both sides: {', '.join(self.paths)}",
            next="make each of them as it was when the run started, or as the run has it, then merge again; or discard the run",
        )
