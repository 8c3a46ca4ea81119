"""Public reports about agents that were killed, each told again as a story of processes (the case list's numbers)."""

from collections import Counter
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from agent_server import AgentServer, FreshServer, Story


@pytest.fixture(scope="module")
def agents() -> Iterator[AgentServer]:
    with AgentServer() as running:
        yield running


def asked_about(report: dict[str, Any]) -> list[tuple[str, str, Any]]:
    return [(each["kind"], each["effect"], each["arguments"]) for each in report["shown"]]


# -- C02: done, and killed before its record --------------------------------------------------------------------------

BODY = 2
"""The second body of a run: the first one is the model's."""


def test_a_call_that_never_began_is_made_once(agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "ONCE")
    story.life(kill=["reply.before", 1])
    assert story.life()["status"] == "completed"
    assert len(story.ledger) == 1


@pytest.mark.parametrize(
    ("point", "nth", "lines"),
    [
        ("reply.after", 1, 0),
        ("body.before", BODY, 0),
        ("body.after", BODY, 1),
        ("landed", BODY, 1),
        ("gap.before", 1, 1),
    ],
)
def test_a_once_call_of_unknown_end_waits_and_is_named(
    point: str, nth: int, lines: int, agents: AgentServer, memory: Path
) -> None:
    story = Story(FreshServer(agents) if point == "body.after" else agents, memory, "ONCE")
    story.life(kill=[point, nth])
    assert len(story.ledger) == lines
    waiting = story.life()
    assert (waiting["status"], asked_about(waiting)) == ("waiting", [("in_doubt", "post", {"what": "x"})])
    assert "may have happened" in waiting["shown"][0]["why"]
    assert len(story.ledger) == lines
    done = story.life(answer=True)
    assert (done["status"], len(story.ledger)) == ("completed", 1)
    assert story.ledger[0].value in done["transcript"]


def test_a_stored_result_is_used(agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "ONCE x 3")
    story.life(kill=["outcome.after", 1])
    waiting = story.life()
    settled = [effect for effect, status in waiting["receipts"].values() if (effect, status) == ("post", "performed")]
    assert len(settled) == 1
    assert len(waiting["shown"]) == 2
    assert story.life(answer=True)["status"] == "completed"
    assert Counter(act.tag for act in story.ledger) == {"0.0": 1, "0.1": 1, "0.2": 1}


@pytest.mark.parametrize("point", ["body.before", "body.after", "landed"])
def test_an_idempotent_call_is_redone_without_asking(point: str, agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "IDEMPOTENT")
    story.life(kill=[point, BODY])
    before = len(story.ledger)
    assert story.life()["status"] == "completed"
    assert len(story.ledger) == before + 1
    assert len({(act.key, act.value) for act in story.ledger}) == 1


# -- C04: the program was changed between -----------------------------------------------------------------------------

WORK = {
    "R": "0.0.sendR!['R']",
    "W": "0.0.sendW!['W']",
    "V": "0.0.sendV!['V']",
    "P": "0.0.sendP!['P']",
    "r": "0.0.send!['r']",
}


@pytest.mark.parametrize("work", ["PRWV", "WRV", "rWV"])
def test_a_receipt_answers_its_own_call_only(work: str, agents: AgentServer, memory: Path) -> None:
    story = Story(FreshServer(agents) if work == "PRWV" else agents, memory, "work")
    story.life(kill=["intent.before", 3])  # R and W are performed, V is not begun
    changed = story.life(work=list(work))
    if work[0] in "RW":
        assert changed["status"] == "completed"
    else:
        assert changed["status"] == "waiting"
        assert ("diverged", "inner/send", {"what": "R"}) in asked_about(changed)
        assert [act.arguments for act in story.ledger] == [["R"], ["W"]]
        changed = story.life(work=list(work), answer=True)
    assert changed["status"] == "completed"
    assert repr([WORK[each] for each in work]) in changed["transcript"]
    assert Counter(str(act.arguments[0]) for act in story.ledger) == Counter({*"RW", *work})


# -- C05: parallel calls end in any order -----------------------------------------------------------------------------


def test_the_order_of_completion_is_no_part_of_the_record(agents: AgentServer, memory: Path) -> None:
    identities: set[str] = set()
    orders: set[tuple[str, ...]] = set()
    for number in range(20):
        story = Story(agents, memory / str(number), "three puts")
        ranks = list(list(permutations(range(3)))[number % 6])
        if number % 4 == 0:
            story.life(ranks=ranks, kill=["gap.before", 1])
        ended = story.life(ranks=ranks)
        assert ended["status"] == "completed"
        identities.add(repr((sorted(ended["ended"]["ids"].items()), ended["transcript"])))
        orders.add(tuple(act.tag for act in story.ledger[:3]))
    assert len(identities) == 1
    assert len(orders) == 6


# -- C22: limits hold over all processes ------------------------------------------------------------------------------


def test_a_limit_of_turns_holds_over_all_processes_and_so_does_a_grant(agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "many turns")
    story.life(kill=["gap.before", 7])
    story.life(kill=["gap.before", 3])
    waiting = story.life()
    assert (waiting["status"], waiting["step"]) == ("waiting", 10)
    assert [each["kind"] for each in waiting["shown"]] == ["budget"]
    assert story.asked == list(range(10))
    assert story.life()["status"] == "waiting"
    story.life(answer=True, grant=3, kill=["gap.before", 2])
    story.life(kill=["gap.before", 2])
    again = story.life()  # what was granted holds here too
    assert (again["status"], again["step"]) == ("waiting", 13)
    assert len({act.tag for act in story.ledger}) == 13
    assert [each["kind"] for each in again["shown"]] == ["budget"]
    assert story.asked == list(range(13))
    failed = story.life(answer=True, budget="fail")
    assert failed["status"] == "failed"
    assert "limit of 13" in failed["error"]


def test_a_fork_brings_no_turns_with_it(agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "many turns")
    assert story.life()["status"] == "waiting"
    forked = story.life(fork=8)
    assert (forked["status"], forked["step"]) == ("waiting", 2)
    assert story.asked == [*range(10), 8, 9]


# -- C24: what runs is what was approved ------------------------------------------------------------------------------


def test_what_was_shown_is_what_runs(agents: AgentServer, memory: Path) -> None:
    story = Story(FreshServer(agents), memory, "publish")
    (memory / "files").mkdir()
    draft = memory / "files" / "draft.txt"
    draft.write_text("reviewed")
    assert asked_about(story.life()) == [("approval", "publish", {"path": "draft.txt"})]
    draft.write_text("changed")
    assert story.life(answer=True)["status"] == "completed"
    assert [act.arguments for act in story.ledger] == [["draft.txt", "reviewed"]]
    assert story.asked == [0, 1]


def test_the_stricter_class_counts(agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "ONCE")
    story.life(kill=["body.after", BODY])
    lax = {"post": {"idempotency": "idempotent", "ambiguous": []}}
    assert asked_about(story.life(changed=lax)) == [("in_doubt", "post", {"what": "x"})]
    assert story.life(changed=lax, answer=True)["status"] == "completed"
    assert len(story.ledger) == 1


def test_another_version_of_an_unsettled_call_has_diverged(agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "ONCE")
    story.life(kill=["body.after", BODY])
    newer = {"post": {"version": 2}}
    assert asked_about(story.life(changed=newer)) == [("diverged", "post", {"what": "x"})]
    assert story.life(changed=newer, answer=True)["status"] == "completed"
    assert len(story.ledger) == 1


def test_a_tool_that_is_gone_is_not_forgotten(agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "READ, ONCE, CONTAINED")
    story.life(kill=["outcome.after", 2])
    assert len(story.ledger) == 1
    assert asked_about(story.life(changed={"post": None})) == [("diverged", "post", {"what": "b"})]
    back = story.life(answer=True)
    assert back["status"] == "completed"
    assert story.ledger[0].value in back["transcript"]
    assert len(story.ledger) == 1


def test_an_edit_that_does_not_fit_the_tool_is_told_and_not_performed(agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "ONCE, edited")
    question = story.life()["shown"][0]["id"]
    assert story.life(only_decide=True, decide=[[question, "edit", {"what": 5}]])["decided"] == ["usage"]
    done = story.life(answer=True, blind=True, edit={"what": 5})
    assert done["status"] == "completed"
    assert "BadArguments" in done["transcript"]
    assert story.ledger == []


# -- C26: two answers, two questions ----------------------------------------------------------------------------------


def test_each_answer_goes_to_its_own_question(agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "two approvals")
    shown = {each["arguments"]["what"]: each["id"] for each in story.life()["shown"]}
    assert len(set(shown.values())) == 2
    assert story.life(only_decide=True, decide=[[shown["B"], "approve"]])["decided"] == ["approve"]
    left = story.life()
    assert (left["status"], [each["id"] for each in left["shown"]]) == ("waiting", [shown["A"]])
    assert story.ledger == []
    later = [[shown["A"], "deny"], [shown["B"], "approve"], [shown["B"], "approve"], [shown["B"], "deny"]]
    assert story.life(only_decide=True, decide=later)["decided"] == ["deny", "approve", "approve", "conflict"]
    done = story.life()
    assert done["status"] == "completed"
    assert [act.arguments for act in story.ledger] == [["B"]]
    assert "Denied(reason='no'), \"0.1!['B']\"" in done["transcript"]


def test_a_run_is_not_continued_by_another_agent(agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "ONCE")
    story.life(kill=["body.after", BODY])
    for way in ("run", "resume"):
        assert story.life(renamed="another", way=way)["refused"] == "usage"
    assert len(story.ledger) == 1


# -- signals, forks ---------------------------------------------------------------------------------------------------


def test_sigterm_inside_a_once_call_leaves_a_question(agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "ONCE")
    assert story.life(halt="0.0").get("interrupted")
    stopped = story.life()
    assert (stopped["was"], stopped["status"]) == ("waiting", "waiting")
    assert asked_about(stopped) == [("in_doubt", "post", {"what": "x"})]
    assert story.ledger == []
    assert story.life(answer=True)["status"] == "completed"
    assert len(story.ledger) == 1


def test_sigterm_inside_a_once_call_beside_others_leaves_a_question_too(agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "READ, ONCE, CONTAINED")
    assert story.life(halt="0.1").get("interrupted")
    resumed = story.life(answer=True)
    assert (resumed["was"], resumed["answered"], resumed["status"]) == ("waiting", [["post", "redo"]], "completed")
    assert len(story.ledger) == 1


def test_a_fork_has_keys_of_its_own(agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "replies that depend")
    assert story.life()["status"] == "completed"
    before = story.ledger
    forked = story.life(fork=1)
    assert (forked["status"], forked["may_repeat"]) == ("completed", ["post"])
    again = story.ledger[len(before) :]
    assert [(act.tag, act.arguments) for act in again] == [(act.tag, act.arguments) for act in before]
    assert not {act.key for act in again} & {act.key for act in before}
