"""One run, several processes that want it, at any moment: one acts, the others touch nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from arena import EVERY_CLASS, EXHAUSTIVE, LEASE_S, Arena, Json, ended_alike, servers, some
from race_judge import double_owner, twice

from savepoint.crash import Verdict


@pytest.fixture(scope="module")
def arenas() -> Iterator[Callable[[Path], Arena]]:
    with servers() as making:
        yield making


@pytest.fixture
def arena(arenas: Callable[[Path], Arena], memory: Path) -> Arena:
    return arenas(memory)


# -- an owner that sleeps -----------------------------------------------------------------------------------------------

FRESH: Json = {"owner": {"do": "run"}}
PARKED: Json = {
    "prior": [{"do": "run", "kill": "body.after:5"}, {"do": "resume"}],
    "owner": {"do": "resume", "answer": True},
}
"""A ONCE call is in doubt; the owner brings the answer."""
SLEEPERS: dict[str, tuple[str, Json]] = {
    "a turn": (EVERY_CLASS, FRESH),
    "a turn of parallel calls": ("READ, ONCE, CONTAINED", FRESH),
    "a turn on files": ("READ of a file", FRESH),
    "recovery by an answer": (EVERY_CLASS, PARKED),
    "recovery by a probe": (
        "ONCE with a probe that is not final",
        {"prior": [{"do": "run", "kill": "body.after:1"}], "owner": {"do": "resume"}},
    ),
    "recovery that asks": (EVERY_CLASS, {"prior": [{"do": "run", "kill": "body.after:5"}], "owner": {"do": "resume"}}),
    "recovery on files": (
        "READ of a file",
        {"prior": [{"do": "run", "kill": "gap.after:1"}], "owner": {"do": "resume"}},
    ),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SLEEPERS)
def test_an_owner_that_slept_past_its_lease_does_nothing_more(name: str, arena: Arena) -> None:
    """Stopped at every named point, of a turn and of a recovery; somebody else finishes; it wakes up."""
    scenario, story = SLEEPERS[name]
    story = {"scenario": scenario, **story}
    reference, points = arena.points(story)
    assert len(points) > 5
    stops = [each for each in points if not each.startswith("claim.before")]  # see the test of claims
    wrong: list[str] = []
    for told_story, told in arena.all([_sleeping(story, each) for each in some(stops)]):
        found = [*map(str, double_owner(told)), *ended_alike(told, reference)]
        if told.get("unreached"):
            found.append("it never got there")
        elif told["owner"]["said"] not in (("completed", "waiting") if "end.after" in told["stop"] else ("held",)):
            found.append(f"the owner ended with {told['owner']}")
        wrong += [f"{told_story['owner']['stop']}: {each}" for each in found]
    assert not wrong, "\n".join(wrong)


def _sleeping(story: Json, stop: str, **more: Any) -> Json:
    owner = {**story["owner"], "lease_s": LEASE_S, "stop": stop}
    return {**story, "story": "sleeper", "other": {"do": "finish"}, **more, "owner": owner}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["a turn", "a turn on files", "recovery by an answer", "recovery on files"])
def test_nor_does_it_disturb_an_heir_that_is_still_at_work(name: str, arena: Arena) -> None:
    """The heir stops too, in the middle; the owner wakes up, or dies; the heir goes on."""
    scenario, story = SLEEPERS[name]
    story = {"scenario": scenario, **story}
    reference, points = arena.points(story)
    recovery = [
        "claim.after:1",
        "fork.before:1",
        "fork.after:1",
        "enter:1",
        "body.before:1",
        "landed:1",
        "gap.before:1",
    ]
    stops = [each for each in points if not each.startswith(("claim.before", "create", "end"))]
    stories: list[Json] = []
    for number, stop in enumerate(some(stops, 1)):
        for between in recovery if EXHAUSTIVE else [recovery[number % len(recovery)]]:
            ends = "killed" if number % 5 == 4 else "wakes"
            stories.append(_sleeping(story, stop, ends=ends, other={"do": "finish", "stop": between}))
    wrong: list[str] = []
    for told_story, told in arena.all(stories):
        found = [*map(str, double_owner(told)), *ended_alike(told, reference)]
        if told["between"] and told["other"]["said"] != "completed":
            found.append(f"the heir ended with {told['other']}")
        where = f"owner at {told['stop']}, {told_story['ends']}; heir at {told_story['other']['stop']}"
        wrong += [f"{where}: {each}" for each in found]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("stop", ["claim.after:1", "fork.before:1"])
@pytest.mark.parametrize("between", ["fork.after:1", "enter:1", "body.before:1"])
def test_an_owner_that_slept_before_it_forked_leaves_the_heirs_world_alone(
    stop: str, between: str, arena: Arena
) -> None:
    scenario, story = SLEEPERS["recovery on files"]
    story = {"scenario": scenario, **story}
    reference, _ = arena.points(story)
    told = arena.tell(**_sleeping(story, stop, other={"do": "finish", "stop": between}))
    assert told["between"]
    assert (told["owner"]["said"], told["other"]["said"]) == ("held", "completed")
    assert [*map(str, double_owner(told)), *ended_alike(told, reference)] == []


@pytest.mark.parametrize("stop", ["act.before", "act.after"])
def test_an_answer_from_outside_to_an_owner_that_was_fenced_is_lost_to_it_and_asked_about(
    stop: str, arena: Arena
) -> None:
    """Inside the body of a ONCE call: the request leaves, or its answer comes, when another one holds the run."""
    story = {"scenario": EVERY_CLASS, "owner": {"do": "run", "tag": "5.o"}}
    told = arena.tell(**_sleeping(story, stop))
    assert not list(double_owner(told))
    assert told["owner"]["said"] == "held"
    choice = "redo" if stop == "act.before" else "performed"
    assert [each[:2] for each in told["decided"]] == [["in_doubt", choice]]
    assert sum(tag == "5.o" for tag, *_ in told["acts"]) == (2 if stop == "act.before" else 1)
    assert told["status"] == "completed"


def test_a_once_call_in_the_documented_gap_is_asked_about_and_never_silently_doubled(arena: Arena) -> None:
    story = {"scenario": EVERY_CLASS, **FRESH}
    told = arena.tell(**_sleeping(story, "body.before:5"))
    assert told["entered"] == ["5.o"]
    assert [each[:2] for each in told["decided"]] == [["in_doubt", "redo"]]
    assert not told["written"]
    assert told["owner"]["said"] == "held"


def test_who_stops_on_the_way_to_its_claim_blocks_it_until_it_wakes_up_or_dies(arena: Arena) -> None:
    """It holds the lock of the next attempt and has no lease yet: nothing tells how long to wait for it."""
    story = {"scenario": EVERY_CLASS, "prior": [{"do": "run", "kill": "gap.after:3"}], "owner": {"do": "resume"}}
    for ends, owner in (("wakes", "completed"), ("killed", "killed")):
        other = {"do": "finish", "patience_s": 4 * LEASE_S}
        told = arena.tell(**_sleeping(story, "claim.before:1", other=other, ends=ends))
        assert told["other"]["said"] == "held"
        assert "being claimed" in told["other"]["why"]
        assert told["owner"]["said"] == owner
        assert told["status"] == "completed"
        assert not list(twice(told["acts"]))


# -- other wishes about a run -------------------------------------------------------------------------------------------


@pytest.mark.timeout(900)
@pytest.mark.parametrize("wish", ["resume", "run", "cancel", "restart", "abandon", "fork"])
def test_a_wish_about_a_run_whose_owner_is_stopped_within_its_lease(wish: str, arena: Arena) -> None:
    """The owner lives: whoever wants its run is told so, and it goes on as if nothing had been."""
    story = {"scenario": EVERY_CLASS, "prior": [{"do": "run", "kill": "gap.after:2"}], "owner": {"do": "resume"}}
    reference, points = arena.points(story)
    stops = [each for each in points if not each.startswith(("claim.before", "end.after"))]
    told_all = arena.all([_living(story, wish, each) for each in some(stops, 2)[::2]])
    wrong: list[str] = []
    for told_story, told in told_all:
        found = [*map(str, twice(told["acts"]))]
        expected = {"cancel": "running", "fork": "completed"}.get(wish, "held")
        if told["other"]["said"] != expected:
            found.append(f"{wish} ended with {told['other']}")
        if wish == "cancel":
            if (told["owner"]["said"], told["status"]) not in (("cancelled", "cancelled"), ("completed", "completed")):
                found.append(f"the owner ended with {told['owner']}, the run is {told['status']}")
        elif told["owner"]["said"] != "completed":
            found.append(f"the owner ended with {told['owner']}")
        elif wish != "fork":
            found += ended_alike(told, reference)
        wrong += [f"{told_story['owner']['stop']}: {each}" for each in found]
    assert not wrong, "\n".join(wrong)


def _living(story: Json, wish: str, stop: str) -> Json:
    return {**story, "story": "sleeper", "other": {"do": wish}, "owner": {**story["owner"], "stop": stop}}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("wish", ["cancel", "restart", "abandon", "fork"])
def test_a_wish_about_a_run_whose_owner_slept_past_its_lease(wish: str, arena: Arena) -> None:
    story = {"scenario": EVERY_CLASS, "prior": [{"do": "run", "kill": "gap.after:2"}], "owner": {"do": "resume"}}
    _, points = arena.points(story)
    stops = [each for each in points if not each.startswith(("claim.before", "end.after"))]
    other = {"do": wish, "patience_s": 5.0}
    wrong: list[str] = []
    slept = [_sleeping(story, each, other=other, pause_s=2 * LEASE_S) for each in some(stops, 3)[::2]]
    for told_story, told in arena.all(slept):
        found: list[str] = []
        stop, said = told["stop"], told["other"]["said"]
        doubt = stop.partition(":")[0] in ("intent.after", "body.before", "body.after", "landed", "outcome.before")
        expected = {
            "cancel": {"cancelled"},
            # The KEYED and the ONCE call are in doubt then: a restart would forget them.
            "restart": {"completed", "conflict"} if doubt else {"completed"},
            "abandon": {"completed"},
            "fork": {"completed"},
        }[wish]
        if said not in expected:
            found.append(f"{wish} ended with {told['other']}")
        if wish != "fork" and said != "conflict":
            found += map(str, double_owner({**told, "finish": {"said": ""}}))
            if told["owner"]["said"] != "held":
                found.append(f"the owner ended with {told['owner']}")
        if told["status"] != ("cancelled" if wish == "cancel" else "completed"):
            found.append(f"the run is {told['status']}")
        wrong += [f"{told_story['owner']['stop']}: {each}" for each in found]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("wish", ["resume", "run", "restart", "fork"])
def test_who_reads_while_the_owner_writes_takes_nothing_for_damaged(wish: str, arena: Arena) -> None:
    """It has read the head of a lineage, then the owner goes on to its end, then it reads the events."""
    story = {"scenario": EVERY_CLASS, "prior": [{"do": "run", "kill": "gap.after:3"}], "story": "sleeper"}
    told = arena.tell(**story, owner={"do": wish, "stop": "reading"}, other={"do": "resume"})
    assert told["other"]["said"] == "completed"
    said, why = told["owner"]["said"], told["owner"].get("why", "")
    assert said in ("held", "replayed", *(["completed"] if wish in ("restart", "fork") else [])), why
    assert not list(twice(told["acts"]))


# -- the judge ----------------------------------------------------------------------------------------------------------


def test_the_judge_knows_double_owners() -> None:
    good: Json = {"stop": "gap.before:1", "written": [], "entered": [], "acts": [["5.o", "once", "k"]],
                  "owner": {"said": "held"}, "other": {"said": "completed"}, "doubted": ["k"]}  # fmt: skip
    assert not list(double_owner(good))
    two = [["5.o", "once", "k"], ["5.o", "once", "k"]]
    bad: list[tuple[Json, Verdict]] = [
        ({"written": ["ledger"]}, Verdict.DOUBLE_OWNER),
        ({"entered": ["5.o"]}, Verdict.DOUBLE_OWNER),
        ({"stop": "body.before:5", "entered": ["5.o", "6.x"]}, Verdict.DOUBLE_OWNER),
        ({"owner": {"said": "completed"}}, Verdict.DOUBLE_OWNER),
        ({"acts": two}, Verdict.DUPLICATE),
        ({"stop": "body.before:5", "acts": two, "doubted": []}, Verdict.DUPLICATE),
    ]
    for changes, verdict in bad:
        assert [each.verdict for each in double_owner({**good, **changes})] == [verdict], changes
    assert not list(double_owner({**good, "stop": "body.before:5", "entered": ["5.o"], "acts": two}))


GRADED: dict[str, Json] = {
    "no fencing": _sleeping({"scenario": EVERY_CLASS, **FRESH}, "gap.before:1"),
    "no lease check": _sleeping({"scenario": EVERY_CLASS, **FRESH}, "intent.after:3"),
    "living owner ignored": _living({"scenario": EVERY_CLASS, **FRESH}, "resume", "body.before:2"),
    "claim without compare-and-set": {
        "story": "sleeper",
        "scenario": EVERY_CLASS,
        "prior": [{"do": "run", "kill": "gap.after:3"}],
        "owner": {"do": "resume", "stop": "reading"},
        "other": {"do": "resume"},
    },
}


@pytest.mark.parametrize("fault", GRADED)
def test_a_fault_in_who_may_act_is_seen(fault: str, arena: Arena) -> None:
    story = GRADED[fault]
    sound = arena.tell(**story)
    guilty = "other" if fault == "living owner ignored" else "owner"
    faulty = arena.tell(**{**story, guilty: {**story[guilty], "sabotage": fault}})
    if fault == "living owner ignored":
        assert (sound["other"]["said"], faulty["other"]["said"]) == ("held", "completed")
        return
    slept = {} if "lease_s" in story["owner"] else {"written": [], "entered": []}
    assert not list(double_owner({**sound, **slept}))
    assert list(double_owner({**faulty, **slept}))
