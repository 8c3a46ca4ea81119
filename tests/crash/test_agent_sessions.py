"""Sessions, handoffs and nested runs of agents that were killed, told as stories of processes (the case list's numbers)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_server import AgentServer, FreshServer, Story

WHOLE = ["earlier", "run"]


@pytest.fixture(scope="module")
def agents() -> Iterator[AgentServer]:
    with AgentServer() as running:
        yield running


# -- a landing that was cut off ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["end.after", "land.before", "land.after"])
def test_the_next_run_lands_what_completed(point: str, agents: AgentServer, memory: Path) -> None:
    story = Story(FreshServer(agents), memory, "session")
    story.life(kill=[point, 1])
    after = story.life(anew="next")
    assert (after["status"], after["session"]) == ("completed", [*WHOLE, "next"])
    assert after["ended"]["unpaired"] == []
    assert "'go'), Reply(text='', calls=(ToolCall(id='0.0'" in after["transcript"]  # it was shown what had landed
    again = story.life()
    assert (again["was"], again["session"], again["warnings"]) == ("completed", [*WHOLE, "next"], [])
    assert [act.tag for act in story.ledger] == ["0.0", "0.0"]


@pytest.mark.parametrize("point", ["end.after", "land.before", "land.after"])
def test_a_run_that_is_answered_lands_once(point: str, agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "session")
    story.life(kill=[point, 1])
    asked = len(story.asked)
    for way in ("run", "resume", "run"):
        answered = story.life(way=way)
        assert (answered["session"], answered["warnings"]) == (WHOLE, [])
        assert answered["ended"]["unpaired"] == []
    assert (len(story.asked), len(story.ledger)) == (asked, 1)


# -- C30: what was rewound stays undone -------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["create.after", "body.before", "gap.after", "end.before"])
def test_a_run_does_not_bring_back_what_was_undone_below_it(point: str, agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "session")
    story.life(kill=[point, 1])
    before = len(story.ledger)
    assert story.life(rewind=0)["refused"] == "conflict"
    assert len(story.ledger) == before
    assert story.life(anew="next")["session"] == ["next"]


@pytest.mark.parametrize("point", ["end.after", "land.before"])
def test_a_completed_run_does_not_land_on_what_was_undone(point: str, agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "session")
    story.life(kill=[point, 1])
    answered = story.life(rewind=0)
    assert (answered["status"], answered["session"]) == ("completed", [])
    assert ["its part was not appended" in each for each in answered["warnings"]] == [True]
    assert story.life(anew="next")["session"] == ["next"]


def test_a_landing_that_the_next_run_heals_is_refused_on_what_was_undone(agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "session")
    story.life(kill=["land.before", 1])
    after = story.life(rewind=0, anew="next")
    assert after["session"] == ["next"]
    assert ["its part was not appended" in each for each in after["warnings"]] == [True]
    assert story.life()["session"] == ["next"]


# -- C31: a transfer fired --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "nth", "asked"),
    [
        ("reply.after", 1, [0]),
        ("body.before", 2, [0]),
        ("body.after", 2, [0]),
        ("gap.before", 1, [0]),
        ("gap.after", 1, [0]),
        ("reply.before", 2, [0, "1 partner"]),
        ("reply.after", 2, [0, "1 partner"]),
        ("gap.before", 2, [0, "1 partner"]),
        ("gap.after", 2, [0, "1 partner"]),
    ],
)
def test_the_agent_that_was_handed_over_to_goes_on(
    point: str, nth: int, asked: list[int | str], agents: AgentServer, memory: Path
) -> None:
    story = Story(FreshServer(agents), memory, "handoffs")
    story.life(kill=[point, nth])
    assert story.everybody_asked == asked
    done = story.life(answer=True)
    if done["status"] == "waiting":  # it died beside a ONCE call
        done = story.life(answer=True)
    assert done["status"] == "completed"
    again = ["1 partner"] if point == "reply.before" else []  # that reply was never durable
    assert story.everybody_asked == [*asked, *again, *[0, "1 partner", 2][len(asked) :]]
    assert done["transcript"].count("handed over to partner") == 1
    assert done["transcript"].count("handed over to crash") == 1
    assert {act.tag for act in story.ledger} == {"0.0", "1.1"}


@pytest.mark.parametrize("kill", [None, "gap.after"])
def test_whom_it_hands_over_to_may_come_later(kill: str | None, agents: AgentServer, memory: Path) -> None:
    story = Story(FreshServer(agents), memory, "handoffs")
    if kill is not None:
        story.life(kill=[kill, 1])
    for _ in range(2):
        stopped = story.life(away=True)
        assert stopped["status"] == "interrupted"
        assert "partner is away" in stopped["error"]
    assert story.everybody_asked == [0]
    assert story.life()["status"] == "completed"
    assert story.everybody_asked == [0, "1 partner", 2]
    assert [act.tag for act in story.ledger] == ["0.0", "1.1"]


# -- runs inside runs -------------------------------------------------------------------------------------------------


def test_a_strict_run_asks_about_what_was_performed_inside_it(agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "nested, strict")
    story.life(kill=["gap.before", 1])
    before = story.entered
    waiting = story.life()
    shown = [(each["kind"], each["effect"], each["arguments"]) for each in waiting["shown"]]
    assert (waiting["status"], shown) == ("waiting", [("performed", "post", {"what": "a"})])
    assert story.entered == before
    assert story.life(answer=True)["status"] == "completed"
    assert [act.tag for act in story.ledger] == ["x/0.0"]


def test_a_limit_holds_inside_over_all_processes_and_so_does_a_grant(agents: AgentServer, memory: Path) -> None:
    story = Story(agents, memory, "nested, limited")
    story.life(kill=["gap.before", 1])
    story.life(kill=["gap.before", 1])
    for _ in range(2):
        waiting = story.life()
        assert (waiting["status"], [each["kind"] for each in waiting["shown"]]) == ("waiting", ["budget"])
        assert story.everybody_asked == [0, "x/0", "x/1"]
    story.life(answer=True, grant=1, kill=["end.before", 1])
    assert story.life()["status"] == "completed"
    assert story.everybody_asked == [0, "x/0", "x/1", "x/2", "x/2", 1]
    assert {act.tag for act in story.ledger} == {"x/0.0", "x/1.0"}
