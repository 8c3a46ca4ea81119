"""Nothing is ordered by the wall clock: set back between processes, the newest savepoint is still the newest."""

from pathlib import Path

from explorer import Explorer, Plan
from rig import Server


def test_a_clock_that_is_set_back_resumes_from_the_newest_step(servers: list[Server], memory: Path) -> None:
    explorer = Explorer(servers=servers, scenario="each class in turn", place=memory)
    kills = tuple((process, ("gap.after", 1)) for process in range(1, 5))
    plan = Plan(kills=((0, ("gap.after", 2)), *kills), jump_s=-600.0)
    history, reports = explorer.history(plan)
    assert explorer.judge(plan) == []
    assert history.ended is not None
    assert sorted(history.ended.points) == [0, 1, 2, 3, 4, 5, 6]
    assert reports[-1]["resumed_from"] == 6
