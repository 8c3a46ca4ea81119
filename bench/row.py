"""A row of the report: our figure beside the floor's, and whether the goal of the design is met."""

import statistics
from collections.abc import Sequence
from enum import StrEnum

from attrs import frozen


class Against(StrEnum):
    """What a goal limits."""

    RATIO = "times the floor"
    EXTRA = "more than the floor"
    VALUE = "at most"


@frozen(kw_only=True)
class Goal:
    limit: float
    against: Against = Against.RATIO


@frozen(kw_only=True)
class Sample:
    """One repetition: both figures come from the same stretch of time, so their ratio outlives a noisy minute."""

    floor: float
    ours: float | None


@frozen(kw_only=True)
class Row:
    what: str
    unit: str
    samples: Sequence[Sample]
    goal: Goal | None = None
    note: str = ""

    @property
    def floor(self) -> float:
        return statistics.median(sample.floor for sample in self.samples)

    @property
    def ours(self) -> float | None:
        return median([sample.ours for sample in self.samples if sample.ours is not None])

    @property
    def ratio(self) -> float | None:
        """The median of the repetitions' ratios."""
        found = [sample.ours / sample.floor for sample in self.samples if sample.ours is not None and sample.floor]
        return median(found)

    @property
    def reached(self) -> float | None:
        """The figure that the goal limits."""
        if self.goal is None or self.ours is None:
            return None
        return {Against.RATIO: self.ratio, Against.EXTRA: self.ours - self.floor, Against.VALUE: self.ours}[
            self.goal.against
        ]

    @property
    def verdict(self) -> str:
        """`met`, `missed by N %`, or empty where there is no goal or no figure."""
        if self.goal is None or self.reached is None:
            return ""
        if self.reached <= self.goal.limit:
            return "met"
        return f"missed by {self.reached / self.goal.limit - 1:.0%}"


def median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
