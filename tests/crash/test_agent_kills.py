"""An agent's process dies at every named point, once and twice; the run ends as if it had not."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from agent_explorer import AgentExplorer, Plan
from agent_server import AgentServer, FreshServer
from agent_tasks import LONGER, ONE_CALL, THREE_CALLS

from savepoint._crashpoint import CrashPoint

EXHAUSTIVE = bool(os.environ.get("CRASH_EXHAUSTIVE"))
KILLED = [*ONE_CALL, *THREE_CALLS, *LONGER]


@pytest.fixture(scope="module")
def agents() -> Iterator[Sequence[AgentServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(AgentServer()) for _ in range(2)]


def some(plans: Sequence[Plan], name: str, stride: int) -> Sequence[Plan]:
    """All of them if asked for; else every `stride`-th, for each task other ones."""
    return plans if EXHAUSTIVE else plans[KILLED.index(name) % stride :: stride]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", KILLED)
def test_a_run_killed_at_any_point_ends_as_an_unkilled_one(
    name: str, agents: Sequence[AgentServer], memory: Path
) -> None:
    explorer = AgentExplorer(servers=agents, task=name, place=memory)
    assert explorer.judge({}, reversed=True) == []
    plans = some(explorer.singles(), name, 8)
    assert plans
    assert explorer.judge_all(plans) == []
    assert explorer.died > len(plans) // 2  # in another order of ending, a last arrival may be missing


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["ONCE", "COMPOSITE", "undeclared", "ONCE, approved", "READ, ONCE, CONTAINED"])
def test_a_kill_during_the_recovery_changes_nothing_either(
    name: str, agents: Sequence[AgentServer], memory: Path
) -> None:
    explorer = AgentExplorer(servers=agents, task=name, place=memory)
    firsts = some(explorer.singles(), name, 10)
    plans = [plan for first in firsts for plan in some(list(explorer.pairs(first)), name, 7)]
    assert plans
    assert explorer.judge_all(plans) == []


@pytest.mark.parametrize(
    ("sabotage", "name"),
    [
        ("no intent", "COMPOSITE with branches"),
        ("unordered", "COMPOSITE"),
        ("contained reuse", "KEYED, IDEMPOTENT, CONTAINED file"),
    ],
)
def test_the_oracle_notices_a_planted_fault(
    sabotage: str, name: str, agents: Sequence[AgentServer], memory: Path
) -> None:
    explorer = AgentExplorer(servers=agents, task=name, place=memory)
    assert any(explorer.judge(plan, sabotage=sabotage) for plan in explorer.singles())


@pytest.mark.timeout(600)
def test_a_fresh_interpreter_resumes_from_every_named_point(agents: Sequence[AgentServer], memory: Path) -> None:
    left = set(CrashPoint)
    found: list[str] = []
    for name in ("COMPOSITE", "ONCE, ambiguous"):
        explorer = AgentExplorer(servers=[FreshServer(each) for each in agents], task=name, place=memory / name)
        plans: list[Plan] = []
        for plan in AgentExplorer(servers=agents, task=name, place=memory / f"{name}, forked").singles():
            point = next(iter(plan.values()))[0]
            if point in left:
                left.remove(CrashPoint(point))
                plans.append(plan)
        found += explorer.judge_all(plans)
    assert found == []
    assert left == set()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["ONCE", "COMPOSITE", "READ, ONCE, CONTAINED", "ONCE, approved", "barrier"])
def test_an_interrupt_at_any_point_leaves_a_run_that_can_be_resumed(
    name: str, agents: Sequence[AgentServer], memory: Path
) -> None:
    explorer = AgentExplorer(servers=agents, task=name, place=memory)
    kills = [plan[0] for plan in some(explorer.singles(), name, 4) if 0 in plan]
    assert kills
    assert [complaint for kill in kills for complaint in explorer.judge({}, interrupt=kill)] == []
