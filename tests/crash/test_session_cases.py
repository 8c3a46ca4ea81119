"""Public reports about sessions, handoffs and questions of killed agents, each as a story of processes (C16 to C33)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from arena import EXHAUSTIVE
from rig import HERE
from talk import Json, Talk

from savepoint.crash import ForkServer


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer("talks:live", path=[HERE]) as running:
        yield running


@pytest.fixture
def talk(server: ForkServer, memory: Path) -> Talk:
    return Talk(server, memory)


# -- C16: a result is stored whose call is not --------------------------------------------------------------------------

PARKED = "publish news; done"


def is_whole(shown: Json, outcome: str) -> None:
    """The user, the call, its outcome, the answer; in this order."""
    user, asks, found, answer = shown["entries"][:4]
    assert user == f"User(content='{PARKED}')"
    assert "tool='publish'" in asks
    assert outcome in found
    assert "text='a: done'" in answer


@pytest.mark.parametrize(
    ("verdict", "kill"),
    [
        *(("approve", kill) for kill in ("", "end.before:1", "end.after:1", "land.before:1", "land.after:1")),
        *(("deny", kill) for kill in ("", "land.before:1")),
    ],
)
def test_c16_a_parked_call_and_its_outcome_are_in_the_session_together(verdict: str, kill: str, talk: Talk) -> None:
    outcome = {"approve": "!['news']", "deny": "Denied(reason='not now')"}[verdict]
    [question] = talk.run(PARKED)["questions"]
    assert talk.session()["entries"] == []
    talk.decide(question, verdict, note="not now")
    talk.resume(kill=kill)
    landed = kill in ("", "land.after:1")
    assert talk.session()["runs"] == (["r"] if landed else [])
    asked = len(talk.asked)
    again = talk.run("something else", fresh=kill == "land.before:1" and verdict == "approve")
    assert (again["output"], again["ignored"]) == ("a: done", True)
    assert again["replayed"] is (kill != "end.before:1")
    assert len(talk.asked) == asked + (kill == "end.before:1"), "a durable answer is not asked for again"
    is_whole(talk.session(), outcome)
    assert talk.run("hello", run_id="r2")["output"] == "a: hello"
    assert talk.asked[-1]["seen"][-1] == "hello"
    assert len(talk.asked[-1]["seen"]) == 5
    shown = talk.session()
    is_whole(shown, outcome)
    assert (shown["runs"], shown["counts"], shown["pending"]) == (["r", "r2"], [4, 2], [])
    assert shown["timed"] == [True, True]
    assert talk.ledger == (["news"] if verdict == "approve" else [])


@pytest.mark.parametrize("kill", ["end.after:1", "land.before:1"])
def test_c16_the_next_run_of_the_session_heals_it_and_a_repeat_adds_nothing(kill: str, talk: Talk) -> None:
    [question] = talk.run(PARKED)["questions"]
    talk.decide(question, "approve")
    talk.resume(kill=kill)
    assert talk.run("hello", run_id="r2")["status"] == "completed"
    assert len(talk.asked[-1]["seen"]) == 5, "it saw what was not landed yet"
    before = talk.session()
    assert (before["runs"], before["counts"]) == (["r", "r2"], [4, 2])
    assert talk.run(PARKED)["replayed"]
    assert talk.resume()["warnings"] == []
    assert talk.session() == before
    assert talk.ledger == ["news"]


def test_c16_an_abandoned_run_leaves_no_call_in_the_session(talk: Talk) -> None:
    [question] = talk.run(PARKED)["questions"]
    assert talk.run("hello", run_id="r2")["output"] == "a: hello"
    assert talk.asked[-1]["seen"] == ["hello"]
    talk.here("cancel")
    assert talk.decide(question, "approve") != {}
    assert talk.resume()["refused"] == "conflict"
    assert talk.run("hello again", run_id="r3")["status"] == "completed"
    shown = talk.session()
    assert (shown["runs"], shown["counts"], shown["pending"], talk.ledger) == (["r2", "r3"], [2, 2], [], [])


def test_c16_a_parked_run_that_others_overtook_lands_behind_them_whole(talk: Talk) -> None:
    [question] = talk.run(PARKED)["questions"]
    talk.run("charge x; hello", run_id="r2")
    talk.decide(question, "approve")
    assert talk.resume(fresh=EXHAUSTIVE)["status"] == "completed"
    shown = talk.session()
    assert (shown["runs"], shown["counts"], shown["pending"]) == (["r2", "r"], [4, 4], [])
    is_whole({"entries": shown["entries"][4:]}, "!['news']")


# -- C26: two answers, wrong questions ----------------------------------------------------------------------------------


def test_c26_two_equal_calls_of_one_reply_have_questions_of_their_own(talk: Talk) -> None:
    first, second = talk.run("publish A + publish A; done")["questions"]
    assert first["arguments"] == second["arguments"]
    assert first["id"] != second["id"]
    assert talk.decide(second, "approve") == {"decided": "approve"}
    left = talk.resume(fresh=True)
    assert (left["status"], [each["id"] for each in left["questions"]]) == ("waiting", [first["id"]])
    assert talk.ledger == []
    assert talk.decide(first, "deny", note="once is enough") == {"decided": "deny"}
    assert talk.decide(second, "approve") == {"decided": "approve"}
    assert talk.decide(second, "deny")["refused"] == "conflict"
    done = talk.resume()
    assert done["transcript"][2:4] == ["Denied(reason='once is enough')", repr("!['A']")]
    assert talk.ledger == ["A"]


def test_c26_the_same_call_outside_and_inside_an_inner_run_has_two_questions(talk: Talk) -> None:
    asked = talk.run("publish A; helper publish A, fine; done")
    [outer] = asked["questions"]
    talk.decide(outer, "deny", note="not outside")
    [inner] = talk.resume()["questions"]
    assert outer["arguments"] == inner["arguments"]
    assert outer["id"] != inner["id"]
    assert talk.decide(outer, "approve")["refused"] == "conflict"
    talk.decide(inner, "approve")
    done = talk.resume(fresh=EXHAUSTIVE)
    assert (done["status"], done["transcript"][2], done["transcript"][4]) == (
        "completed",
        "Denied(reason='not outside')",
        "'helper: fine'",
    )
    assert talk.ledger == ["A"]


def test_c26_two_inner_runs_that_wait_at_once_are_answered_apart(talk: Talk) -> None:
    waiting = talk.run("helper publish A, first + helper publish B, second; done")
    ids = {each["arguments"]["what"]: each for each in waiting["questions"]}
    assert sorted(ids) == ["A", "B"]
    talk.decide(ids["B"], "approve")
    left = talk.resume(fresh=EXHAUSTIVE)
    assert [each["id"] for each in left["questions"]] == [ids["A"]["id"]]
    assert talk.ledger == []
    talk.decide(ids["A"], "deny", note="no")
    assert talk.resume()["transcript"][2:4] == ["'helper: first'", "'helper: second'"]
    assert talk.ledger == ["B"]


def test_c26_two_calls_of_unknown_end_are_asked_about_apart(talk: Talk) -> None:
    talk.run("charge A + charge B; done", kill="body.after:2")  # the first body is the model's
    done_before = talk.ledger
    asked = {each["arguments"]["what"]: each for each in talk.resume()["questions"]}
    assert sorted(asked) == ["A", "B"]
    for what, question in asked.items():
        if what in done_before:
            talk.decide(question, "performed", value="known")
        else:
            talk.decide(question, "redo")
    assert talk.resume(fresh=EXHAUSTIVE)["status"] == "completed"
    assert sorted(talk.ledger) == ["A", "B"]


# -- C30: a rewound tail returns through a live run ---------------------------------------------------------------------

UNDONE = {"the middle of r2": 4, "the end of r1": 2, "nothing": 0}
STOPS: dict[str, Callable[[Talk], None]] = {
    "interrupted": lambda talk: (talk.run("charge y; die z; three", run_id="r3", dies=True), None)[1],
    "waiting": lambda talk: (talk.run("charge y; publish z; three", run_id="r3"), None)[1],
    "not landed": lambda talk: (talk.run("charge y; put z; three", run_id="r3", kill="land.before:1"), None)[1],
}


@pytest.fixture
def rewound(server: ForkServer, memory: Path) -> Talk:
    """A session with two runs: of two entries, and of four."""
    talk = Talk(server, memory / "rewound")
    talk.place.mkdir()
    talk.run("one", run_id="r1")
    talk.run("charge x; two", run_id="r2")
    assert talk.session()["counts"] == [2, 4]
    return talk


@pytest.mark.parametrize(
    ("where", "stopped"),
    [
        *((where, "interrupted") for where in (*UNDONE, "cleared")),
        ("the middle of r2", "waiting"),
        ("the middle of r2", "not landed"),
        ("the end of r1", "not landed"),
    ],
)
def test_c30_what_was_rewound_comes_back_through_nothing(where: str, stopped: str, rewound: Talk) -> None:
    talk = rewound
    STOPS[stopped](talk)
    if where == "cleared":
        talk.here("clear", session="u1")
    else:
        kept = {4: 3}.get(UNDONE[where], UNDONE[where])  # the call whose outcome is cut off goes too
        assert talk.here("rewind", session="u1", keep=UNDONE[where]) == {"removed": 6 - kept}
    cut = talk.session()
    assert cut["counts"] == {"the middle of r2": [2, 1], "the end of r1": [2]}.get(where, [])
    assert cut["timed"] == {"the middle of r2": [True, False], "the end of r1": [True]}.get(where, [])
    asked, ledger = len(talk.asked), talk.ledger
    fresh = EXHAUSTIVE and where == "the middle of r2"
    for again in (talk.resume(run_id="r3", fresh=fresh), talk.run("charge y; three", run_id="r3")):
        if stopped == "not landed":
            assert again["replayed"]
            assert "its part was not appended" in again["warnings"][0]
        else:  # a waiting one too, before anybody answers what no run will go on with
            assert again["refused"] == "conflict"
            assert "session u1 changed since run r3 began" in again["why"]
            assert "restart" in again["next"]
    assert (len(talk.asked), talk.ledger, talk.session()["entries"]) == (asked, ledger, cut["entries"])
    assert talk.run("four", run_id="r4")["output"] == "a: four"
    assert len(talk.asked[-1]["seen"]) == len(cut["entries"]) + 1
    assert not [each for each in talk.asked[-1]["seen"] if "two" in each.split(": ") or "three" in each]
    shown = talk.session()
    again = talk.run("charge x; two", run_id="r2")
    assert (again["output"], again["replayed"], len(again["warnings"])) == ("a: two", True, 1)
    assert talk.session()["entries"] == shown["entries"]
    assert shown["entries"][: len(cut["entries"])] == cut["entries"]


def test_c30_a_run_that_is_under_way_is_no_part_of_what_is_counted(rewound: Talk) -> None:
    talk = rewound
    STOPS["interrupted"](talk)
    before = talk.session()
    for keep in (6, 7, 8, 100):
        assert talk.here("rewind", session="u1", keep=keep) == {"removed": 0}
    assert talk.session() == before
    assert talk.resume(run_id="r3", fresh=True)["output"] == "a: three"
    assert talk.session()["counts"] == [2, 4, 6]
    assert talk.ledger == ["x", "y", "z"]


def test_c30_a_restart_begins_on_the_session_as_it_is(rewound: Talk) -> None:
    talk = rewound
    STOPS["interrupted"](talk)
    talk.here("rewind", session="u1", keep=2)
    done = talk.run("say anew", run_id="r3", policy="restart")
    assert (done["status"], done["warnings"]) == ("completed", [])
    assert talk.session()["runs"] == ["r1", "r3"]
    redone = talk.run("two again", run_id="r2", policy="restart")
    assert (redone["status"], redone["warnings"]) == ("completed", [])
    assert talk.session()["runs"] == ["r1", "r3", "r2"]


# -- C31: a transfer fired, a crash, the wrong agent goes on ------------------------------------------------------------

OVER = "The conversation is handed over to "


def transfers(result: Json) -> list[str]:
    return [each.strip("'").removeprefix(OVER) for each in result["transcript"] if OVER in each]


def test_c31_killed_beside_a_transfer_the_target_goes_on(talk: Talk) -> None:
    talk.run("transfer_to_b + die s; done", dies=True)
    done = talk.resume(fresh=True)
    assert (done["output"], transfers(done)) == ("b: done", ["b."])
    assert talk.turns == ["a0", "b1"]
    assert talk.asked[-1]["told"] == "you are b"
    assert talk.ledger == ["s"]


FIRST, LAST = "transfer_to_b + put s; done", "put s + transfer_to_b; done"


@pytest.mark.parametrize(
    ("order", "kill", "turns"),
    [
        (FIRST, "reply.before:1", "a0 a0 b1"),
        (FIRST, "reply.after:1", "a0 b1"),
        (LAST, "body.before:2", "a0 b1"),
        (FIRST, "body.after:2", "a0 b1"),
        (LAST, "landed:2", "a0 b1"),
        (FIRST, "gap.before:1", "a0 b1"),
        (FIRST, "gap.after:1", "a0 b1"),
        (LAST, "gap.after:1", "a0 b1"),
        (LAST, "end.before:1", "a0 b1 b1"),
    ],
)
def test_c31_at_every_point_of_the_turn(order: str, kill: str, turns: str, talk: Talk) -> None:
    talk.run(order, kill=kill)
    done = talk.resume(fresh=EXHAUSTIVE and kill == "gap.after:1")
    assert (done["output"], transfers(done)) == ("b: done", ["b."])
    assert talk.turns == turns.split()
    assert set(talk.ledger) == {"s"}
    assert talk.session()["counts"] == [5]


@pytest.mark.parametrize("verdict", ["approve", "deny"])
def test_c31_a_call_that_waits_beside_a_transfer_holds_it_back_and_no_more(verdict: str, talk: Talk) -> None:
    [question] = talk.run("transfer_to_b + publish news; done")["questions"]
    assert talk.resume(graph="removed")["status"] == "waiting"
    talk.decide(question, verdict)
    talk.resume(kill="gap.after:1")
    done = talk.resume()
    assert (done["output"], transfers(done), talk.turns) == ("b: done", ["b."], ["a0", "b1"])
    assert talk.ledger == (["news"] if verdict == "approve" else [])


@pytest.mark.parametrize("saved", [1, 2, 3])
def test_c31_there_and_back_each_owed_turn_is_run_once(saved: int, talk: Talk) -> None:
    talk.run("transfer_to_b + charge 1; charge 2 + transfer_to_a; charge 3; done", kill=f"gap.after:{saved}")
    done = talk.resume(fresh=EXHAUSTIVE and saved == 2)
    assert (done["output"], transfers(done)) == ("a: done", ["b.", "a."])
    assert talk.turns == ["a0", "b1", "a2", "a3"]
    assert talk.ledger == ["1", "2", "3"]


def test_c31_killed_after_each_savepoint_in_turn(talk: Talk) -> None:
    talk.run("transfer_to_b + charge 1; charge 2 + transfer_to_a; transfer_to_b; done", kill="gap.after:1")
    for _ in range(2):
        talk.resume(kill="gap.after:1")
    done = talk.resume(fresh=EXHAUSTIVE)
    assert (done["output"], transfers(done)) == ("b: done", ["b.", "a.", "b."])
    assert talk.turns == ["a0", "b1", "a2", "b3"]
    assert talk.ledger == ["1", "2"]


@pytest.mark.parametrize("kill", ["", "gap.after:1", "end.before:1"])
def test_c31_a_target_that_cannot_be_set_up_stays_the_target(kill: str, talk: Talk) -> None:
    talk.run("transfer_to_b + charge s; done", graph="b is away", kill=kill)
    stopped = talk.resume(graph="b is away")
    assert (stopped["status"], stopped["error"]) == ("interrupted", "b cannot be set up")
    done = talk.resume(fresh=EXHAUSTIVE and kill == "")
    assert (done["output"], transfers(done), talk.turns, talk.ledger) == ("b: done", ["b."], ["a0", "b1"], ["s"])


# -- C33: agents of one name, or rebuilt --------------------------------------------------------------------------------


def test_c33_two_agents_of_one_name_neither_start_nor_resume(talk: Talk) -> None:
    refused = talk.run("hello", graph="twins")
    assert (refused["refused"], "two agents are named 'b'" in refused["why"]) == ("usage", True)
    assert talk.session()["pending"] == []
    talk.run("transfer_to_b; charge x; die y; done", dies=True)
    before = talk.here("show")
    for again in (talk.resume(graph="twins", fresh=EXHAUSTIVE), talk.run("hello", graph="twins")):
        assert (again["refused"], "two agents are named 'b'" in again["why"]) == ("usage", True)
    assert talk.here("show") == before
    done = talk.resume(fresh=True)
    assert (done["output"], talk.turns, talk.ledger) == ("b: done", ["a0", "b1", "b2", "b3"], ["x", "y"])


@pytest.mark.parametrize(("changed", "known"), [("renamed", "a, bee, helper"), ("removed", "a, helper")])
@pytest.mark.parametrize("stopped", ["under the target", "before the switch"])
def test_c33_a_renamed_or_removed_agent_is_a_hard_error_that_names_the_known_ones(
    changed: str, known: str, stopped: str, talk: Talk
) -> None:
    if stopped == "under the target":
        talk.run("transfer_to_b; charge x; die y; done", dies=True)
    else:
        talk.run("transfer_to_b + charge x; put y; done", kill="gap.after:1")
    before, asked = talk.here("show"), talk.turns
    for again in (
        talk.resume(graph=changed, fresh=(changed, stopped) == ("renamed", "under the target")),
        talk.run("hello", graph=changed),
    ):
        assert again["refused"] == "usage"
        assert "names the agent 'b', which 'a' does not reach" in again["why"]
        assert all(f"{name}" in again["why"] for name in known.split(", "))
        assert "its name back" in again["next"]
    assert (talk.here("show"), talk.turns) == (before, asked)
    assert talk.resume(fresh=EXHAUSTIVE and stopped == "under the target")["output"] == "b: done"
    assert talk.ledger == ["x", "y"]


@pytest.mark.parametrize("changed", ["renamed", "removed", "another entry"])
def test_c33_a_completed_run_replays_whatever_became_of_its_agents(changed: str, talk: Talk) -> None:
    talk.run("transfer_to_b + charge x; done", kill="land.before:1")
    asked = talk.turns
    for again in (
        talk.resume(graph=changed, fresh=EXHAUSTIVE and changed == "removed"),
        talk.run("hello", graph=changed),
    ):
        assert (again["output"], again["replayed"]) == ("b: done", True)
        gone = [each for each in again["warnings"] if "run r was one of agent 'a', which is not here any more" in each]
        assert len(gone) == (changed == "another entry")
    assert talk.turns == asked
    assert (talk.session()["runs"], talk.ledger) == (["r"], ["x"])


# -- a run inside a run -------------------------------------------------------------------------------------------------


def test_killed_inside_an_inner_run_it_goes_on_inside(talk: Talk) -> None:
    talk.run("helper charge x, note kept & die y, charge z, in; charge out; end", dies=True)
    assert talk.ledger == ["x"]
    done = talk.resume(fresh=True)
    assert (done["status"], done["transcript"][2]) == ("completed", "'helper: in'")
    assert talk.ledger == ["x", "y", "z", "out"]
    assert talk.turns == ["a0", "helper0", "helper1", "helper2", "helper3", "a1", "a2"]
    [nested] = talk.here("nested")["nested"]
    own = talk.resume(run_id=nested)
    assert (own["refused"], own["next"]) == ("usage", "savepoint resume r")
    assert list((talk.place / "files").iterdir()) == [], "the host is untouched"


@pytest.mark.parametrize("kill", ["create.after:2", "gap.after:1", "gap.after:2", "end.before:1", "end.after:1"])
def test_killed_at_the_boundaries_of_an_inner_run(kill: str, talk: Talk) -> None:
    talk.run("helper charge x, charge y, in; charge z; end", kill=kill)
    done = talk.resume(fresh=EXHAUSTIVE and kill == "end.after:1")
    assert (done["status"], done["transcript"][2]) == ("completed", "'helper: in'")
    assert talk.ledger == ["x", "y", "z"]
    assert len(talk.here("nested")["nested"]) == 1
    assert talk.session()["runs"] == ["r"]
