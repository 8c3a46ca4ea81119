"""The oracle notices: each bad history, made by hand, gets its verdict, and a good one gets none."""

import outside
import pytest
from attrs import evolve
from outside import Act

from savepoint.crash import Ended, History, Lived, Promise, Verdict, violations
from savepoint.crash._history import Asked

SENT = Act(kind="once", tag="0.a", arguments=[1], key="k1", value="0.a![1]")
PUT = Act(kind="idempotent", tag="1.b", arguments=["x"], key="k2", value="1.b!['x']")
ENDED = Ended(value="[1]", world="{}", points={1: "p"}, ids={1: "i"}, receipts={"k1": "performed", "k2": "performed"})
GOOD = History(
    lives=[Lived(killed=False, status="completed", entered=["0.a", "1.b"])],
    ledger=[SENT, PUT],
    ended=ENDED,
    requests=[[], 0, 1],
)
KILLED = Lived(killed=True, entered=["0.a"])
DOUBT = Asked(kind="in_doubt", effect="send", key="k1")
WAITING = Lived(killed=False, status="waiting", questions=[DOUBT], unsettled=["k1"], undecided=["k1"])
DONE = Lived(killed=False, status="completed", entered=["1.b"], unsettled=["k1"])
RESUMED = evolve(GOOD, lives=[KILLED, WAITING, DONE])


def found(history: History, **promise: bool) -> list[tuple[Verdict, str]]:
    return [(each.verdict, each.what) for each in violations(history, [GOOD], Promise(**promise))]


def test_a_good_history_is_not_complained_about() -> None:
    assert not found(GOOD)
    assert not found(RESUMED)
    assert not found(evolve(RESUMED, ledger=[SENT, PUT, PUT]))  # an IDEMPOTENT call may be repeated as it was
    assert not found(evolve(GOOD, requests=[[], 0, 1, [0], 1], host="untouched"))
    assert not found(evolve(GOOD, lives=[Lived(killed=False, status="interrupted"), DONE]), interrupted=True)


BAD: dict[str, tuple[History, Verdict, str]] = {
    "ONCE twice": (
        evolve(RESUMED, ledger=[SENT, evolve(SENT, key="k3"), PUT]),
        Verdict.DUPLICATE,
        "performed twice",
    ),
    "a model reply paid twice": (
        evolve(GOOD, requests=[[], 0, 1, [0], 0]),
        Verdict.DUPLICATE,
        "asked for reply 0 again",
    ),
    "a reply of another agent paid twice": (
        evolve(GOOD, requests=[[], 0, 1, ["x/0"], "x/0 other"]),
        Verdict.DUPLICATE,
        "asked for reply x/0 other again",
    ),
    "another agent asked": (
        evolve(GOOD, requests=[[], 0, "1 other"]),
        Verdict.DIVERGED,
        "asked for ['0', '1 other']",
    ),
    "IDEMPOTENT with other arguments": (
        evolve(GOOD, ledger=[SENT, PUT, evolve(PUT, arguments=["y"])]),
        Verdict.DIVERGED,
        "repeated as another call",
    ),
    "IDEMPOTENT with another key": (
        evolve(GOOD, ledger=[SENT, PUT, evolve(PUT, key="k9")]),
        Verdict.DIVERGED,
        "repeated as another call",
    ),
    "performed and forgotten": (
        evolve(GOOD, ended=evolve(ENDED, receipts={"k1": "intended"})),
        Verdict.LOST,
        "its receipt says intended",
    ),
    "not performed at all": (evolve(GOOD, ledger=[PUT]), Verdict.LOST, "never saw ['0.a']"),
    "performed what nobody asked for": (
        evolve(GOOD, ledger=[SENT, PUT, evolve(PUT, tag="7.z")]),
        Verdict.DIVERGED,
        "which no unkilled run performs",
    ),
    "an intent left open": (
        evolve(RESUMED, lives=[KILLED, WAITING, evolve(DONE, unsettled=["k1", "k8"])]),
        Verdict.LOST,
        "k8 has an intent without an outcome",
    ),
    "another result": (evolve(GOOD, ended=evolve(ENDED, value="[2]")), Verdict.DIVERGED, "it ended with"),
    "another world": (evolve(GOOD, ended=evolve(ENDED, world="{'n': 2}")), Verdict.DIVERGED, "it ended with"),
    "another savepoint": (evolve(GOOD, ended=evolve(ENDED, points={1: "q"})), Verdict.DIVERGED, "savepoint 1 is q"),
    "a savepoint of no step": (
        evolve(GOOD, ended=evolve(ENDED, points={1: "p", 7: "p"})),
        Verdict.DIVERGED,
        "savepoint 7",
    ),
    "a savepoint is missing": (evolve(GOOD, ended=evolve(ENDED, points={})), Verdict.DIVERGED, "it has savepoints []"),
    "another run inside": (
        evolve(GOOD, ended=evolve(ENDED, inside=["i"])),
        Verdict.DIVERGED,
        "the runs nested in it are ['i']",
    ),
    "interrupted": (
        evolve(GOOD, lives=[Lived(killed=False, status="interrupted"), DONE]),
        Verdict.CORRUPT,
        "the run ended as interrupted",
    ),
    "another identity": (evolve(GOOD, ended=evolve(ENDED, ids={1: "j"})), Verdict.HASH_DRIFT, "another identity"),
    "calls without outcomes": (
        evolve(GOOD, ended=evolve(ENDED, unpaired=["call 0.0 has no outcome"])),
        Verdict.CORRUPT,
        "no outcome",
    ),
    "never completed": (evolve(RESUMED, ended=None), Verdict.STUCK, "not completed"),
    "failed": (evolve(GOOD, lives=[Lived(killed=False, status="failed")]), Verdict.CORRUPT, "the run ended as failed"),
    "the host changed": (evolve(GOOD, host="a.txt is new"), Verdict.LEAK, "a.txt is new"),
    "a question without a cause": (
        evolve(RESUMED, lives=[KILLED, evolve(WAITING, unsettled=[], undecided=[]), DONE]),
        Verdict.DIVERGED,
        "without an intent",
    ),
    "diverged without a cause": (
        evolve(RESUMED, lives=[KILLED, evolve(WAITING, questions=[evolve(DOUBT, kind="diverged")]), DONE]),
        Verdict.DIVERGED,
        "deterministic",
    ),
    "asked about what was performed": (
        evolve(RESUMED, lives=[KILLED, evolve(WAITING, questions=[evolve(DOUBT, kind="performed")]), DONE]),
        Verdict.DIVERGED,
        "although it was performed",
    ),
    "a question of another kind": (
        evolve(RESUMED, lives=[KILLED, evolve(WAITING, questions=[evolve(DOUBT, kind="damaged")]), DONE]),
        Verdict.DIVERGED,
        "of kind damaged",
    ),
    "asked after something was entered": (
        evolve(RESUMED, lives=[KILLED, evolve(WAITING, entered=["1.b"]), DONE]),
        Verdict.DIVERGED,
        "were entered before the question",
    ),
    "entered while it waits": (
        evolve(RESUMED, lives=[KILLED, WAITING, evolve(WAITING, open_before=1, entered=["1.b"]), DONE]),
        Verdict.DIVERGED,
        "with 1 open questions it entered",
    ),
    "went on without an answer": (
        evolve(RESUMED, lives=[KILLED, WAITING, evolve(DONE, open_before=1, entered=[])]),
        Verdict.DIVERGED,
        "with 1 open questions",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_gets_its_verdict(name: str) -> None:
    history, verdict, words = BAD[name]
    assert [each for each, what in found(history) if words in what] == [verdict]


def test_a_strict_run_asks_before_anything_is_entered() -> None:
    late = evolve(WAITING, questions=[evolve(DOUBT, kind="performed")], entered=["1.b"])
    assert "entered before the question" in found(evolve(RESUMED, lives=[KILLED, late, DONE]), strict=True)[0][1]


def test_a_question_is_wrong_where_a_final_probe_answers() -> None:
    assert "its probe is final" in found(RESUMED, no_questions=True)[0][1]


def test_another_once_call_of_a_perturbed_program_needs_a_question() -> None:
    other = evolve(SENT, tag="0.z", key="k9")
    moody = evolve(RESUMED, ledger=[SENT, other], ended=evolve(ENDED, receipts={"k1": "performed", "k9": "performed"}))
    assert [verdict for verdict, what in found(moody, perturbed=True) if "nobody was asked" in what] == ["duplicate"]
    assert moody.ended is not None
    asked = evolve(moody, ended=evolve(moody.ended, decided=[("diverged", "send", "performed")]))
    assert not found(asked, perturbed=True)


def test_what_a_target_does_not_promise_is_not_asked() -> None:
    assert not found(evolve(GOOD, ended=evolve(ENDED, world="{'n': 2}", points={1: "q"})), lost_world=True)
    assert not found(evolve(GOOD, ended=evolve(ENDED, ids={1: "j"})), fresh=True)
    assert not found(evolve(GOOD, ended=evolve(ENDED, points={}, ids={})), skips=True)
    assert not found(
        evolve(RESUMED, lives=[KILLED, evolve(WAITING, questions=[evolve(DOUBT, kind="performed")]), DONE]), strict=True
    )


def test_fresh_reads_are_renamed_by_first_appearance() -> None:
    assert outside.renamed("['r7', 'x-r7', 'r12', 'r7']") == "['R0', 'x-R0', 'R1', 'R0']"
    assert outside.renamed("['r1', 'r2']") != outside.renamed("['r1', 'r1']")
