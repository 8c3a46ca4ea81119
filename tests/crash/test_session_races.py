"""Processes at a barrier, on one session and on one run id: nothing is lost, nothing done twice, one owner at a time."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from arena import EXHAUSTIVE
from rig import HERE
from talk import Json, Talk

from savepoint.crash import ForkServer

ROUNDS = range(20 if EXHAUSTIVE else 1)
RACERS = 4
POLICIES = ("resume", "restart", "fail", "resume_only")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer("talks:live", path=[HERE]) as running:
        yield running


@pytest.fixture
def talk(server: ForkServer, memory: Path) -> Talk:
    return Talk(server, memory)


def a_run(run_id: str, said: str, policy: str = "resume") -> Json:
    return {"do": "run", "run_id": run_id, "input": said, "session": "u1", "policy": policy}


# -- one session --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("_", ROUNDS)
def test_runs_of_one_session_at_once_all_land_once_and_whole(_: int, talk: Talk) -> None:
    def acts(racer: int) -> list[Json]:
        return [a_run(name, f"charge {name}; helper charge {name}in, in; transfer_to_b; end")
                for name in (f"r{racer}a", f"r{racer}b")]  # fmt: skip

    dying = [a_run("dying", "charge dying; die d; end")]
    said = talk.race(*(acts(racer) for racer in range(RACERS)), dying)
    assert [[each["status"] for each in racer] for racer in said] == [["completed"] * 2] * RACERS + [[]]
    assert talk.resume(run_id="dying")["status"] == "completed"
    shown = talk.session()
    names = [f"r{racer}{half}" for racer in range(RACERS) for half in "ab"]
    assert sorted(shown["runs"]) == sorted([*names, "dying"])
    assert Counter(shown["counts"]) == {8: 2 * RACERS, 6: 1}
    assert shown["pending"] == []
    assert Counter(talk.ledger) == Counter([*names, *(f"{name}in" for name in names), "dying", "d"])


@pytest.mark.parametrize("_", ROUNDS)
def test_a_rewind_beside_runs_that_land_leaves_whole_runs(_: int, talk: Talk) -> None:
    for name in ("one", "two"):
        talk.run(f"charge {name}; end", run_id=name)
    rewinds = [{"do": "rewind", "session": "u1", "keep": keep} for keep in (7, 4, 2)]
    said = talk.race(*([a_run(f"r{racer}", f"charge r{racer}; end")] for racer in range(RACERS)), rewinds)
    shown = talk.session()
    assert shown["entries"][:1] == ["User(content='charge one; end')"]
    assert shown["pending"] == []
    # By name: who begins lands what others left, and is told of that too.
    names = [f"r{racer}" for racer in range(RACERS)]
    dropped = [
        name
        for name, each in zip(names, said[:-1], strict=True)
        if any(f"run {name!r}" in why and "not appended" in why for why in each[0]["warnings"])
    ]
    assert not set(dropped) & set(shown["runs"]), "a run that was told so did not land"
    assert sorted(talk.ledger) == ["one", *(f"r{racer}" for racer in range(RACERS)), "two"]
    for each in dropped:
        assert "not appended" in talk.run("again", run_id=each)["warnings"][0]
    assert talk.session() == shown


# -- one run id ---------------------------------------------------------------------------------------------------------

WORK = "charge x; die d; transfer_to_b; end"


def brought(talk: Talk, state: str) -> None:
    match state:
        case "killed":
            talk.run(WORK, dies=True)
        case "completed":
            talk.run(WORK, dies=True)
            talk.resume()
        case "not landed":
            talk.run(WORK, dies=True)
            talk.resume(kill="land.before:1")
        case _:
            talk.life({"do": "show"})
            (talk.place / "outside" / "unclear").write_text('"d"\n')  # nobody dies of it


def how(said: Json) -> str:
    """In a word."""
    if "refused" in said:
        return str(said["refused"])
    return "replayed" if said["replayed"] else str(said["status"])


KNOWN = {
    ("none", "resume"): {"completed", "held", "replayed"},
    ("none", "restart"): {"completed", "held"},
    ("none", "fail"): {"completed", "conflict", "held"},
    ("none", "resume_only"): {"not_found"},
    ("killed", "resume"): {"completed", "held", "replayed"},
    ("killed", "restart"): {"completed", "held"},
    ("killed", "fail"): {"conflict"},
    ("killed", "resume_only"): {"completed", "held", "replayed"},
    ("completed", "resume"): {"replayed"},
    ("completed", "restart"): {"completed", "held"},
    ("completed", "fail"): {"conflict"},
    ("completed", "resume_only"): {"replayed"},
}
ALLOWED = KNOWN | {("not landed", policy): KNOWN["completed", policy] for policy in POLICIES}
"""State and policy -> what a racer may be told."""


@pytest.mark.parametrize("_", ROUNDS)
@pytest.mark.parametrize(("state", "policy"), ALLOWED)
def test_of_all_who_want_one_run_at_once_one_is_its_owner(state: str, policy: str, _: int, talk: Talk) -> None:
    brought(talk, state)
    before = Counter(talk.ledger)
    said = [how(each[0]) for each in talk.race(*([a_run("r", WORK, policy)] for _ in range(RACERS)))]
    assert set(said) <= ALLOWED[state, policy], said
    owners = said.count("completed")
    if policy == "restart":
        assert owners >= 1
    else:
        assert owners == ("completed" in ALLOWED[state, policy]), said
    starts = owners if state == "none" or policy == "restart" else 0
    assert talk.ledger.count("x") == before["x"] + starts
    assert talk.ledger.count("d") == before["d"] + owners
    ends_well(talk, there=state != "none" or policy != "resume_only")


def ends_well(talk: Talk, *, there: bool = True) -> None:
    """The run comes to its end, is in the session once, and nothing of it is done again."""
    if there:
        assert talk.run(WORK)["output"] == "b: end"
    shown, done = talk.session(), talk.ledger
    assert (shown["runs"], shown["counts"], shown["pending"]) == ((["r"], [8], []) if there else ([], [], []))
    if there:
        assert talk.run(WORK)["replayed"]
        assert (talk.session(), talk.ledger) == (shown, done)


@pytest.mark.parametrize("_", ROUNDS)
@pytest.mark.parametrize("state", ["none", "killed", "completed", "not landed"])
def test_all_policies_at_once(state: str, _: int, talk: Talk) -> None:
    brought(talk, state)
    before = Counter(talk.ledger)
    racers = [*POLICIES, *POLICIES]
    said = [how(each[0]) for each in talk.race(*([a_run("r", WORK, policy)] for policy in racers))]
    for policy, word in zip(racers, said, strict=True):
        known = ALLOWED[state, policy] | ALLOWED["killed", policy] | ALLOWED["completed", policy]
        assert word in known, "what it would say in some state that the others brought it into"
    owners = [policy for policy, word in zip(racers, said, strict=True) if word == "completed"]
    starts = [policy for policy in owners if state == "none" or policy == "restart"]
    assert talk.ledger.count("x") == before["x"] + len(starts)
    assert talk.ledger.count("d") == before["d"] + len(owners)
    ends_well(talk)
