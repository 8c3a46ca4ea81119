"""The oracle notices: each bad history, made by hand, is complained about, and a good one is not."""

import pytest
from attrs import evolve
from oracle import Allowed, Ended, History, Lived, complaints, renamed
from outside import Act

SENT = Act(kind="once", tag="0.a", arguments=[1], key="k1", value="0.a![1]")
PUT = Act(kind="idempotent", tag="1.b", arguments=["x"], key="k2", value="1.b!['x']")
ENDED = Ended(value="[1]", world="{}", points={1: "p"}, ids={1: "i"}, receipts={"k1": "performed", "k2": "performed"})
GOOD = History(lives=[Lived(killed=False, status="completed", entered=["0.a", "1.b"])], ledger=[SENT, PUT], ended=ENDED)
KILLED = Lived(killed=True, entered=["0.a"])
WAITING = Lived(killed=False, status="waiting", questions=[("in_doubt", "send", "k1")], unsettled=["k1"])
DONE = Lived(killed=False, status="completed", entered=["1.b"])
RESUMED = evolve(GOOD, lives=[KILLED, WAITING, DONE])


def found(history: History, **allowed: bool) -> str:
    return "; ".join(complaints(history, [GOOD], Allowed(**allowed)))


def test_a_good_history_is_not_complained_about() -> None:
    assert not found(GOOD)
    assert not found(RESUMED)


BAD: dict[str, tuple[History, str]] = {
    "ONCE twice": (evolve(RESUMED, ledger=[SENT, evolve(SENT, key="k3"), PUT]), "performed twice"),
    "IDEMPOTENT with other arguments": (evolve(GOOD, ledger=[SENT, PUT, evolve(PUT, arguments=["y"])]), "performed as"),
    "performed and forgotten": (evolve(GOOD, ended=evolve(ENDED, receipts={"k1": "intended"})), "its receipt says"),
    "not performed at all": (evolve(GOOD, ledger=[PUT]), "the outside has"),
    "another result": (evolve(GOOD, ended=evolve(ENDED, value="[2]")), "it ended with"),
    "another world": (evolve(GOOD, ended=evolve(ENDED, world="{'n': 2}")), "it ended with"),
    "another savepoint": (evolve(GOOD, ended=evolve(ENDED, points={1: "q"})), "savepoint 1 is q"),
    "a savepoint of no step": (evolve(GOOD, ended=evolve(ENDED, points={1: "p", 7: "p"})), "savepoint 7"),
    "another identity": (evolve(GOOD, ended=evolve(ENDED, ids={1: "j"})), "another identity"),
    "never completed": (evolve(RESUMED, ended=None), "no progress"),
    "failed": (evolve(GOOD, lives=[Lived(killed=False, status="failed")]), "the run ended as failed"),
    "a question without a cause": (
        evolve(RESUMED, lives=[KILLED, evolve(WAITING, unsettled=[]), DONE]),
        "without an intent",
    ),
    "diverged without a cause": (
        evolve(RESUMED, lives=[KILLED, evolve(WAITING, questions=[("diverged", "send", "k1")]), DONE]),
        "deterministic",
    ),
    "asked about what was performed": (
        evolve(RESUMED, lives=[KILLED, evolve(WAITING, questions=[("performed", "send", "k1")]), DONE]),
        "although it was performed",
    ),
    "asked after something was entered": (
        evolve(RESUMED, lives=[KILLED, evolve(WAITING, entered=["1.b"]), DONE]),
        "were entered before the question",
    ),
    "entered while it waits": (
        evolve(RESUMED, lives=[KILLED, WAITING, evolve(WAITING, open_before=1, entered=["1.b"]), DONE]),
        "with 1 open questions it entered",
    ),
    "went on without an answer": (
        evolve(RESUMED, lives=[KILLED, WAITING, evolve(DONE, open_before=1, entered=[])]),
        "with 1 open questions",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_named(name: str) -> None:
    history, words = BAD[name]
    assert words in found(history)


def test_a_question_is_wrong_where_a_final_probe_answers() -> None:
    assert "its probe is final" in found(RESUMED, no_questions=True)


def test_another_once_call_of_a_perturbed_program_needs_a_question() -> None:
    other = evolve(SENT, tag="0.z", key="k9")
    moody = evolve(RESUMED, ledger=[SENT, other], ended=evolve(ENDED, receipts={"k1": "performed", "k9": "performed"}))
    assert "nobody was asked" in found(moody, perturbed=True)
    assert moody.ended is not None
    asked = evolve(moody, ended=evolve(moody.ended, answered=[("diverged", "send", "performed")]))
    assert not found(asked, perturbed=True)


def test_what_a_scenario_does_not_promise_is_not_asked() -> None:
    assert not found(evolve(GOOD, ended=evolve(ENDED, world="{'n': 2}", points={1: "q"})), lost_world=True)
    assert not found(evolve(GOOD, ended=evolve(ENDED, ids={1: "j"})), fresh=True)


def test_fresh_reads_are_renamed_by_first_appearance() -> None:
    assert renamed("['r7', 'x-r7', 'r12', 'r7']") == "['R0', 'x-R0', 'R1', 'R0']"
    assert renamed("['r1', 'r2']") != renamed("['r1', 'r1']")
