"""The rig can fail: one-line faults, planted into the killed processes, are each caught; without them nothing is said."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from graded_ways import Bench, Way
from graded_ways import bench as a_bench
from grading import CAUGHT, IN_AGENTS, WAYS, Grade, figure, graded, untried
from sabotage import SABOTAGES

GRADES: list[Grade] = []


@pytest.fixture(scope="module")
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Prints the figure when all is done: tests run in any order."""
    with a_bench() as made:
        yield made
    capture: Any = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        sys.stdout.write(f"\n{figure(GRADES)}\n")


def test_every_fault_says_what_is_broken_and_where_it_shows() -> None:
    assert CAUGHT.keys() == SABOTAGES.keys()
    assert len(SABOTAGES) >= 20
    assert all(plant.__doc__ for plant in SABOTAGES.values())


@pytest.mark.parametrize("name", SABOTAGES)
def test_a_planted_fault_is_caught(name: str, bench: Bench) -> None:
    found = graded(bench, name, CAUGHT[name])
    GRADES.append(found)
    if why := untried(CAUGHT[name].way):
        pytest.skip(why)
    assert found.caught, found


@pytest.mark.parametrize("name", IN_AGENTS)
def test_and_so_it_is_in_an_agent(name: str, bench: Bench) -> None:
    found = graded(bench, name, IN_AGENTS[name])
    assert found.caught, found


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_without_a_fault_nothing_is_wrong(way: Way, bench: Bench) -> None:
    if why := untried(way):
        pytest.skip(why)
    seen = way(bench, None)
    assert not seen, "\n".join(map(str, seen))


def test_the_figure_names_what_is_not_caught() -> None:
    caught, missed = (Grade(name, caught=name == "a", verdict="", schedule="") for name in "ab")
    assert figure([caught]) == "sabotages: 1 of 1 caught"
    assert figure([caught, missed]) == "sabotages: 1 of 2 caught; not b"
