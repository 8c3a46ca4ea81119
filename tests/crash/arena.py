"""Where races are told: several at once, for their processes mostly wait."""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from rig import HERE

from savepoint.crash import ForkServer

EXHAUSTIVE = bool(os.environ.get("CRASH_EXHAUSTIVE"))
ROUNDS = 40 if EXHAUSTIVE else 1
LEASE_S = 0.1
TOLD_AT_MOST = 5
"""Rare: one story in 700 on a busy machine."""
Json = dict[str, Any]
EVERY_CLASS = "each class in turn"


class Arena:
    """Tells stories, several at once: their processes mostly wait."""

    def __init__(self, servers: Sequence[ForkServer], place: Path) -> None:
        self.place = place
        self._number = count()
        self._free: SimpleQueue[ForkServer] = SimpleQueue()
        self._pool = ThreadPoolExecutor(len(servers))
        for each in servers:
            self._free.put(each)

    def tell(self, **story: Any) -> Json:
        """What came of it. An owner that is stopped while another of its threads commits holds SQLite's own lock: then
        its heir is turned away by name, and nothing was raced for. Such a story is told again.
        """
        told: Json = {}
        for _ in range(TOLD_AT_MOST):
            told = self._told(story)
            if told.get("other", {}).get("said") != "not_writable":
                return told
        raise AssertionError(f"{story}: each time its heir could not write: {told}")

    def _told(self, story: Json) -> Json:
        place = self.place / str(next(self._number))
        place.mkdir()
        server = self._free.get()
        try:
            reply = server.attempt({"place": str(place), **story})
        finally:
            self._free.put(server)
        assert not reply.timed_out, f"{story} did not end"
        assert not reply.children, f"{story} left {reply.children}"
        return {"stop": story.get("owner", {}).get("stop", ""), **reply.report}

    def all(self, stories: Sequence[Json]) -> list[tuple[Json, Json]]:
        """Each story and what came of it."""
        return list(zip(stories, self._pool.map(lambda each: self.tell(**each), stories), strict=True))

    def points(self, story: Json) -> tuple[Json, list[str]]:
        """The undisturbed run, and where its owner could be stopped."""
        told = self.tell(**{**story, "story": "alone"})
        return told, told["owner"]["arrivals"]


@contextmanager
def servers() -> Generator[Callable[[Path], Arena]]:
    """Makes arenas below a directory, all with the same few servers."""
    started = [ForkServer("races:live", path=[HERE]) for _ in range(4)]
    try:
        yield lambda place: Arena(started, place)
    finally:
        for each in started:
            each.__exit__()


def ended_alike(told: Json, reference: Json) -> Iterator[str]:
    """What differs from the undisturbed run, in the end."""
    if told["status"] != "completed":
        yield f"the run is {told['status']}: {told['finish']}"
        return
    if {tag for tag, *_ in told["acts"]} != {tag for tag, *_ in reference["acts"]}:
        yield f"the outside saw {told['acts']}"
    for what in ("world", "points"):
        if told["ended"][what] != reference["ended"][what]:
            yield f"{what} are {told['ended'][what]}; undisturbed: {reference['ended'][what]}"


def some(points: Sequence[str], turn: int = 0) -> Sequence[str]:
    """One arrival at each of the named points, other ones for another `turn`; all where everything is tried."""
    if EXHAUSTIVE:
        return points
    names: dict[str, list[str]] = {}
    for each in points:
        names.setdefault(each.partition(":")[0], []).append(each)
    return [found[(number + turn) % len(found)] for number, found in enumerate(names.values())]
