"""Nothing is ordered by the wall clock: set back between processes, the newest savepoint is still the newest."""

from pathlib import Path

from rig import Server
from targets import complaints, programs

from savepoint.crash import Schedule


def test_a_clock_that_is_set_back_resumes_from_the_newest_step(servers: list[Server], memory: Path) -> None:
    explorer = programs("each class in turn", [each.forks for each in servers], memory)
    later = ",".join(f"{process}@gap.after:1" for process in range(1, 5))
    [story] = explorer.explore([Schedule.parse(f"0@gap.after:2,{later}")], jump_s=-600.0)
    assert not complaints([story])
    assert sorted(story.history.ended.points) == [0, 1, 2, 3, 4, 5, 6]
    assert story.lives[-1].seen["resumed_from"] == 6
