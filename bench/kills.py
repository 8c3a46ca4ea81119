"""How many runs a second the crash rig kills and resumes, on two workers, beside bare forks that die and report."""

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from row import Against, Goal, Row, Sample

CRASH = Path(__file__).parents[1] / "tests" / "crash"
SCENARIOS = ("READ, then IDEMPOTENT of it", "each class in turn")
"""Of one turn and of six; every arrival at a named point is a run that dies there and is resumed to its end."""
ROUNDS = 3
GOAL_MS = 10.0
"""A hundred a second."""


def rows() -> Iterator[Row]:
    sys.path.insert(0, str(CRASH))
    from targets import programs, servers

    with servers("rig:live") as running, servers("idle:live") as idle, tempfile.TemporaryDirectory() as scratch:
        place = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(scratch)  # noqa: S108
        with tempfile.TemporaryDirectory(dir=place) as room:
            for number, name in enumerate(SCENARIOS):
                ours = programs(name, running, Path(room, str(number)))
                bare = programs(name, idle, Path(room, f"bare {number}"))
                plans = ours.singles()
                samples: list[Sample] = []
                for _ in range(ROUNDS):
                    start = time.perf_counter()
                    stories = ours.explore(plans)
                    middle = time.perf_counter()
                    assert not any(story.violations for story in stories)
                    bare.explore(plans)
                    end = time.perf_counter()
                    samples.append(
                        Sample(floor=(end - middle) / len(plans) * 1e3, ours=(middle - start) / len(plans) * 1e3)
                    )
                goal = Goal(limit=GOAL_MS, against=Against.VALUE)
                yield Row(what=f"kill and resume: {name}", unit="ms", samples=samples, goal=goal)
