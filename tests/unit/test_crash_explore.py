"""The explorer on a target of plain files: what is tried, from where, and what is said of it."""

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from savepoint.crash import Explorer, Kill, Life, Schedule, Verdict, Violation
from savepoint.crash._room import Room, fingerprint

STEPS = 3


@define
class Counting:
    """Appends three lines to a file, noting each before it; it may die before any of them. `bad`: it begins anew."""

    bad: bool = False
    never: bool = False
    name: str = "counting"
    variants: Sequence[Mapping[str, Any]] = ({},)
    lived: list[tuple[int, str]] = field(factory=list[tuple[int, str]])

    def live(self, place: Path, past: Sequence[Life], kill: Kill | None, setting: Mapping[str, Any]) -> Life:
        self.lived.append((len(past), str(kill)))
        file = place / "lines"
        done = 0 if self.bad or not file.exists() else len(file.read_text().splitlines())
        arrivals: list[Kill] = []
        lasting: list[str] = []
        for step in range(done, STEPS):
            for point in ("a", "b"):  # two points that leave the same
                if kill == Kill(point, step + 1):
                    return Life(killed=True)
                arrivals.append(Kill(point, step + 1))
                lasting.append(fingerprint(place))
            with file.open("a") as open_file:
                open_file.write(f"{step}\n")
        return Life(done=not self.never, arrivals=arrivals, lasting=lasting, seen=dict(setting))

    def history(self, place: Path, lives: Sequence[Life]) -> list[str]:
        return (place / "lines").read_text().splitlines() if (place / "lines").exists() else []

    def judge(self, history: Any, references: Sequence[Any]) -> list[Violation]:
        return [] if history == references[0] else [Violation(Verdict.DUPLICATE, f"{history}")]


def explorer(tmp_path: Path, **how: Any) -> Explorer:
    return Explorer(workers=[Counting(**how)], place=tmp_path / "rooms")


def test_every_arrival_is_tried_and_a_right_target_passes(tmp_path: Path) -> None:
    right = explorer(tmp_path)
    stories = right.explore(right.singles())
    assert [str(each.schedule) for each in stories] == [f"0@{point}:{n}" for n in (1, 2, 3) for point in "ab"]
    assert {each.verdict for each in stories} == {Verdict.PASS}
    assert right.killed == 6
    assert not any((tmp_path / "rooms").iterdir())  # nothing is left behind


def test_a_wrong_target_is_violated_where_it_is_wrong(tmp_path: Path) -> None:
    wrong = explorer(tmp_path, bad=True)
    stories = wrong.explore(wrong.singles())
    # Killed before its first line it has nothing to repeat.
    assert [each.verdict for each in stories] == [Verdict.PASS] * 2 + [Verdict.DUPLICATE] * 4


def test_second_kills_begin_where_the_first_one_left_off(tmp_path: Path) -> None:
    right = explorer(tmp_path)
    worker = right.workers[0]
    assert isinstance(worker, Counting)
    stories = right.explore([Schedule.parse("0@a:2")], lambda plans: plans)
    assert [str(each.schedule) for each in stories[1:]] == [f"0@a:2,1@{point}:{n}" for n in (2, 3) for point in "ab"]
    assert {each.verdict for each in stories} == {Verdict.PASS}
    # The reference, the first kill and its recovery, then for each pair the second process and the last one only.
    assert [index for index, _ in worker.lived] == [0, 0, 1, *[1, 2] * 4]


def test_of_kills_that_leave_the_same_one_is_tried(tmp_path: Path) -> None:
    right = explorer(tmp_path)
    right.distinct = True
    singles = right.singles()
    assert [kill.nth for each in singles for kill in each.kills.values()] == [1, 2, 3]
    pairs = right.explore([singles[1]], lambda plans: plans)[1:]
    assert [each.schedule.kills[1].nth for each in pairs] == [2, 3]


def test_a_run_that_never_ends_is_stuck(tmp_path: Path) -> None:
    endless = explorer(tmp_path, never=True)
    endless.lives_at_most = 4
    [story] = endless.explore([Schedule()])
    assert story.verdict is Verdict.STUCK
    assert len(story.lives) == 4


def test_what_stories_are_told_the_target_hears(tmp_path: Path) -> None:
    right = explorer(tmp_path)
    [story] = right.explore([Schedule()], jump=7)
    assert story.setting["jump"] == story.lives[0].seen["jump"] == 7


def test_a_room_puts_back_what_was_there(tmp_path: Path) -> None:
    room = Room(tmp_path / "room")
    room.empty(keep_from=1)
    for index in range(3):
        room.before(index)
        (room.live / "file").write_text(str(index))
        (room.live / "link").unlink(missing_ok=True)
        (room.live / "link").symlink_to(f"file{index}")
    before = fingerprint(room.live)
    room.restore(2)
    assert (room.live / "file").read_text() == "1"
    assert (room.live / "link").readlink() == Path("file1")
    assert fingerprint(room.live) != before
    (room.live / "file").write_text("spoiled")
    room.restore(2)  # as often as one likes
    assert (room.live / "file").read_text() == "1"
    with pytest.raises(FileNotFoundError):
        room.restore(0)  # it was not kept


def test_special_files_and_closed_directories_are_no_hindrance(tmp_path: Path) -> None:
    room = Room(tmp_path / "room")
    room.empty(keep_from=0)
    os.mkfifo(room.live / "pipe")
    (room.live / "closed").mkdir()
    (room.live / "closed" / "file").write_text("x")
    (room.live / "closed").chmod(0o500)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(room.live / "socket"))
        room.before(0)
    room.restore(0)
    assert sorted(each.name for each in room.live.iterdir()) == ["closed", "pipe"]
    assert room.live.joinpath("pipe").is_fifo()
    room.clear()
    assert not room.place.exists()


def test_a_fingerprint_is_of_names_modes_and_contents(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "store.db-shm").write_text("volatile")
    seen = [fingerprint(tmp_path)]
    (tmp_path / "store.db-shm").write_text("another")
    assert fingerprint(tmp_path) == seen[0]
    for change in (
        lambda: (tmp_path / "file").write_text("y"),
        lambda: (tmp_path / "file").chmod(0o600),
        lambda: (tmp_path / "file").rename(tmp_path / "other"),
        (tmp_path / "empty").mkdir,
        lambda: (tmp_path / "empty").chmod(0o700),
        lambda: (tmp_path / "link").symlink_to("empty"),
        lambda: _led_elsewhere(tmp_path / "link", "other"),
    ):
        change()
        seen.append(fingerprint(tmp_path))
    assert len(set(seen)) == len(seen)


def _led_elsewhere(link: Path, to: str) -> None:
    link.unlink()
    link.symlink_to(to)
