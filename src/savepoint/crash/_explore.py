"""Every history of a target: an unkilled run tells where a process can die, then it dies there, once or twice.

A prefix is lived once: what a kill leaves is kept, and every second kill starts from a copy of it at the same path.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any
from zlib import crc32

from attrs import define, evolve, field

from ._kill import NO_KILL, Schedule
from ._room import Room
from ._target import Life, Story, Target
from ._verdict import Verdict, Violation

LIVES = 12
"""Processes that a run may take; one that needs more is stuck."""
Then = Callable[[Sequence[Schedule]], Sequence[Schedule]]
"""Which of the second kills after a first one are tried."""


@define(kw_only=True)
class Explorer:
    """Lives stories of one target below the directory `place`, as many at once as there are workers.

    The workers are equal targets; each lives one process at a time.
    """

    workers: Sequence[Target]
    place: Path
    setting: Mapping[str, Any] = field(factory=dict[str, Any])
    """what every process of every story is told, unless that story is told otherwise"""
    lives_at_most: int = LIVES
    distinct: bool = False
    """of kills one after the other that leave the same directory, byte for byte, one is tried"""
    told: Callable[[Story], None] = field(default=lambda _: None)
    """hears of every judged story, from any thread"""
    processes: int = 0
    killed: int = 0
    _free: SimpleQueue[tuple[Target, Room]] = field(factory=SimpleQueue[tuple[Target, Room]], init=False)
    _references: tuple[Story, ...] = field(default=(), init=False)
    _counting: Lock = field(factory=Lock, init=False)

    def __attrs_post_init__(self) -> None:
        for number, worker in enumerate(self.workers):
            self._free.put((worker, Room(self.place / str(number))))

    # -- one story --------------------------------------------------------------------------------------------------

    def story(self, schedule: Schedule = NO_KILL, **setting: Any) -> Story:
        """One run from start to end, not judged."""
        with self._worker() as (worker, room):
            room.empty()
            return self._live(worker, room, schedule, [], {**self.setting, **setting})

    @contextmanager
    def _worker(self) -> Generator[tuple[Target, Room]]:
        worker, room = self._free.get()
        try:
            yield worker, room
        finally:
            room.clear()
            self._free.put((worker, room))

    def _live(
        self, worker: Target, room: Room, schedule: Schedule, lives: list[Life], setting: Mapping[str, Any]
    ) -> Story:
        while len(lives) < self.lives_at_most and not (lives and lives[-1].done):
            room.before(len(lives))
            kill = schedule.kills.get(len(lives))
            lives.append(worker.live(room.live, tuple(lives), kill, setting))
            with self._counting:
                self.processes += 1
                self.killed += lives[-1].killed
        return Story(schedule=schedule, setting=setting, lives=lives, history=worker.history(room.live, lives))

    # -- judging ----------------------------------------------------------------------------------------------------

    def references(self) -> Sequence[Story]:
        """Unkilled runs that are right: as the target is, and in its other variants."""
        if not self._references:
            self._references = tuple(
                self.story(NO_KILL, **{"lasting": self.distinct, **variant}) for variant in self.workers[0].variants
            )
        return self._references

    def judged(self, story: Story) -> Story:
        """The story with its violations; it is told on."""
        worker = self.workers[0]
        found = worker.judge(story.history, [each.history for each in self.references()])
        if not story.lives[-1].done and not any(each.verdict is Verdict.STUCK for each in found):
            found = [*found, Violation(Verdict.STUCK, f"not done after {len(story.lives)} processes")]
        story = evolve(story, violations=tuple(found))
        self.told(story)
        return story

    def explore(self, schedules: Iterable[Schedule], then: Then | None = None, **setting: Any) -> list[Story]:
        """The judged stories of all these schedules and, where `then` says so, of second kills after each."""
        self.references()
        with ThreadPoolExecutor(len(self.workers)) as pool:
            made = [pool.submit(self._explored, each, then, setting) for each in schedules]
            return [story for each in made for story in each.result()]

    def _explored(self, schedule: Schedule, then: Then | None, setting: Mapping[str, Any]) -> list[Story]:
        setting = {**self.setting, **setting}
        with self._worker() as (worker, room):
            room.empty(keep_from=None if then is None else schedule.last + 1)
            watched = {"lasting": self.distinct and then is not None, **setting}
            first = self.judged(self._live(worker, room, schedule, [], watched))
            seconds = () if then is None else then(self._further(first))
            return [first, *(self.judged(self._again(worker, room, first, each, setting)) for each in seconds)]

    def _again(self, worker: Target, room: Room, first: Story, schedule: Schedule, setting: Mapping[str, Any]) -> Story:
        """`schedule` from where its last kill's process began in `first`."""
        room.restore(schedule.last)
        return self._live(worker, room, schedule, list(first.lives[: schedule.last]), setting)

    # -- enumerating ------------------------------------------------------------------------------------------------

    def singles(self) -> list[Schedule]:
        """One kill at each arrival of each process of the unkilled run; of those that leave the same, one."""
        return self._further(self.references()[0])

    def _further(self, story: Story) -> list[Schedule]:
        return list(distinct(story) if self.distinct else after(story))


def after(story: Story) -> Iterator[Schedule]:
    """Its schedule and one kill more, at each arrival of the processes after its last kill."""
    start = story.schedule.last + 1
    for index, life in enumerate(story.lives[start:], start):
        yield from (story.schedule.then(index, kill) for kill in life.arrivals)


def distinct(story: Story) -> Iterator[Schedule]:
    """As `after`, with one of the kills that leave the same: another one for each schedule, so that together they
    cover the points.
    """
    seed, start = crc32(str(story.schedule).encode()), story.schedule.last + 1
    for index, life in enumerate(story.lives[start:], start):
        groups = groupby(zip(life.arrivals, life.lasting, strict=True), key=itemgetter(1))
        for number, (_, group) in enumerate(groups):
            same = [kill for kill, _ in group]
            yield story.schedule.then(index, same[(seed + number) % len(same)])
