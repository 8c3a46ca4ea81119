"""Clocks that jump by days, forward and back, and that stand still: nothing is repeated, lost or put in another order.

The wall clock orders nothing and ends no lease; it is asked for windows and ages alone. The boot clock ends leases.
Each life is a process; only what its clocks say is made up (`small.py`).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import acts, entered, named
from lives import Lives
from small_program import MAX_AGE_S, WINDOW_S, Json, lines

DAY_S = 86_400.0
PLAN = "note a;send 1|read x;pay 2|put 3;send 4"
ACTS = ["send 1", "pay 2", "send 4"]
CLOCKS: dict[str, list[Json]] = {
    "back by days": [{}, {"wall_s": -3 * DAY_S}, {"wall_s": -6 * DAY_S}, {"wall_s": -9 * DAY_S}],
    "forward by days": [{}, {"wall_s": 3 * DAY_S}, {"wall_s": 6 * DAY_S}, {"wall_s": 9 * DAY_S}],
    "forth and back": [{"wall_s": 3 * DAY_S}, {"wall_s": -3 * DAY_S}, {"wall_s": 30 * DAY_S}, {}],
    "frozen": [{"frozen": True, "wall_s": 0.0}] * 4,
    "boot clock forward by days": [{}, {"boot_s": 3 * DAY_S}, {"boot_s": 6 * DAY_S}, {"boot_s": 9 * DAY_S}],
    "boot clock far back": [{"boot_s": 9 * DAY_S}, {"boot_s": 6 * DAY_S}, {"boot_s": 3 * DAY_S}, {}],
}
"""What the clocks of a run's processes say, one after the other."""
KILLS = [("gap.after", 1), ("outcome.after", 1), ("body.after", 1), ("intent.after", 1), ("end.before", 1)]


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    with Lives() as server:
        yield server


@pytest.fixture(scope="module")
def reference(lives: Lives, tmp_path_factory: pytest.TempPathFactory) -> Json:
    return lives.lived(place=tmp_path_factory.mktemp("reference"), plan=PLAN)[1]


@pytest.mark.parametrize("clocks", CLOCKS)
def test_wherever_a_process_dies_the_next_one_goes_on_by_any_clock(
    lives: Lives, clocks: str, memory: Path, reference: Json
) -> None:
    for number, kill in enumerate(KILLS):
        place = memory / str(number)
        place.mkdir()
        report: Json = {}
        for index, clock in enumerate(CLOCKS[clocks]):
            die = kill if index < 2 else None
            code, report = lives.lived(place=place, plan=PLAN, die=die, decide="truth", **clock)
            if code == 0 and report["status"] == "completed":
                break
        if report["status"] == "waiting":  # a window that cannot be trusted any more was asked about
            assert report["questions"] == ["in_doubt"], (kill, report)
            report = lives.lived(place=place, plan=PLAN, decide="truth", **CLOCKS[clocks][-1])[1]
        assert report["value"] == reference["value"], (kill, report)
        assert report["step"] == reference["step"]
        assert acts(place) == ACTS, kill
        assert {each["what"] for each in report["points"]} == {each["what"] for each in reference["points"]}
        assert [each["step"] for each in report["points"]] == [0, 1, 2]


def in_doubt(lives: Lives, place: Path, plan: str) -> None:
    """The process died inside `pay`, which had happened."""
    assert lives.lived(place=place, plan=plan, die=("body.after", 1))[0] < 0
    assert acts(place) == ["pay 1"]


@pytest.mark.parametrize(
    ("wall_s", "asked"),
    [
        (0.0, False),
        (0.8 * WINDOW_S, False),
        (WINDOW_S, True),
        (3 * DAY_S, True),
        # Before its own intent: nobody knows how long that is ago.
        (-60.0, True),
        (-3 * DAY_S, True),
    ],
)
def test_a_window_is_trusted_only_by_a_clock_that_can_be_right(
    lives: Lives, wall_s: float, asked: bool, memory: Path
) -> None:
    in_doubt(lives, memory, "pay 1")
    report = lives.lived(place=memory, plan="pay 1", wall_s=wall_s)[1]
    assert report["status"] == ("waiting" if asked else "completed")
    assert report["questions"] == (["in_doubt"] if asked else [])
    assert entered(memory) == ["pay 1"] * (1 if asked else 2)  # with its key again, which the remote knows
    assert acts(memory) == ["pay 1"]


@pytest.mark.parametrize(
    ("wall_s", "again"),
    [(0.0, False), (0.5 * MAX_AGE_S, False), (2 * MAX_AGE_S, True), (3 * DAY_S, True), (-60.0, True)],
)
def test_a_reading_is_taken_again_when_it_is_too_old_or_of_the_future(
    lives: Lives, wall_s: float, again: bool, memory: Path
) -> None:
    assert lives.lived(place=memory, plan="aged x;note a", die=("snapshot.after", 1))[0] < 0
    before = len(lines(memory / "outside", "reads"))
    report = lives.lived(place=memory, plan="aged x;note a", wall_s=wall_s)[1]
    assert report["status"] == "completed"
    assert len(lines(memory / "outside", "reads")) - before == again


@pytest.mark.parametrize("wall_s", [-3 * DAY_S, 3 * DAY_S])
def test_a_reading_that_something_outside_rests_on_is_not_taken_again_by_any_clock(
    lives: Lives, wall_s: float, memory: Path
) -> None:
    assert lives.lived(place=memory, plan="aged x;send 1;note a", die=("body.before", 3))[0] < 0
    report = lives.lived(place=memory, plan="aged x;send 1;note a", wall_s=wall_s)[1]
    assert report["status"] == "completed"
    assert lines(memory / "outside", "reads") == ["x"]
    assert acts(memory) == ["send 1"]


@pytest.mark.parametrize("clock", [{"wall_s": -3 * DAY_S}, {"wall_s": 3 * DAY_S}, {"wall_s": 0.0, "frozen": True}])
def test_a_living_owner_keeps_its_run_whatever_the_wall_clock_says(lives: Lives, clock: Json, memory: Path) -> None:
    with Lives() as others, lives.stopped(("intent.before", 1), place=memory, plan=PLAN) as owner:
        before = entered(memory)
        named(others.lived(place=memory, plan=PLAN, **clock)[1], "Held")
        assert entered(memory) == before
        assert owner.go_on()["status"] == "completed"
    assert acts(memory) == ACTS


@pytest.mark.parametrize("lease_s", [0.2, 30.0])
def test_who_believes_that_the_lease_ran_out_takes_over_and_the_owner_enters_nothing_more(
    lives: Lives, lease_s: float, memory: Path, reference: Json
) -> None:
    """The heir's boot clock is days ahead. The owner's says the same as before, and it is told by the store."""
    with Lives() as others, lives.stopped(("intent.before", 1), place=memory, plan=PLAN, lease_s=lease_s) as owner:
        heir = others.lived(place=memory, plan=PLAN, boot_s=3 * DAY_S)[1]
        assert heir["value"] == reference["value"]
        before = entered(memory)
        named(owner.go_on(), "Held")
    assert entered(memory) == before
    assert acts(memory) == ACTS


def test_an_owner_whose_boot_clock_stands_still_is_fenced_by_the_store(
    lives: Lives, memory: Path, reference: Json
) -> None:
    """It never sees its own lease run out; what it would write is refused all the same."""
    request: Json = {"place": memory, "plan": PLAN, "lease_s": 0.2, "frozen": True, "wall_s": 0.0}
    with Lives() as others, lives.stopped(("intent.before", 1), **request) as owner:
        report = others.lived(place=memory, plan=PLAN, boot_s=60.0)[1]
        assert report["value"] == reference["value"]
        before = entered(memory)
        named(owner.go_on(), "Held")
    assert entered(memory) == before
    assert acts(memory) == ACTS
