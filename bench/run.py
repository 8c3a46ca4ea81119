"""`make bench`: our rows beside the raw floor's, in one run, with the goals of the design next to them."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from attrs import frozen

import commits
import kills
import micro
import sessions
import syncs
import worlds
from harness import Figures, Plan, measure
from report import json_lines, table
from row import Against, Goal, Row, Sample

HERE = Path(__file__).parent
FLOOR = (HERE / "floor.py", "cas2")
OURS = (HERE / "candidate.py", "power")
GROWTH_TURNS = 500
"""Runs shorter than this have no late turns to compare with the early ones."""


@frozen(kw_only=True)
class Measure:
    what: str
    unit: str
    value: Callable[[Figures], float]
    goal: Goal | None
    from_turns: int = 0


def a_turn(key: str, factor: float = 1.0) -> Callable[[Figures], float]:
    return lambda figures: figures[key] * factor / figures["turns"]


def as_is(key: str) -> Callable[[Figures], float]:
    return lambda figures: figures[key]


MEASURES = (
    Measure(what="cpu a turn", unit="ms", value=a_turn("cpu_s", 1e3), goal=Goal(limit=2)),
    Measure(what="wall a turn", unit="ms", value=a_turn("wall_s", 1e3), goal=Goal(limit=1.5)),
    Measure(what="bytes written a turn", unit="B", value=a_turn("write_bytes"), goal=Goal(limit=1.5)),
    Measure(what="kept bytes a turn", unit="B", value=a_turn("db_bytes_compact"), goal=Goal(limit=1.2)),
    Measure(
        what="late turns against early ones",
        unit="x",
        value=as_is("growth"),
        goal=Goal(limit=1.1, against=Against.VALUE),
        from_turns=GROWTH_TURNS,
    ),
    Measure(what="resume", unit="ms", value=as_is("resume_ms"), goal=Goal(limit=2)),
    Measure(what="fork, one durable turn", unit="ms", value=as_is("forkN_each_ms"), goal=Goal(limit=1.5)),
    Measure(what="kept bytes a fork", unit="B", value=lambda f: f["forkN_bytes"] / f["forks"], goal=None),
    Measure(what="peak memory of the run", unit="MB", value=as_is("rss_mb"), goal=None),
)


def plan(candidate: tuple[Path, str], turns: int, forks: int) -> Plan:
    script, variant = candidate
    return Plan(script=script, variant=variant, turns=turns, fork_at=turns // 2, forks=forks)


def turn_rows(turns: int, forks: int, repetitions: int, scratch: Path | None) -> Iterator[Row]:
    """Both sides alternate, and every other repetition starts with the other side."""
    pairs: list[tuple[Figures, Figures]] = []
    for repetition in range(repetitions):
        sides = [FLOOR, OURS] if repetition % 2 == 0 else [OURS, FLOOR]
        found = {side: measure(plan(side, turns, forks), scratch) for side in sides}
        pairs.append((found[FLOOR], found[OURS]))
    for row in MEASURES:
        if turns >= row.from_turns:
            samples = [Sample(floor=row.value(floor), ours=row.value(ours)) for floor, ours in pairs]
            yield Row(what=f"{turns} turns: {row.what}", unit=row.unit, samples=samples, goal=row.goal)


def sync_rows(scratch: Path | None) -> Iterator[Row]:
    floor, ours = (syncs.per_turn(plan(side, syncs.MANY, 0), scratch) for side in (FLOOR, OURS))
    yield Row(what="syncs a turn", unit="", samples=[Sample(floor=floor.syncs, ours=ours.syncs)])
    bytes_a_turn = [Sample(floor=floor.bytes, ours=ours.bytes)]
    yield Row(what="bytes handed to write a turn", unit="B", samples=bytes_a_turn, goal=Goal(limit=1.5))


def rows(options: argparse.Namespace) -> Iterator[Row]:
    if "micro" in options.only:
        yield from micro.rows()
    if "commits" in options.only:
        yield from commits.rows(options.dir)
    if "worlds" in options.only:
        yield from worlds.rows(options.dir)
    if "sessions" in options.only:
        yield from sessions.rows(options.dir)
    if "kills" in options.only:
        yield from kills.rows()
    if "syncs" in options.only and syncs.available():
        yield from sync_rows(options.dir)
    if "turns" in options.only:
        for turns in options.turns:
            yield from turn_rows(turns, options.forks, options.reps, options.dir)


def numbers(text: str) -> Sequence[int]:
    return [int(part) for part in text.split(",")]


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="bench", description=__doc__)
    result.add_argument("--turns", type=numbers, default=[100, 1000], help="lengths of the runs, comma between")
    result.add_argument("--forks", type=int, default=100)
    result.add_argument("--reps", type=int, default=3, help="repetitions; ratios are medians of theirs")
    result.add_argument("--dir", type=Path, default=None, help="the file system to measure on (default: temporary)")
    result.add_argument(
        "--only", default="micro,commits,worlds,sessions,kills,syncs,turns", help="which groups of rows"
    )
    result.add_argument("--json", action="store_true", help="one object a row")
    return result


def main() -> None:
    options = parser().parse_args()
    if "syncs" in options.only and not syncs.available():
        print("syncs a turn are not counted: strace is not installed", file=sys.stderr)
    found = list(rows(options))
    if options.json:
        print("\n".join(json_lines(found)))
    else:
        print(table(found))
    # A goal that is missed is a finding, not a failure: the gate must not depend on a noisy machine.


if __name__ == "__main__":
    main()
