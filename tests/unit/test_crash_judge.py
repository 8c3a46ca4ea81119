"""The judge of anyone's program, on histories made by hand: each verdict is given where it is due, and only there."""

from collections.abc import Sequence

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from savepoint.crash import Verdict
from savepoint.crash._judge import Ran, Rules, Saw, judge, needs_no_more, parked, reject

RULES = Rules()
DIED = Ran(code=None, signal=None, killed=True)
RIGHT = Saw(processes=(Ran(ledger=b"a\nb\n"),))


def saw(*ledgers: bytes, **last: object) -> Saw:
    """A run whose processes left these ledgers; all but the last were killed."""
    processes = [evolve(DIED, ledger=each) for each in ledgers[:-1]]
    return Saw(processes=(*processes, Ran(ledger=ledgers[-1], **last)))


def verdicts(run: Saw, *, reference: Saw = RIGHT, rules: Rules = RULES) -> list[Verdict]:
    return [each.verdict for each in judge(run, reference, rules)]


def rejected(*references: Saw, rules: Rules = RULES) -> list[Verdict]:
    return [each.verdict for each in reject(references, rules)]


@pytest.mark.parametrize(
    "run",
    [
        saw(b"a\nb\n"),
        saw(b"a\n", b"a\nb\n"),
        saw(b"", b"a\n", b"a\n", b"a\nb\n"),
        saw(b"b\n", b"b\na\n"),
        saw(b"a\nb", b"a\nb\n"),
        saw(b"a\n", b"a\n", code=3),
        saw(b"a\nb\n", b"a\nb\n", code=3),
    ],
)
def test_a_right_run_violates_nothing(run: Saw):
    assert verdicts(run) == []


@pytest.mark.parametrize(
    ("run", "right"),
    [
        (saw(b"a\n", b"a\na\nb\n"), [Verdict.DUPLICATE]),
        (saw(b"a\n", b"a\na\n", code=3), [Verdict.DUPLICATE]),
        (saw(b"a\n", b"a\n"), [Verdict.LOST]),
        (saw(b"", b""), [Verdict.LOST]),
        (saw(b"a\n", b"a\na\n"), [Verdict.DUPLICATE, Verdict.LOST]),
        (saw(b"a\n", b"a\nc\nb\n"), [Verdict.DIVERGED]),
        (saw(b"a\npa", b"a\npab\nb\n"), [Verdict.CORRUPT]),
        (saw(b"a\nb\nhal"), [Verdict.CORRUPT]),
        (saw(b"a\nb\n", b"a\n"), [Verdict.BAD_LEDGER]),
        (saw(b"a\n", b"x\nb\n"), [Verdict.BAD_LEDGER]),
        (saw(b"a\nb\n\xff\n"), [Verdict.BAD_LEDGER]),
        (saw(b"a\n", b"a\nb\n", rewrote="open(ledger)"), [Verdict.BAD_LEDGER]),
        (saw(b"a\n", b"", ledger_fault="ledger is not a file"), [Verdict.BAD_LEDGER]),
        (saw(b"a\n", b"a\nb\n", children=("sleep 60",)), [Verdict.LEAVES_CHILDREN]),
        (saw(b"a\n", b"a\nb\n", printed=b"hello"), [Verdict.PRINTS]),
        (saw(b"a\n", b"a\n", code=None, timed_out=True), [Verdict.STUCK]),
        (saw(b"a\n", b"a\n", code=1), [Verdict.STUCK]),
        (saw(b"a\n", b"a\n", code=None, signal=11), [Verdict.STUCK]),
    ],
)
def test_a_wrong_run_gets_its_verdict(run: Saw, right: Sequence[Verdict]):
    assert verdicts(run) == list(right)


def test_a_failure_that_went_away_by_itself_is_still_another_exit_code():
    run = Saw(processes=(evolve(DIED, ledger=b"a\n"), Ran(ledger=b"a\n", code=1), Ran(ledger=b"a\nb\n")))
    assert verdicts(run) == [Verdict.DIVERGED]


def test_a_run_that_is_done_where_an_unkilled_one_waits_ended_otherwise():
    waiting = Saw(processes=(Ran(ledger=b"a\n", code=3),))
    assert verdicts(saw(b"", b"a\n", code=0), reference=waiting) == [Verdict.DIVERGED]
    assert verdicts(saw(b"", b"a\n", code=3), reference=waiting) == []


def test_the_code_that_means_waiting_is_the_callers():
    run = saw(b"a\n", b"a\n", code=75)
    assert verdicts(run) == [Verdict.STUCK]
    assert verdicts(run, rules=Rules(parked_code=75)) == []
    assert parked(run.processes, Rules(parked_code=75))
    assert not parked(run.processes, RULES)


def test_a_killed_process_may_leave_children_and_prints_where_that_is_allowed():
    died = evolve(DIED, children=("sleep 60",), printed=b"x")
    run = Saw(processes=(died, Ran(ledger=b"a\nb\n")))
    assert verdicts(run) == [Verdict.PRINTS]
    assert verdicts(run, rules=Rules(allow_stdout=True)) == []


def test_files_that_are_compared_must_be_equal_at_the_end_but_not_while_it_waits():
    reference = evolve(RIGHT, compared={"out": "1", "out/a": "2"})
    other = evolve(RIGHT, compared={"out": "1", "out/a": "3"})
    (found,) = judge(other, reference, RULES)
    assert (found.verdict, "out/a" in found.what) == (Verdict.DIVERGED, True)
    assert verdicts(evolve(saw(b"a\n", code=3), compared={}), reference=reference) == []


def test_many_lines_are_counted_not_listed():
    run = saw(b"".join(b"%d\n" % n for n in range(100)))
    (lost, foreign) = judge(run, RIGHT, RULES)
    assert lost.verdict is Verdict.LOST
    assert "and 97 more" in foreign.what


@pytest.mark.parametrize(
    ("references", "right"),
    [
        ((RIGHT, saw(b"a\nc\n")), Verdict.NOT_DETERMINISTIC),
        ((RIGHT, saw(b"a\n")), Verdict.NOT_DETERMINISTIC),
        ((RIGHT, saw(b"a\nb\n", code=3)), Verdict.NOT_DETERMINISTIC),
        ((evolve(RIGHT, compared={"x": "1"}), evolve(RIGHT, compared={"x": "2"})), Verdict.NOT_DETERMINISTIC),
        ((RIGHT, saw(b"a\nb\n", children=("sleep 60",))), Verdict.LEAVES_CHILDREN),
        ((saw(b"a\n", code=None, timed_out=True),), Verdict.NEVER_FINISHES),
        ((saw(b"a\nb\n", code=1),), Verdict.FAILS),
        ((saw(b"a\nb\n", code=None, signal=11),), Verdict.FAILS),
        ((Saw(processes=(Ran(code=1), Ran(ledger=b"a\n"))),), Verdict.FAILS),
        ((saw(b"a\nb\n", printed=b"x"),), Verdict.PRINTS),
        ((saw(b""), saw(b"")), Verdict.BAD_LEDGER),
        ((saw(b"\xff\n"),), Verdict.BAD_LEDGER),
        ((saw(b"a\n", rewrote="truncate(ledger)"),), Verdict.BAD_LEDGER),
    ],
)
def test_a_target_that_nothing_can_be_shown_of_is_named(references: Sequence[Saw], right: Verdict):
    assert rejected(*references)[:1] == [right]


def test_a_right_target_is_not_rejected_in_whatever_order_it_writes():
    assert rejected(RIGHT, saw(b"b\na\n")) == []
    assert rejected(saw(b"a\n", code=3), saw(b"a\n", code=3)) == []


def test_nobody_starts_a_process_after_an_end_or_two_failures():
    failed = Ran(code=1)
    assert needs_no_more([DIED, Ran()], RULES)
    assert needs_no_more([Ran(code=3)], RULES)
    assert needs_no_more([Ran(code=None, timed_out=True)], RULES)
    assert needs_no_more([DIED, failed, failed], RULES)
    assert not needs_no_more([failed, DIED], RULES)
    assert not needs_no_more([failed, DIED, failed], RULES)
    assert not needs_no_more([DIED], RULES)


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc"), min_size=1))
def test_a_done_run_passes_exactly_if_it_has_the_lines_of_the_unkilled_one(mine: list[str], right: list[str]):
    def run(lines: list[str]) -> Saw:
        return Saw(processes=(Ran(ledger="".join(f"{each}\n" for each in lines).encode()),))

    assert (judge(run(mine), run(right), RULES) == []) == (sorted(mine) == sorted(right))
