"""An agent's process dies at every named point, once and twice; the run ends as if it had not."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from agent_tasks import KILLED
from targets import agents, complaints
from targets import servers as started

from savepoint._crashpoint import CrashPoint
from savepoint.crash import Explorer, ForkServer, Schedule, Story

EXHAUSTIVE = bool(os.environ.get("CRASH_EXHAUSTIVE"))


@pytest.fixture(scope="module")
def servers() -> Iterator[list[ForkServer]]:
    with started("agent_rig:live") as servers:
        yield servers


@pytest.fixture
def explorer(request: pytest.FixtureRequest, servers: list[ForkServer], memory: Path) -> Explorer:
    return agents(request.param, servers, memory)


def some(plans: Sequence[Schedule], name: str, stride: int) -> Sequence[Schedule]:
    """All of them if asked for; else every `stride`-th, for each task other ones."""
    return plans if EXHAUSTIVE else plans[list(KILLED).index(name) % stride :: stride]


def in_both_orders(explorer: Explorer, plans: Sequence[Schedule]) -> list[Story]:
    """Every other one with its parallel calls ending in reverse."""
    return [*explorer.explore(plans[::2]), *explorer.explore(plans[1::2], reversed=True)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("explorer", KILLED, indirect=True)
def test_a_run_killed_at_any_point_ends_as_an_unkilled_one(explorer: Explorer) -> None:
    assert not complaints(explorer.explore([Schedule()], reversed=True))
    plans = some(explorer.singles(), explorer.workers[0].name, 8)
    assert plans
    before = explorer.killed
    found = complaints(in_both_orders(explorer, plans))
    assert not found, "\n".join(found)
    assert explorer.killed - before > len(plans) // 2  # in another order of ending, a last arrival may be missing


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "explorer",
    ["ONCE", "COMPOSITE", "undeclared", "ONCE, approved", "READ, ONCE, CONTAINED", "session"],
    indirect=True,
)
def test_a_kill_during_the_recovery_changes_nothing_either(explorer: Explorer) -> None:
    name = explorer.workers[0].name
    stories = explorer.explore(some(explorer.singles(), name, 10), lambda plans: some(plans, name, 7))
    assert max(len(story.schedule.kills) for story in stories) == 2
    assert not complaints(stories), "\n".join(complaints(stories))


@pytest.mark.timeout(600)
def test_a_fresh_interpreter_resumes_from_every_named_point(servers: list[ForkServer], memory: Path) -> None:
    left = set(CrashPoint)
    found: list[str] = []
    for name in ("COMPOSITE", "ONCE, ambiguous", "session"):
        plans: list[Schedule] = []
        for plan in agents(name, servers, memory / f"{name}, forked").singles():
            point = next(iter(plan.kills.values())).at
            if point in left:
                left.remove(CrashPoint(point))
                plans.append(plan)
        found += complaints(agents(name, servers, memory / name, fresh=True).explore(plans))
    assert found == []
    assert left == set()


@pytest.mark.timeout(3600)
def test_a_fresh_interpreter_goes_on_with_the_runs_inside(servers: list[ForkServer], memory: Path) -> None:
    plans = agents("all in one", servers, memory / "forked").singles()
    assert len(plans) > 60
    stories = agents("all in one", servers, memory, fresh=True).explore(plans if EXHAUSTIVE else plans[5::21])
    assert not complaints(stories), "\n".join(complaints(stories))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "explorer", ["ONCE", "COMPOSITE", "READ, ONCE, CONTAINED", "ONCE, approved", "barrier"], indirect=True
)
def test_an_interrupt_at_any_point_leaves_a_run_that_can_be_resumed(explorer: Explorer) -> None:
    kills = [plan.kills[0] for plan in some(explorer.singles(), explorer.workers[0].name, 4) if 0 in plan.kills]
    assert kills
    for kill in kills:
        [story] = explorer.explore([Schedule()], interrupt=[kill.at, kill.nth])
        assert not complaints([story])
        if not kill.at.startswith("create"):
            # A signal lets a process say how the run stands, unless it came before the run was claimed.
            assert "running" not in [life.was for life in story.history.lives]
