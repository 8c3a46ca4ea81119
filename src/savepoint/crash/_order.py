"""In which order kills are tried, so that a part of them says as much as a part can; and which storms there are."""

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from math import ceil
from typing import overload

from attrs import frozen

from ._kill import Schedule

STORM_KILLS = 6
"""At most, in one run"""


@frozen
class WhileTime(Sequence[Schedule]):
    """Schedules that nobody gets more of once it is over."""

    schedules: Sequence[Schedule]
    over: Callable[[], bool]

    def __iter__(self) -> Iterator[Schedule]:
        for each in self.schedules:
            if self.over():
                return
            yield each

    @overload
    def __getitem__(self, index: int) -> Schedule: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Schedule]: ...
    def __getitem__(self, index: int | slice) -> Schedule | Sequence[Schedule]:
        return self.schedules[index]

    def __len__(self) -> int:
        return len(self.schedules)


def evenly(schedules: Sequence[Schedule]) -> list[Schedule]:
    """All of them, so that each beginning of the list is spread over the whole.

    Kills before a call come first: just after a call little is different from just before the next one.
    """
    before = [each for each in schedules if not each.kills[each.last].after]
    behind = [each for each in schedules if each.kills[each.last].after]
    return [*_spread(before), *_spread(behind)]


def _spread(items: Sequence[Schedule]) -> Iterator[Schedule]:
    """In the order of the numbers whose binary digits are written backwards: first, middle, quarters, ..."""
    bits = max(1, (len(items) - 1).bit_length())
    for number in range(1 << bits):
        at = int(format(number, f"0{bits}b")[::-1], 2)
        if at < len(items):
            yield items[at]


def part_of(schedules: Sequence[Schedule], part: float) -> Sequence[Schedule]:
    """At least one of them, if there are any."""
    return evenly(schedules)[: ceil(part * len(schedules)) or 1]


def storm(number: int, places: Sequence[Schedule]) -> Schedule:
    """The `number`-th storm: two to six kills in a row, the same ones each time, early ones more often than late."""
    digits = iter(sha256(f"storm {number}".encode()).digest())
    schedule = places[(next(digits) << 8 | next(digits)) % len(places)]
    for index in range(1, 2 + next(digits) % (STORM_KILLS - 1)):
        reach = len(places) ** (next(digits) / 255)
        kill = places[min(len(places), round(reach)) - 1].kills[0]
        schedule = schedule.then(index, kill)
    return schedule
