"""Sessions, nested runs and what a run is held to, on the command line."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from agent import StoredSession, User
from agent._session_rows import run_row_key, write_pending
from agent.cli import main
from agent.cli._conversation import entry_lines
from agent.cli._exit import Exit
from agent.cli._output import printable
from savepoint import dumps, loads, open_store
from savepoint._store import Space

PROJECT = '''
from pathlib import Path
import attrs
from agent import Agent, Idempotency, as_tool, tool
from agent.testing import ScriptedModel, call, calls, say
from savepoint import Types, portable

@portable("test/price", version=1)
@attrs.frozen
class Price:
    cents: int

@tool(idempotency=Idempotency.READ)
async def price(item: str) -> Price:
    """A price, as a class of this program."""
    return Price(320)

@tool(idempotency=Idempotency.READ)
async def lines(count: int) -> str:
    """Many lines."""
    return "line\\n" * count

@tool(idempotency=Idempotency.ONCE)
async def vague(cents: int) -> str:
    """Nobody knows."""
    raise TimeoutError("no answer")

echo = Agent(name="echo", model=ScriptedModel([lambda request: say(request.messages[-1].content)]))
counter = Agent(
    name="counter",
    model=ScriptedModel([lambda request: say(str(len(request.messages)))]),
)
reader = Agent(
    name="reader",
    tools=(lines,),
    model=ScriptedModel([calls(say("looking"), call("lines", count=300)), say("read")]),
)
seller = Agent(
    name="seller", tools=(price,), types=Types([Price]), model=ScriptedModel([call("price", item="tea"), say("sold")])
)
doubter = Agent(name="doubter", tools=(vague, lines), model=ScriptedModel([call("vague", cents=3), say("done")]))
boss = Agent(name="boss", tools=(as_tool(doubter),), model=ScriptedModel([call("doubter", input="pay"), say("all")]))
bare = Agent(name="bare", tools=(lines, vague))
'''
Cli = Callable[..., tuple[int, list[Any], str]]


@pytest.fixture
def text(project: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Exit code, stdout and stderr, as a person has them."""

    def perform(*words: str) -> tuple[int, str, str]:
        with chdir(project):
            code = main(list(words))
        out, err = capfd.readouterr()
        return code, out, err

    return perform


def waits(cli: Cli, shop: str, *words: str, agent: str = "doubter") -> str:
    """Starts a run that waits; returns its question."""
    code, objects, _ = cli("run", f"{shop}:{agent}", "hi", *words)
    assert code == Exit.WAITING
    return objects[-1]["questions"][0]["id"]


# -- runs of a session ------------------------------------------------------------------------------------------------


def test_a_run_goes_on_with_its_session_and_says_which(shop: str, cli: Cli):
    code, objects, _ = cli("run", f"{shop}:counter", "one", "--session", "u1", "--run-id", "a")
    assert (code, objects[-1]["session"], objects[-1]["output"]) == (Exit.DONE, "u1", "1")
    assert cli("run", f"{shop}:counter", "two", "--session", "u1", "--run-id", "b")[1][-1]["output"] == "3"
    assert cli("run", f"{shop}:counter", "two")[1][-1]["session"] is None
    assert [(each["run_id"], each["session"]) for each in cli("runs")[1]][1:] == [("b", "u1"), ("a", "u1")]
    code, (error,), _ = cli("run", f"{shop}:counter", "one", "--session", "u2", "--run-id", "a")
    assert (code, "session u1" in error["error"]["message"]) == (Exit.CONFLICT, True)


def test_ignored_input_is_said_to_scripts_and_people(shop: str, cli: Cli, text: Callable[..., tuple[int, str, str]]):
    cli("run", f"{shop}:echo", "one", "--run-id", "a")
    (ended,) = cli("run", f"{shop}:echo", "two", "--run-id", "a")[1]
    assert (ended["replayed"], ended["input_ignored"], len(ended["warnings"])) == (True, True, 1)
    code, out, err = text("run", f"{shop}:echo", "two", "--run-id", "a")
    assert (code, out) == (Exit.DONE, "one\n")
    assert "warning: run a exists" in err
    assert cli("run", f"{shop}:echo", "one", "--run-id", "a")[1][-1]["input_ignored"] is False


def test_a_run_that_completed_and_did_not_land_lands_when_it_is_answered(project: Path, shop: str, cli: Cli):
    cli("run", f"{shop}:seller", "one", "--session", "u1", "--run-id", "a")

    async def unland() -> None:
        """As a process leaves it that dies just before it lands."""
        async with open_store(project / ".savepoint") as store, store.commit() as tx:
            for space in (Space.SESSION, Space.SEGMENT, Space.MEMBER):
                for row in await store.scan(space):
                    tx.delete(space, row.key)
            tx.write(Space.PENDING, run_row_key("u1", "a"), write_pending("a", 1.0))

    asyncio.run(unland())
    assert [each["standing"] for each in cli("sessions", "u1")[1]] == ["pending"]
    code, (ended,), _ = cli("resume", "a")
    assert (code, ended["output"], ended["warnings"]) == (Exit.DONE, "sold", [])
    assert [each["standing"] for each in cli("sessions", "u1")[1]] == ["landed"]


def test_a_savepoint_is_adopted_by_its_id(project: Path, shop: str, cli: Cli):
    assert cli("run", f"{shop}:echo", "--resume-from", "0" * 64)[0] == Exit.NOT_FOUND
    assert not (project / ".savepoint").exists()
    cli("run", f"{shop}:reader", "one", "--run-id", "a")
    point = cli("show", "a")[1][0]["savepoint"]
    code, objects, _ = cli("run", f"{shop}:reader", "--resume-from", point, "--run-id", "b")
    assert (code, objects[-1]["output"], objects[-1]["input_ignored"]) == (Exit.DONE, "read", False)
    assert [each["event"] for each in objects].count("call") == 0
    code, objects, _ = cli("run", f"{shop}:reader", "other", "--resume-from", point)
    assert (code, objects[-1]["input_ignored"]) == (Exit.DONE, True)
    code, (error,), _ = cli("run", f"{shop}:reader", "--resume-from", "0" * 64, "--run-id", "c")
    assert (code, "no savepoint" in error["error"]["message"]) == (Exit.NOT_FOUND, True)
    assert cli("show", "c")[0] == Exit.NOT_FOUND
    for wrong in ("zz", point[:-2], point.upper()):
        assert cli("run", f"{shop}:reader", "--resume-from", wrong)[0] == Exit.USAGE


def test_a_run_that_is_deleted_on_success_leaves_its_part_and_its_id(shop: str, cli: Cli):
    words = ("run", f"{shop}:echo", "hi", "--session", "u1", "--run-id", "a", "--delete-on-success")
    code, objects, _ = cli(*words)
    assert (code, objects[-1]["output"]) == (Exit.DONE, "hi")
    assert cli("sessions", "u1")[1][0]["run_id"] == "a"
    assert cli(*words)[1][-1]["replayed"] is True
    assert cli("sessions")[1][0]["entries"] == 2


# -- what a run is held to --------------------------------------------------------------------------------------------


def test_a_tool_that_is_not_allowed_is_denied_and_the_rule_is_shown(shop: str, cli: Cli, project: Path):
    (project / "turns.json").write_text('[{"call": "lines", "arguments": {"count": 1}}, "over"]')
    words = ("run", f"{shop}:bare", "hi", "--run-id", "a", "--model", "script:turns.json", "--allow", "vague")
    code, objects, _ = cli(*words)
    assert code == Exit.DONE
    (outcome,) = [each for each in objects if each.get("event") == "outcome"]
    assert (outcome["tool"], outcome["failed"]) == ("lines", True)
    assert cli("show", "a")[1][0]["held"] == {
        "max_turns": 50, "allowed_tools": ["vague"], "read_only": False, "classes": {},
    }  # fmt: skip


def test_in_a_read_only_run_what_is_changed_is_undone(project: Path, cli: Cli):
    (project / "files").mkdir()
    (project / "turns.json").write_text('[{"call": "write", "arguments": {"path": "a", "text": "x"}}, "over"]')
    words = ("run", "worker", "hi", "--model", "script:turns.json", "--workspace", "files")
    code, objects, _ = cli(*words, "--run-id", "a", "--read-only")
    (outcome,) = [each for each in objects if each.get("event") == "outcome"]
    assert (code, outcome["failed"], objects[-1]["changes"]) == (Exit.DONE, True, [])
    assert cli("show", "a")[1][0]["held"]["read_only"] is True
    assert [each["path"] for each in cli(*words)[1][-1]["changes"]] == ["a"]


def test_what_is_not_known_is_refused_before_there_is_a_store(project: Path, shop: str, cli: Cli):
    code, (error,), _ = cli("run", f"{shop}:reader", "hi", "--allow", "lines", "--allow", "nosuch")
    assert (code, "nosuch" in error["error"]["message"], "lines" in error["error"]["next"]) == (Exit.USAGE, True, True)
    assert cli("run", f"{shop}:reader", "hi", "--session", "x" * 300)[0] == Exit.USAGE
    assert not (project / ".savepoint").exists()


def test_a_resume_holds_what_held_unless_it_names_another(
    shop: str, cli: Cli, text: Callable[..., tuple[int, str, str]]
):
    question = waits(cli, shop, "--run-id", "a", "--allow", "vague", "--read-only")
    assert cli("decide", "a", question, "fail")[0] == Exit.DONE
    words = ("resume", "a", "--allow", "vague", "--allow", "lines", "--no-read-only", "--no-strict")
    assert cli(*words)[1][-1]["status"] == "completed"
    shown = cli("show", "a")[1][0]
    assert (shown["held"]["allowed_tools"], shown["held"]["read_only"]) == (["lines", "vague"], False)
    assert shown["widened"] == [
        {"attempt": 2, "changes": {"allowed_tools": [["vague"], ["lines", "vague"]], "read_only": [True, False]}}
    ]
    out = text("show", "a")[1]
    assert "held to    the tools lines, vague, 50 turns\n" in out
    assert "held to    read-only yes -> no, since attempt 2\n" in out
    question = waits(cli, shop, "--run-id", "b", "--allow", "vague", "--read-only")
    cli("decide", "b", question, "fail")
    cli("resume", "b")
    assert cli("show", "b")[1][0]["held"]["read_only"] is True
    assert cli("show", "b")[1][0]["widened"] == []


@pytest.mark.parametrize("flag", [("--strict", Exit.CONFLICT), ("--no-strict", Exit.DONE)])
def test_an_agent_that_changed_is_refused_only_where_strict(project: Path, shop: str, cli: Cli, flag: tuple[str, Exit]):
    question = waits(cli, shop, "--run-id", "a")
    cli("decide", "a", question, "fail")
    other = f"{shop}_changed"
    (project / f"{other}.py").write_text(PROJECT.replace('name="doubter"', 'name="doubter", instructions="Pay."'))
    code, objects, _ = cli("resume", "a", "--target", f"{other}:doubter", flag[0])
    assert code == flag[1]
    if code == Exit.DONE:
        assert "instructions" in objects[-1]["warnings"][0]
    else:
        assert "instructions" in objects[-1]["error"]["message"]


def test_options_of_one_run_do_not_go_with_all(cli: Cli):
    for words in (("--allow", "x"), ("--no-read-only",), ("--strict",)):
        code, (error,), _ = cli("resume", "--all", *words)
        assert (code, "of one run" in error["error"]["message"]) == (Exit.USAGE, True)


# -- sessions ---------------------------------------------------------------------------------------------------------


def test_sessions_are_listed_the_last_changed_first_with_those_that_only_wait(shop: str, cli: Cli):
    assert cli("sessions", "u1")[0] == Exit.NOT_FOUND  # there is no store
    cli("run", f"{shop}:echo", "hi", "--session", "u1")
    cli("run", f"{shop}:reader", "hi", "--session", "u1")
    waits(cli, shop, "--session", "u2")
    code, listed, _ = cli("sessions")
    assert code == Exit.DONE
    assert [(each["session"], each["runs"], each["entries"], each["pending"]) for each in listed] == [
        ("u2", 0, 0, 1),
        ("u1", 2, 6, 0),
    ]


def test_one_session_shows_its_parts_and_what_has_not_landed(
    shop: str, cli: Cli, text: Callable[..., tuple[int, str, str]]
):
    cli("run", f"{shop}:echo", "hi", "--session", "u1", "--run-id", "a")
    waits(cli, shop, "--session", "u1", "--run-id", "b")
    code, (landed, pending), _ = cli("sessions", "u1")
    assert (code, landed["run_id"], landed["start"], landed["count"]) == (Exit.DONE, "a", 0, 2)
    assert landed["duration_s"] == landed["finished_at"] - landed["started_at"] >= 0
    assert pending == {"session": "u1", "run_id": "b", "standing": "pending", "status": "waiting"}
    code, out, err = text("sessions", "u1")
    assert code == Exit.DONE
    assert "pending    b (waiting), not landed\n" in out
    assert "RUN  START  COUNT" in out
    assert "\x1b" not in out + err


def test_the_parts_of_programs_may_have_any_meta_and_no_run(project: Path, cli: Cli):
    async def append() -> None:
        async with open_store(project / ".savepoint") as store:
            kept = StoredSession(store)
            for meta in ({}, {"timing": 3}, {"timing": {"started_at": "x", "finished_at": None}}):
                await kept.append("u1", [User(content="hi")], meta=meta)

    asyncio.run(append())
    code, parts, _ = cli("sessions", "u1")
    assert (code, {(each["run_id"], each["duration_s"]) for each in parts}) == (Exit.DONE, {(None, None)})


def test_the_conversation_is_printed_with_the_place_of_each_entry(
    shop: str, cli: Cli, text: Callable[..., tuple[int, str, str]]
):
    cli("run", f"{shop}:echo", "two\nlines\x1b[2J", "--session", "u1", "--run-id", "a")
    cli("run", f"{shop}:reader", "more", "--session", "u1", "--run-id", "b")
    code, out, _ = text("sessions", "u1", "--entries")
    lines = out.splitlines()
    assert code == Exit.DONE
    assert lines[:8] == [
        "run a",
        "    0  user    two",
        "               lines\\x1b[2J",
        "    1  reply   two",
        "               lines\\x1b[2J",
        "run b",
        "    2  user    more",
        "    3  reply   looking",
    ]
    assert lines[8] == '       call    lines {"count": 300}'
    assert lines[9] == "    4  outcome lines: line"
    assert any("1100 of 1500 characters cut here" in line for line in lines)
    assert lines[-1] == "    5  reply   read"
    documents = cli("sessions", "u1", "--entries")[1]
    assert [each["kind"] for each in documents] == ["user", "reply", "user", "reply", "outcome", "reply"]
    assert [each["run_id"] for each in documents] == ["a", "a", "b", "b", "b", "b"]
    assert documents[3]["calls"] == [{"call": "0.0", "tool": "lines", "arguments": {"count": 300}}]
    assert documents[4]["outcome"] == "line\n" * 300
    assert (documents[4]["call"], documents[4]["tool"]) == ("0.0", "lines")


@given(st.text(), st.integers(20, 100))
def test_on_a_terminal_no_line_is_wider_than_it_and_none_stands_under_the_places(said: str, width: int):
    lines = "\n".join(entry_lines([User(content=said)], {0: "a"}, width)).split("\n")
    assert lines[0] == "run a"
    assert lines[1].startswith("    0  user")
    assert all(cell_len(line) <= max(width, 35) for line in lines)
    assert all(not line[:15].strip() for line in lines[2:])
    assert "".join("".join(line[15:].split()) for line in lines[1:]) == "".join(printable(said).split())


def test_outcomes_of_the_programs_own_classes_are_read_rewound_and_trimmed(shop: str, cli: Cli):
    cli("run", f"{shop}:seller", "hi", "--session", "u1")
    assert cli("sessions", "u1")[0] == Exit.DONE
    documents = cli("sessions", "u1", "--entries")[1]
    assert documents[2]["outcome"] == {"cents": 320}
    assert cli("trim", "u1", "--keep-runs", "0", "--keep-chars", "3")[1] == [
        {"session": "u1", "trimmed": 1, "archived": True}
    ]
    assert cli("rewind", "u1", "--keep-entries", "3")[1] == [{"session": "u1", "removed": 1, "entries": 3, "runs": 1}]


def test_classes_of_an_agent_that_is_gone_are_asked_for(project: Path, shop: str, cli: Cli):
    for session in ("u1", "u2"):
        cli("run", f"{shop}:seller", "hi", "--session", session)
    (project / f"{shop}.py").rename(project / f"{shop}_later.py")
    sys.modules.pop(shop)
    assert cli("sessions", "u1")[0] == Exit.DONE
    assert cli("rewind", "u2", "--keep-runs", "0")[1][0]["removed"] == 4
    for words in (
        ("sessions", "u1", "--entries"),
        ("rewind", "u1", "--keep-entries", "3"),
        ("trim", "u1", "--keep-runs", "0", "--keep-chars", "3"),
    ):
        code, (error,), _ = cli(*words)
        assert (words, code, "--target" in error["error"]["next"]) == (words, Exit.USAGE, True)
        code, (error,), _ = cli(*words, "--target", "nowhere:seller")
        assert (words, code, "nowhere" in error["error"]["message"]) == (words, Exit.USAGE, True)
        assert (words, cli(*words, "--target", f"{shop}_later:seller")[0]) == (words, Exit.DONE)


def test_a_rewind_by_runs_or_entries_drops_the_end(shop: str, cli: Cli):
    for run_id in ("a", "b", "c"):
        cli("run", f"{shop}:echo", "hi", "--session", "u1", "--run-id", run_id)
    assert cli("rewind", "u1", "--keep-runs", "5")[1] == [{"session": "u1", "removed": 0, "entries": 6, "runs": 3}]
    assert cli("rewind", "u1", "--keep-runs", "2")[1] == [{"session": "u1", "removed": 2, "entries": 4, "runs": 2}]
    assert cli("rewind", "u1", "--keep-entries", "1")[1] == [{"session": "u1", "removed": 3, "entries": 1, "runs": 1}]
    assert [each["run_id"] for each in cli("sessions", "u1")[1]] == ["a"]
    assert cli("rewind", "u1", "--keep-runs", "0")[1] == [{"session": "u1", "removed": 1, "entries": 0, "runs": 0}]
    assert cli("sessions", "u1")[0] == Exit.DONE  # emptied, not unknown


def test_a_run_that_stood_on_what_was_dropped_is_not_resumed(shop: str, cli: Cli):
    cli("run", f"{shop}:echo", "hi", "--session", "u1")
    question = waits(cli, shop, "--session", "u1", "--run-id", "b")
    cli("rewind", "u1", "--keep-entries", "0")
    cli("decide", "b", question, "fail")
    code, (error,), _ = cli("resume", "b")
    assert (code, "session u1 changed" in error["error"]["message"]) == (Exit.CONFLICT, True)


def test_trimming_archives_unless_it_is_told_not_to(shop: str, cli: Cli, text: Callable[..., tuple[int, str, str]]):
    for run_id in ("a", "b", "c"):
        cli("run", f"{shop}:reader", "hi", "--session", "u1", "--run-id", run_id)
    assert cli("trim", "u1", "--keep-runs", "2")[1] == [{"session": "u1", "trimmed": 1, "archived": True}]
    assert cli("trim", "u1", "--no-archive")[1] == [{"session": "u1", "trimmed": 1, "archived": False}]
    assert cli("trim", "u1")[1] == [{"session": "u1", "trimmed": 0, "archived": True}]
    outcomes = [each["outcome"] for each in cli("sessions", "u1", "--entries")[1] if each["kind"] == "outcome"]
    assert [bool(each["ref"]) for each in outcomes[:2]] == [True, False]
    assert outcomes[2] == "line\n" * 300
    out = text("sessions", "u1", "--entries")[1]
    assert f"[400 of 1500 characters; archived as {outcomes[0]['ref']}]" in out
    assert "[400 of 1500 characters; trimmed]" in out


def test_wrong_words_say_what_to_write(shop: str, cli: Cli):
    cli("run", f"{shop}:echo", "hi", "--session", "u1")
    wrong = (
        (("sessions", "nosuch"), Exit.NOT_FOUND, "savepoint sessions lists"),
        (("sessions", "nosuch", "--entries"), Exit.NOT_FOUND, "savepoint sessions lists"),
        (("rewind", "nosuch", "--keep-runs", "1"), Exit.NOT_FOUND, "savepoint sessions lists"),
        (("trim", "nosuch"), Exit.NOT_FOUND, "savepoint sessions lists"),
        (("sessions", ""), Exit.USAGE, "printable"),
        (("sessions", "--entries"), Exit.USAGE, "savepoint sessions SESSION --entries"),
        (("rewind", "u1"), Exit.USAGE, "one of the two"),
        (("rewind", "u1", "--keep-runs", "1", "--keep-entries", "1"), Exit.USAGE, "one of the two"),
        (("rewind", "u1", "--keep-runs", "-1"), Exit.USAGE, "0 or more"),
        (("trim", "u1", "--keep-chars", "-1"), Exit.USAGE, "0 or more"),
        (("rewind", "--keep-runs", "1"), Exit.USAGE, "savepoint rewind --help"),
        (("sesions",), Exit.USAGE, "savepoint --help"),
    )
    for words, expected, named in wrong:
        code, (error,), _ = cli(*words)
        assert (words, code) == (words, expected)
        assert named in error["error"]["next"]
    assert cli("sessions")[1][0]["entries"] == 2


@pytest.mark.parametrize("case", [({"format": 99}, Exit.NEWER), ({"entries": "many"}, Exit.DAMAGED)])
def test_a_newer_session_and_a_damaged_one_have_their_codes(
    project: Path, shop: str, cli: Cli, case: tuple[dict[str, object], Exit]
):
    cli("run", f"{shop}:echo", "hi", "--session", "u1")

    async def change() -> None:
        async with open_store(project / ".savepoint") as store:
            (row,) = await store.scan(Space.SESSION)
            body = loads(row.body)
            assert isinstance(body, dict)
            async with store.commit() as tx:
                tx.write(Space.SESSION, row.key, dumps({**body, **case[0]}))

    asyncio.run(change())
    for words in (
        ("sessions",),
        ("sessions", "u1"),
        ("sessions", "u1", "--entries"),
        ("rewind", "u1", "--keep-runs", "0"),
        ("trim", "u1"),
    ):
        assert (words, cli(*words)[0]) == (words, case[1])


# -- nested runs ------------------------------------------------------------------------------------------------------


def test_a_nested_run_is_shown_with_its_outer_one_and_settled_through_it(
    shop: str, cli: Cli, text: Callable[..., tuple[int, str, str]]
):
    question = waits(cli, shop, "--run-id", "outer", agent="boss")
    code, listed, err = cli("runs")
    assert (code, [each["run_id"] for each in listed]) == (Exit.DONE, ["outer"])
    assert "1 nested run is not listed; savepoint runs --all lists all" in err
    inner, outer = cli("runs", "--all")[1]
    assert (inner["parent"], outer["parent"]) == ("outer", None)
    shown = cli("show", "oute")[1][0]  # though the nested one's id begins so too
    assert shown["nested"] == [{"run_id": inner["run_id"], "status": "waiting"}]
    assert f"nested     {inner['run_id']} (waiting)\n" in text("show", "outer")[1]
    told = text("show", inner["run_id"])[1]
    assert "nested in  outer@0\n" in told
    assert "fork of" not in told
    for command in ("resume", "fork", "cancel", "merge", "discard"):
        code, (error,), _ = cli(command, inner["run_id"])
        assert (command, code, error["error"]["next"]) == (command, Exit.USAGE, f"savepoint {command} outer")
    for policy in ("resume", "restart", "resume-only"):
        words = ("run", f"{shop}:doubter", "hi", "--run-id", inner["run_id"], "--if-exists", policy)
        assert (policy, cli(*words)[0]) == (policy, Exit.USAGE)
    code, (decided,), _ = cli("decide", inner["run_id"], question, "fail")
    assert (code, decided["next"]) == (Exit.DONE, "savepoint resume outer")
    assert cli("resume", "outer")[1][-1]["output"] == "all"
