"""Every program of the suite dies in every state that a kill can leave, and is resumed until it is done.

With CRASH_EXHAUSTIVE set: at every arrival at every named point, and at every pair of them.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from rig import Server
from scenarios import SCENARIOS
from targets import complaints, programs

from savepoint.crash import Explorer, Kill, Schedule, Story
from savepoint.testing import CrashPoint

EXHAUSTIVE = bool(os.environ.get("CRASH_EXHAUSTIVE"))
SMALL = ("READ, ONCE, CONTAINED", "ambiguous, performed", "ONCE with a final probe", "workspace, refused")
ELSEWHERE = frozenset(
    {
        # Of the agent loop, which has a suite of its own.
        CrashPoint.LAND_BEFORE,
        CrashPoint.LAND_AFTER,
        CrashPoint.REPLY_BEFORE,
        CrashPoint.REPLY_AFTER,
    }
)


@pytest.fixture
def explorer(request: pytest.FixtureRequest, servers: list[Server], memory: Path) -> Explorer:
    return programs(request.param, [each.forks for each in servers], memory, distinct=not EXHAUSTIVE)


every_scenario = pytest.mark.parametrize("explorer", SCENARIOS, indirect=True)


def explored(explorer: Explorer, schedules: Sequence[Schedule], second: int = 0) -> list[Story]:
    """With each jump of the wall clock that the scenario has; and `second` second kills after each (-1: all)."""
    jumps = SCENARIOS[explorer.workers[0].name].jumps
    then = (lambda plans: some(plans, second)) if second else None
    return [story for jump in jumps for story in explorer.explore(schedules, then, jump_s=jump)]


def some(plans: Sequence[Schedule], count: int) -> Sequence[Schedule]:
    """`count` of them, taken evenly; all where it is negative."""
    return plans if count < 0 else plans[1 :: max(1, len(plans) // count)][:count]


@every_scenario
@pytest.mark.timeout(600)
def test_a_kill_at_any_point_changes_nothing_that_counts(explorer: Explorer) -> None:
    stories = explored(explorer, explorer.singles())
    assert explorer.killed >= len(stories) // 2  # the kills took place
    assert not complaints(stories), "\n".join(complaints(stories))


@pytest.mark.parametrize("explorer", SMALL, indirect=True)
def test_a_kill_at_every_arrival_at_every_named_point(explorer: Explorer) -> None:
    """What the test above leaves out: arrivals that leave nothing new."""
    explorer.distinct = False
    stories = explored(explorer, explorer.singles())
    assert not complaints(stories), "\n".join(complaints(stories))


@every_scenario
@pytest.mark.timeout(6000)
def test_nor_does_a_second_kill_during_the_recovery(explorer: Explorer) -> None:
    """All pairs where CRASH_EXHAUSTIVE is set; else a few, taken evenly."""
    singles = explorer.singles()
    if EXHAUSTIVE:
        stories = explored(explorer, singles, second=-1)
    else:
        stories = explored(explorer, singles[:: max(1, len(singles) // 2)][:2], second=2)
    assert not complaints(stories), "\n".join(complaints(stories))


STEADY = ("each class in turn", "ONCE, ONCE", "workspace", "siblings, READ then ONCE", "COMPOSITE of CONTAINED, ONCE")


@pytest.mark.parametrize("explorer", STEADY, indirect=True)
@pytest.mark.parametrize("point", ["outcome.after:1", "gap.after:1"])
def test_a_storm_of_kills_is_outrun(explorer: Explorer, point: str) -> None:
    """Every process dies as soon as it has recorded one thing: then as many processes are enough as there are things.

    The bound counts what the unkilled run records, its end, and one question with its answer for each.
    """
    reference = explorer.references()[0]
    recorded = sum(str(kill).startswith(("outcome.after", "gap.after")) for kill in reference.lives[0].arrivals)
    explorer.lives_at_most = 2 * recorded + 3
    storm = Schedule({index: Kill.parse(point) for index in range(explorer.lives_at_most)})
    [story] = explorer.explore([storm])
    assert explorer.killed
    assert story.lives[-1].done
    assert not complaints([story]), "\n".join(complaints([story]))


def test_every_named_point_is_reached_by_some_scenario(servers: list[Server], memory: Path) -> None:
    reached: set[str] = set()
    for name in ("each class in turn", "ambiguous beside ONCE", "ONCE with a final probe", "workspace"):
        explorer = programs(name, [each.forks for each in servers], memory / name)
        for story in (explorer.story(), explorer.story(Schedule.parse("0@body.after:1"))):
            reached |= {kill.at for life in story.lives for kill in life.arrivals}
    assert set(CrashPoint) - reached - ELSEWHERE == set()
