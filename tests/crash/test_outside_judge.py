"""The judge of the outside's programs, on histories made by hand: a right one passes, each wrong one is named."""

from typing import Any

import pytest
from attrs import evolve
from outside_target import Seen, wrong

from savepoint.crash import Act, Verdict
from savepoint.crash._outside_ledger import Received

ACT = Act(kind="once", tag="0.send", arguments=[1], key="k", value="0.send![1]", epoch=1)
ASKED = Received(number=1, operation="act", kind="once", tag="0.send", key="k", digest="d", epoch=1, fault=None)
PROBED = evolve(ASKED, operation="probe")
DONE: dict[str, Any] = {
    "status": "completed",
    "value": ["0.send![1]"],
    "receipts": {"k": ["send", "performed"]},
    "decided": [],
    "questions": [],
}
RIGHT = Seen(setting={}, lives=[DONE], ledger=[ACT], received=[ASKED])


def ended(seen: Seen, **changes: Any) -> Seen:
    return evolve(seen, lives=[{**DONE, **changes}])


def verdicts(seen: Seen) -> set[Verdict]:
    return {each.verdict for each in wrong(seen, [RIGHT])}


def test_a_right_history_passes() -> None:
    assert verdicts(RIGHT) == set()


TWICE = evolve(RIGHT, ledger=[ACT, ACT], received=[ASKED, ASKED])
KEYED = evolve(ASKED, kind="keyed")


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        (TWICE, Verdict.DUPLICATE),
        (ended(TWICE, decided=[("k", "redo", "person")]), Verdict.DUPLICATE),
        (evolve(TWICE, setting={"false": True}), Verdict.DUPLICATE),
        (evolve(RIGHT, received=[ASKED, ASKED]), Verdict.DUPLICATE),
        (evolve(RIGHT, received=[evolve(KEYED, fault="refused"), KEYED]), Verdict.DUPLICATE),
        (evolve(RIGHT, ledger=[]), Verdict.LOST),
        (ended(evolve(RIGHT, ledger=[]), decided=[("k", "performed", "probe")]), Verdict.LOST),
        (ended(RIGHT, receipts={"k": ["send", "in_doubt"]}), Verdict.LOST),
        (ended(RIGHT, receipts={}), Verdict.LOST),
        (ended(RIGHT, value=["0.send lost"]), Verdict.LOST),
        (ended(RIGHT, value=["0.send refused"]), Verdict.CORRUPT),
        (ended(RIGHT, status="failed", error="ValueError: x"), Verdict.CORRUPT),
        (ended(RIGHT, value=["0.send![2]"]), Verdict.DIVERGED),
        (evolve(RIGHT, received=[KEYED, evolve(KEYED, key="other")]), Verdict.DIVERGED),
        (evolve(RIGHT, received=[KEYED, evolve(KEYED, digest="other")]), Verdict.DIVERGED),
        (ended(RIGHT, questions=[("diverged", "send", "k")]), Verdict.DIVERGED),
        (ended(RIGHT, questions=[("in_doubt", "sure", "k")]), Verdict.DIVERGED),
        (evolve(RIGHT, received=[evolve(KEYED, epoch=2), KEYED]), Verdict.DOUBLE_OWNER),
        (evolve(RIGHT, lives=[{"timed_out": True}, DONE]), Verdict.STUCK),
    ],
)
def test_each_wrong_history_is_named(seen: Seen, verdict: Verdict) -> None:
    assert verdict in verdicts(seen)


@pytest.mark.parametrize(
    "seen",
    [
        evolve(ended(TWICE, decided=[("k", "redo", "person")]), setting={"lying": True}),
        evolve(ended(TWICE, decided=[("k", "redo", "probe")]), setting={"false": True}),
        evolve(ended(RIGHT, decided=[("k", "performed", "probe")]), setting={"false": True}, ledger=[]),
        evolve(ended(RIGHT, decided=[("k", "redo", "person")]), received=[ASKED, ASKED]),
        evolve(RIGHT, received=[ASKED, PROBED, ASKED]),
        ended(RIGHT, questions=[("in_doubt", "send", "k")]),
        evolve(ended(RIGHT, questions=[("in_doubt", "sure", "k")]), setting={"mute": True}),
    ],
)
def test_what_is_on_record_as_said_is_no_fault_of_the_run(seen: Seen) -> None:
    assert verdicts(seen) == set()


def test_fresh_observations_are_compared_by_their_first_appearance() -> None:
    one, same = (ended(RIGHT, value=[r, f"1.send!['{r}']", s]).value for r, s in (("r7", "r3"), ("r1", "r2")))
    assert one == same
    assert ended(RIGHT, value=["r7", "r7"]).value != ended(RIGHT, value=["r7", "r8"]).value
