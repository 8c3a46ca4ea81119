"""Processes at a barrier: all want one run at the same moment."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from arena import EVERY_CLASS, ROUNDS, Arena, Json, servers
from race_judge import twice


@pytest.fixture(scope="module")
def arenas() -> Iterator[Callable[[Path], Arena]]:
    with servers() as making:
        yield making


@pytest.fixture
def arena(arenas: Callable[[Path], Arena], memory: Path) -> Arena:
    return arenas(memory)


def barrier(scenario: str, racers: Sequence[Json], prior: Sequence[Json] = (), *, turn: int = 0) -> Json:
    """They all start at once; from one turn to the next each comes a little later than another."""
    late = [
        {**each, "late_s": ((number + turn) % len(racers)) * 0.0015 * (turn % 4)} for number, each in enumerate(racers)
    ]
    return {"story": "barrier", "scenario": scenario, "prior": list(prior), "racers": late}


def rounds(scenario: str, racers: Sequence[Json], prior: Sequence[Json] = (), *, first: int = 0) -> list[Json]:
    """Several turns, from `first` on."""
    return [barrier(scenario, racers, prior, turn=first + each) for each in range(ROUNDS)]


@pytest.mark.parametrize(("number", "step"), [(2, 0), (3, 0), (8, 0), (3, 1), (8, 3), (2, 5)])
def test_of_all_who_start_or_resume_at_once_one_is_the_owner(number: int, step: int, arena: Arena) -> None:
    """From nothing (step 0), and from several savepoints."""
    prior = [{"do": "run", "kill": f"gap.after:{step}"}] if step else []
    for _, told in arena.all(rounds(EVERY_CLASS, [{"do": "resume" if step else "run"}] * number, prior, first=step)):
        said = [each["said"] for each in told["said"]]
        assert said.count("completed") == 1, said
        assert set(said) <= {"completed", "held", "replayed"}, said
        assert told["attempts"] == (2 if step else 1)
        assert sorted(tag for tag, *_ in told["acts"]) == ["3.i", "4.k", "5.o"]


@pytest.mark.parametrize("step", [0, 3])
@pytest.mark.parametrize(
    "kill", ["claim.after:1", "intent.after:1", "body.after:3", "outcome.before:1", "end.before:1"]
)
def test_one_of_them_dies_in_the_middle(kill: str, step: int, arena: Arena) -> None:
    prior = [{"do": "run", "kill": f"gap.after:{step}"}] if step else []
    do = "resume" if step else "run"
    racers = [{"do": do, "kill": kill}, {"do": do, "kill": kill}, {"do": do}]
    for _, told in arena.all(rounds(EVERY_CLASS, racers, prior, first=step + len(kill))):
        said = [each["said"] for each in told["said"]]
        assert said.count("completed") <= 1, said
        assert set(said) <= {"completed", "held", "replayed", "killed", "waiting"}, said
        assert not list(twice(told["acts"])), told
        assert told["status"] == "completed", told["finish"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"choice": "performed", "value": "A"}, {"choice": "performed", "value": "B"}),
        ({"choice": "performed", "value": "A"}, {"choice": "redo"}),
        ({"choice": "fail"}, {"choice": "performed", "value": "B"}),
    ],
)
def test_two_decide_differently_at_once_and_the_run_follows_the_first(one: Json, other: Json, arena: Arena) -> None:
    """While others resume it: a wait, the winner's way, never a mixture."""
    prior = [{"do": "run", "kill": "body.after:5"}, {"do": "resume"}]
    racers = [{"do": "decide", **one}, {"do": "decide", **other}, {"do": "resume"}, {"do": "resume"}]
    for _, told in arena.all([*rounds(EVERY_CLASS, racers, prior), *rounds(EVERY_CLASS, racers, prior, first=3)]):
        said = [each["said"] for each in told["said"]]
        assert sorted(said[:2]) in (["conflict", "decided"], ["decided", "nothing to decide"]), said
        assert set(said[2:]) <= {"waiting", "held", "completed", "replayed"}, said
        assert said[2:].count("completed") <= 1
        winner = (one, other)[said.index("decided")]
        assert told["decided"] == [["in_doubt", winner["choice"], winner.get("value")]]
        assert told["status"] == "completed"
        last = told["ended"]["points"]["6"]
        wanted = {"A": "'A'", "B": "'B'", None: "error" if winner["choice"] == "fail" else "5.o![1]"}
        assert wanted[winner.get("value")] in last, last
        assert sum(tag == "5.o" for tag, *_ in told["acts"]) == (2 if winner["choice"] == "redo" else 1)


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("wish", ["cancel", "restart", "abandon", "fork"])
def test_a_wish_and_a_resume_at_once(wish: str, step: int, arena: Arena) -> None:
    prior = [{"do": "run", "kill": f"gap.after:{step}"}]
    for _, told in arena.all(rounds(EVERY_CLASS, [{"do": wish}, {"do": "resume"}], prior, first=step)):
        did, resumed = (each["said"] for each in told["said"])
        assert not list(twice(told["acts"])), told
        assert (
            did
            in {
                "cancel": {"cancelled", "running", "held", "conflict"},  # a conflict: it was completed before
                "restart": {"completed", "held"},
                "abandon": {"completed", "held"},
                "fork": {"completed"},
            }[wish]
        ), told["said"]
        assert resumed in {"completed", "held", "replayed", "cancelled", *(["conflict"] if wish == "cancel" else [])}
        assert told["status"] == ("cancelled" if wish == "cancel" and "cancelled" in (did, resumed) else "completed")
        often = [sum(tag == each for tag, *_ in told["acts"]) for each in ("3.i", "4.k", "5.o")]
        assert max(often) <= (2 if wish != "cancel" else 1), told["acts"]
        if wish == "fork":
            assert min(often) == 2  # its own, and the run's


@pytest.mark.parametrize("number", [2, 5])
def test_of_all_who_fork_under_one_id_one_does(number: int, arena: Arena) -> None:
    prior = [{"do": "run", "kill": "gap.after:3"}]
    for _, told in arena.all(rounds(EVERY_CLASS, [{"do": "fork"}] * number, prior)):
        said = [each["said"] for each in told["said"]]
        assert said.count("completed") == 1, said
        assert set(said) <= {"completed", "held", "conflict"}, said
        assert sorted(tag for tag, *_ in told["acts"]) == ["3.i", "3.i", "4.k", "4.k", "5.o", "5.o"]
        assert not list(twice(told["acts"]))


def test_of_all_who_settle_a_world_at_once_one_does(arena: Arena) -> None:
    """Merges, a discard and a resume of a completed run: the host has all of the run's files, or none of them."""
    racers = [{"do": "merge"}, {"do": "discard"}, {"do": "merge"}, {"do": "resume"}]
    for _, told in arena.all(rounds("workspace", racers, [{"do": "run"}])):
        said = [each["said"] for each in told["said"]]
        assert said[3] == "replayed"
        assert set(said[:3]) <= {"merged", "nothing", "discarded", "held", "conflict"}, said
        settled = [each for each in said[:3] if each in ("merged", "discarded")]
        assert len(settled) == 1, said
        assert told["files"] == ({"notes.txt": "one\ntwo\n"} if settled == ["merged"] else {})
