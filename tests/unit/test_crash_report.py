"""The report of a campaign, as text, JSON and JUnit; a part is never passed off as all."""

import json
import shlex
import xml.etree.ElementTree as ET

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from savepoint.crash import Kill, Schedule, Verdict, Violation
from savepoint.crash._junit import junit
from savepoint.crash._order import WhileTime, evenly, storm
from savepoint.crash._report import NEXT, Finding, Kills, Report, Tried
from savepoint.crash._text import text

COMMAND = "savepoint crash --start 'python a.py' --ledger ledger"


def tried(schedule: str, verdict: Verdict = Verdict.PASS, what: str = "") -> Tried:
    finding = Finding(schedule=schedule, verdict=verdict, what=what, where=("before write(ledger)",))
    return Tried(schedule=schedule, verdict=verdict, seconds=0.1, findings=() if verdict.right else (finding,))


def report(*runs: Tried, **fields: object) -> Report:
    known = {"target": "python a.py", "command": COMMAND, "kills": Kills.SINGLE, "planned": len(runs), "seconds": 2.0}
    return Report(tried=runs, **{**known, **fields})


def test_all_that_was_planned_is_called_all():
    found = report(tried("0@call:1"), tried("0@call:1+"))
    assert found.passed
    assert "PASSED: all 2 single kills" in text(found)
    assert found.document()["complete"] is True


@pytest.mark.parametrize("fields", [{"planned": 40}, {"by_time": "ptrace is refused"}, {"interrupted": True}])
def test_a_part_is_not(fields: dict[str, object]):
    found = report(tried("0@call:1"), **fields)
    assert "all 1" not in text(found)
    assert found.document()["complete"] is False


def test_nothing_tried_is_no_pass():
    for found in (report(planned=40), report(evolve(tried("0@call:1"), reached=False))):
        assert not found.passed
        assert "NOTHING TRIED" in text(found)
        assert found.document()["verdict"] == "nothing tried"


def test_a_violation_has_its_schedule_its_call_and_the_line_that_shows_it_again():
    found = report(tried("0@call:1"), tried("0@call:2+", Verdict.DUPLICATE, "'a' 2 times"))
    lines = text(found).splitlines()
    at = lines.index("duplicate: 1 run")
    assert lines[at + 1 : at + 4] == [
        "  0@call:2+, died before write(ledger)",
        "    'a' 2 times",
        f"    $ {COMMAND} --only 0@call:2+",
    ]
    assert shlex.split(found.reproduction("0@call:2+"))[-2:] == ["--only", "0@call:2+"]


def test_violations_of_a_kind_are_grouped_and_those_of_other_words_shown_first():
    same = [tried(f"0@call:{n}", Verdict.LOST, "'a'") for n in range(1, 30)]
    shown = text(report(*same, tried("0@call:30", Verdict.LOST, "'b'")))
    assert "lost: 30 runs" in shown
    assert "'b'" in shown
    assert "and 27 more" in shown


@pytest.mark.parametrize("verdict", NEXT)
def test_a_rejected_target_is_named_and_told_what_to_do(verdict: Verdict):
    found = report(rejected=(Violation(verdict, "because"),))
    assert not found.passed
    assert f"REJECTED: {verdict}" in text(found)
    assert f"next: {NEXT[verdict]}" in text(found)
    assert found.document()["verdict"] == "rejected"


def test_the_document_is_json_with_stable_keys():
    document = json.loads(json.dumps(report(tried("0@call:2", Verdict.LOST, "'a'")).document()))
    assert sorted(document) == [
        "command", "complete", "format", "interrupted", "killed", "killed_by_time", "kills", "places", "processes",
        "rejected", "runs", "seconds", "target", "verdict", "verdicts", "violations",
    ]  # fmt: skip
    (violation,) = document["violations"]
    assert sorted(violation) == ["reproduce", "schedule", "verdict", "what", "where"]


@given(st.text(st.characters()))
def test_junit_is_xml_whatever_the_program_wrote(odd: str):
    found = report(tried("0@call:1"), tried("0@call:2", Verdict.LOST, odd), target=odd)
    root = ET.fromstring(junit(found).encode("utf-8"))
    cases = root.findall(".//testcase")
    assert [each.get("name") for each in cases] == ["0@call:1", "0@call:2"]
    assert [len(each.findall("failure")) for each in cases] == [0, 1]


def test_junit_has_a_rejected_target_as_one_failed_case():
    root = ET.fromstring(junit(report(rejected=(Violation(Verdict.PRINTS, "x"),))))
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    assert root.findall(".//failure")[0].get("type") == "prints to standard output"


# -- the order in which kills are tried -------------------------------------------------------------------------------

PLACES = [Schedule().then(0, Kill("call", n, after)) for n in range(1, 41) for after in (False, True)]


@given(st.integers(0, 80))
def test_each_place_is_tried_once(count: int):
    ordered = evenly(PLACES[:count])
    assert sorted(map(str, ordered)) == sorted(map(str, PLACES[:count]))


@pytest.mark.parametrize("part", [4, 8, 16])
def test_each_beginning_is_spread_over_the_whole(part: int):
    numbers = sorted(each.kills[0].nth for each in evenly(PLACES)[:part])
    gaps = [b - a for a, b in zip([0, *numbers], [*numbers, 41], strict=True)]
    assert max(gaps) <= 2 * 64 / part


def test_a_storm_is_the_same_each_time_and_another_one_for_each_number():
    storms = [str(storm(number, PLACES)) for number in range(50)]
    assert storms == [str(storm(number, PLACES)) for number in range(50)]
    assert len(set(storms)) > 40
    assert {len(storm(number, PLACES).kills) for number in range(50)} == {2, 3, 4, 5, 6}
    assert all(str(Schedule.parse(each)) == each for each in storms)


def test_nobody_gets_more_once_time_is_up():
    left = iter([False, False, True])
    assert len(list(WhileTime(PLACES, lambda: next(left)))) == 2
