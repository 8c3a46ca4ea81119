"""The suite can fail: one-line faults, planted into the killed processes, are caught by some scenario."""

from pathlib import Path

import pytest
from explorer import Explorer, Plan
from rig import Server
from sabotage import SABOTAGES

CAUGHT = {
    "no intent": ("composite", "performed twice"),
    "contained reuse": ("READ, ONCE, CONTAINED", "it ended with"),
    "no guard": ("perturbed body", "nobody was asked"),
    "position": ("perturbed body", "got 0.m.send"),
    "decision twice": ("ambiguous, not performed", "performed twice"),
    "unordered": ("READ, then IDEMPOTENT of it", "performed as"),
}


@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_a_planted_fault_is_caught(sabotage: str, servers: list[Server], memory: Path) -> None:
    scenario, words = CAUGHT[sabotage]
    explorer = Explorer(servers=servers, scenario=scenario, place=memory)
    explorer.references()
    plans = [Plan(kills=plan.kills, sabotage=sabotage) for plan in explorer.states()]
    assert any(words in complaint for complaint in explorer.judge_all(plans))
