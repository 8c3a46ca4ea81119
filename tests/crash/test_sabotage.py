"""The suite can fail: one-line faults, planted into the killed processes, are caught by some scenario."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import Server
from sabotage import SABOTAGES
from targets import agents, complaints, programs, states
from targets import servers as started

from savepoint.crash import ForkServer

CAUGHT = {
    "no intent": ("composite", "performed twice"),
    "contained reuse": ("READ, ONCE, CONTAINED", "it ended with"),
    "no guard": ("perturbed body", "nobody was asked"),
    "position": ("perturbed body", "got 0.m.send"),
    "decision twice": ("ambiguous, not performed", "performed twice"),
    "unordered": ("READ, then IDEMPOTENT of it", "repeated as another call"),
}


@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_a_planted_fault_is_caught(sabotage: str, servers: list[Server], memory: Path) -> None:
    scenario, words = CAUGHT[sabotage]
    explorer = programs(scenario, [each.forks for each in servers], memory)
    stories = explorer.explore(states(explorer), sabotage=sabotage)
    assert any(words in complaint for complaint in complaints(stories))


@pytest.fixture(scope="module")
def agents_servers() -> Iterator[list[ForkServer]]:
    with started("agent_rig:live") as servers:
        yield servers


@pytest.mark.parametrize(
    ("sabotage", "name"),
    [
        ("no intent", "COMPOSITE with branches"),
        ("unordered", "COMPOSITE"),
        ("contained reuse", "KEYED, IDEMPOTENT, CONTAINED file"),
    ],
)
def test_and_so_it_is_in_an_agent(sabotage: str, name: str, agents_servers: list[ForkServer], memory: Path) -> None:
    explorer = agents(name, agents_servers, memory)
    assert complaints(explorer.explore(explorer.singles(), sabotage=sabotage))
