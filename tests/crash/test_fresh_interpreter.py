"""Resuming needs nothing of the process that died: a new interpreter, with another order of hashes, at every point."""

from pathlib import Path

from rig import Server
from targets import complaints, programs

from savepoint.crash import Schedule

MOST = "each class in turn"
"""Its first process gets to all points but those of questions and probes."""
OTHERS = {
    "ambiguous, performed": ["0@park.before:1", "0@park.after:1"],
    "ONCE with a final probe": ["0@body.after:1,1@settle.before:1", "0@body.after:1,1@settle.after:1"],
}


def once_each(plans: list[Schedule]) -> list[Schedule]:
    """The first plan for each named point."""
    first: dict[str, Schedule] = {}
    for plan in plans:
        first.setdefault(next(iter(plan.kills.values())).at, plan)
    return list(first.values())


def test_a_run_that_died_at_any_point_is_finished_by_new_interpreters(servers: list[Server], memory: Path) -> None:
    forks = [each.forks for each in servers]
    most = once_each(programs(MOST, forks, memory / "plans").singles())
    plans = {MOST: most, **{name: [*map(Schedule.parse, each)] for name, each in OTHERS.items()}}
    for index, (scenario, each) in enumerate(plans.items()):
        explorer = programs(scenario, forks, memory / str(index), fresh=True)
        stories = explorer.explore(each)
        assert explorer.killed >= len(each)
        assert not complaints(stories), "\n".join(complaints(stories))
