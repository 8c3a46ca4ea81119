"""An agent's process dies at every named point; the run ends as if it had not."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from agent_rig import AgentExplorer, AgentServer, FreshServer
from agents import LONGER, ONE_CALL, THREE_CALLS
from explorer import Plan

from savepoint._crashpoint import CrashPoint

EXHAUSTIVE = bool(os.environ.get("CRASH_EXHAUSTIVE"))
KILLED = [*ONE_CALL, *THREE_CALLS, *LONGER]
STRIDE = 8
"""Without `CRASH_EXHAUSTIVE`, the part of the points that one task is killed at; each task at other ones."""
NEVER = {CrashPoint.WITHDRAW_BEFORE, CrashPoint.WITHDRAW_AFTER}
"""Points that no code reaches: withdrawn intents are part of the commit that ends an attempt."""


@pytest.fixture(scope="module")
def agents() -> Iterator[AgentServer]:
    with AgentServer() as running:
        yield running


def some(plans: Sequence[Any], name: str, stride: int = STRIDE) -> Sequence[Any]:
    return plans if EXHAUSTIVE else plans[KILLED.index(name) % stride :: stride]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", KILLED)
def test_a_run_killed_at_any_point_ends_as_an_unkilled_one(name: str, agents: AgentServer, memory: Path) -> None:
    explorer = AgentExplorer(server=agents, scenario=name, place=memory)
    assert explorer.judge(Plan(), reversed=True) == []
    plans = some(explorer.singles(), name)
    assert plans
    assert [complaint for plan in plans for complaint in explorer.judge(plan)] == []
    assert explorer.died >= len(plans)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["ONCE", "COMPOSITE", "undeclared", "ONCE, approved", "READ, ONCE, CONTAINED"])
def test_a_kill_during_the_recovery_changes_nothing_either(name: str, agents: AgentServer, memory: Path) -> None:
    explorer = AgentExplorer(server=agents, scenario=name, place=memory)
    firsts = some(explorer.singles(), name, 11)
    plans = [plan for first in firsts for plan in some(list(explorer.pairs(first)), name)]
    assert plans
    assert [complaint for plan in plans for complaint in explorer.judge(plan)] == []


@pytest.mark.timeout(600)
def test_a_fresh_interpreter_resumes_from_every_named_point(agents: AgentServer, memory: Path) -> None:
    left = set(CrashPoint)
    found: list[str] = []
    for name in ("COMPOSITE", "ONCE, ambiguous"):
        explorer = AgentExplorer(server=FreshServer(agents), scenario=name, place=memory / name)  # type: ignore[arg-type]
        for plan in AgentExplorer(server=agents, scenario=name, place=memory / f"{name} forked").singles():
            point = plan.kills[0][1][0]
            # A later process of an unkilled run is a fresh interpreter too, so its points are reached in one.
            if point in left:
                left.discard(CrashPoint(point))
                found += explorer.judge(plan)
    assert found == []
    assert left == NEVER


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["ONCE", "COMPOSITE", "READ, ONCE, CONTAINED", "ONCE, approved", "barrier"])
def test_an_interrupt_at_any_point_leaves_a_run_that_can_be_resumed(
    name: str, agents: AgentServer, memory: Path
) -> None:
    explorer = AgentExplorer(server=agents, scenario=name, place=memory)
    for plan in some(explorer.singles(), name, 5):
        index, kill = plan.kills[0]
        if index:
            continue
        assert explorer.judge(Plan(), interrupt=kill) == []
        _, reports = explorer.history(Plan(), interrupt=kill)
        begun = kill[0] not in ("create.before", "create.after")
        assert all(report.get("was") != "running" for report in reports[1:] if begun)
