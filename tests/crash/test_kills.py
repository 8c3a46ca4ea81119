"""Every program of the suite dies in every state that a kill can leave, and is resumed until it is done.

With CRASH_EXHAUSTIVE set: at every arrival at every named point, and at every pair of them.
"""

import os
from pathlib import Path

import pytest
from explorer import Explorer, Plan
from rig import Server
from scenarios import SCENARIOS

from savepoint.testing import CrashPoint

EXHAUSTIVE = bool(os.environ.get("CRASH_EXHAUSTIVE"))
SAMPLED = 4
"""Pairs of kills a scenario that the default run tries."""
SMALL = ("READ, ONCE, CONTAINED", "ambiguous, performed", "ONCE with a final probe", "workspace, refused")
ELSEWHERE = frozenset(
    {
        # Of the agent loop, which has a suite of its own.
        CrashPoint.REPLY_BEFORE,
        CrashPoint.REPLY_AFTER,
    }
)


@pytest.fixture
def explorer(request: pytest.FixtureRequest, servers: list[Server], memory: Path) -> Explorer:
    return Explorer(servers=servers, scenario=request.param, place=memory)


every_scenario = pytest.mark.parametrize("explorer", SCENARIOS, indirect=True)


@every_scenario
@pytest.mark.timeout(600)
def test_a_kill_at_any_point_changes_nothing_that_counts(explorer: Explorer) -> None:
    singles = explorer.singles() if EXHAUSTIVE else explorer.states()
    complaints = explorer.judge_all(singles)
    assert explorer.died >= len(singles) // 2  # the kills took place
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("explorer", SMALL, indirect=True)
def test_a_kill_at_every_arrival_at_every_named_point(explorer: Explorer) -> None:
    """What the states above leave out: arrivals that leave nothing new."""
    complaints = explorer.judge_all(explorer.singles())
    assert not complaints, "\n".join(complaints)


@every_scenario
@pytest.mark.timeout(6000)
def test_nor_does_a_second_kill_during_the_recovery(explorer: Explorer) -> None:
    """All pairs where CRASH_EXHAUSTIVE is set; else a few, taken evenly."""
    singles = explorer.singles()
    chosen = singles if EXHAUSTIVE else singles[:: max(1, len(singles) // 2)][:2]
    pairs = [pair for first in chosen for pair in _some(list(explorer.pairs(first)))]
    complaints = explorer.judge_all(pairs)
    assert not complaints, "\n".join(complaints)


def _some(pairs: list[Plan]) -> list[Plan]:
    return pairs if EXHAUSTIVE else pairs[1 :: max(1, len(pairs) // (SAMPLED // 2))][: SAMPLED // 2]


def test_every_named_point_is_reached_by_some_scenario(servers: list[Server], memory: Path) -> None:
    reached: set[str] = set()
    for name in ("each class in turn", "ambiguous beside ONCE", "ONCE with a final probe", "workspace"):
        explorer = Explorer(servers=servers, scenario=name, place=memory / name)
        for plan in (Plan(), Plan(kills=((0, ("body.after", 1)),))):
            _, reports = explorer.history(plan)
            reached |= {point for report in reports for point, *_ in report.get("arrivals", ())}
    assert set(CrashPoint) - reached - ELSEWHERE == set()
