"""The table of recovery, stated again cell by cell: class x receipt x what else is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effects import Idempotency, stricter
from effects._receipt import Receipt, Status
from effects._recovery import Facts, Rules, Verdict, decide

READ, CONTAINED, COMPOSITE = Idempotency.READ, Idempotency.CONTAINED, Idempotency.COMPOSITE
IDEMPOTENT, KEYED, ONCE = Idempotency.IDEMPOTENT, Idempotency.KEYED, Idempotency.ONCE
NONE, WITHDRAWN, INTENDED = None, Status.WITHDRAWN, Status.INTENDED
IN_DOUBT, PERFORMED, FAILED = Status.IN_DOUBT, Status.PERFORMED, Status.FAILED
DO, REUSE, RAISE = Verdict.DO, Verdict.REUSE, Verdict.RAISE
PROBE, WAIT, DIVERGED = Verdict.PROBE, Verdict.WAIT, Verdict.DIVERGED

WINDOW_S = 60.0

# The table of the brief, one row a class. (`covered`: the fork holds every CONTAINED outcome at or below the call.)
PLAIN = {
    #            none  withdrawn intended in doubt performed failed
    READ: (DO, DO, DO, DO, REUSE, RAISE),
    CONTAINED: (DO, DO, DO, DO, REUSE, RAISE),
    COMPOSITE: (DO, DO, DO, DO, REUSE, RAISE),
    IDEMPOTENT: (DO, DO, DO, DO, REUSE, RAISE),
    KEYED: (DO, DO, DO, WAIT, REUSE, RAISE),
    ONCE: (DO, DO, WAIT, WAIT, REUSE, RAISE),
}
COLUMNS = (NONE, WITHDRAWN, INTENDED, IN_DOUBT, PERFORMED, FAILED)

# What a fact changes; where it changes nothing there is no row.
FACTS: list[tuple[str, Idempotency, Status, dict[str, object], dict[str, object], Verdict]] = [
    ("not in the fork: done again", CONTAINED, PERFORMED, {}, {"covered": False}, DO),
    ("not in the fork: done again", CONTAINED, FAILED, {}, {"covered": False}, DO),
    ("a part is not in the fork: entered", COMPOSITE, PERFORMED, {}, {"covered": False}, DO),
    ("a part is not in the fork: entered", COMPOSITE, FAILED, {}, {"covered": False}, DO),
    ("the outside is in no fork", READ, PERFORMED, {}, {"covered": False}, REUSE),
    ("the outside is in no fork", IDEMPOTENT, PERFORMED, {}, {"covered": False}, REUSE),
    ("the outside is in no fork", KEYED, PERFORMED, {}, {"covered": False}, REUSE),
    ("the outside is in no fork", ONCE, PERFORMED, {}, {"covered": False}, REUSE),
    ("young enough", READ, PERFORMED, {"max_age_s": 5.0}, {"age_s": 5.0}, REUSE),
    ("too old", READ, PERFORMED, {"max_age_s": 5.0}, {"age_s": 5.1}, DO),
    ("too old, an error", READ, FAILED, {"max_age_s": 5.0}, {"age_s": 5.1}, DO),
    ("the clock was set back: not young", READ, PERFORMED, {"max_age_s": 5.0}, {"age_s": -1.0}, DO),
    ("too old, but depended on", READ, PERFORMED, {"max_age_s": 5.0}, {"age_s": 99.0, "depended": True}, REUSE),
    ("no age is too old", READ, PERFORMED, {}, {"age_s": 1e9}, REUSE),
    ("inside the window", KEYED, INTENDED, {}, {"age_s": WINDOW_S - 1}, DO),
    ("the window is over", KEYED, INTENDED, {}, {"age_s": WINDOW_S}, WAIT),
    ("the window is over, with a probe", KEYED, INTENDED, {"probe": True}, {"age_s": WINDOW_S}, PROBE),
    ("the clock was set back: window unknown", KEYED, INTENDED, {}, {"age_s": -1.0}, WAIT),
    ("tried again already", KEYED, IN_DOUBT, {"probe": True}, {}, PROBE),
    ("ONCE knows no window", ONCE, INTENDED, {}, {"age_s": 0.0}, WAIT),
    ("a probe is asked", ONCE, INTENDED, {"probe": True}, {}, PROBE),
    ("a probe is asked", ONCE, IN_DOUBT, {"probe": True}, {}, PROBE),
    ("a decision", ONCE, INTENDED, {"probe": True}, {"redo": True}, DO),
    ("a decision", ONCE, IN_DOUBT, {}, {"redo": True}, DO),
    ("a decision", KEYED, INTENDED, {}, {"redo": True, "age_s": WINDOW_S}, DO),
    ("settled: no decision is needed", ONCE, PERFORMED, {}, {"redo": True}, REUSE),
    ("strict", ONCE, PERFORMED, {}, {"strict": True, "before_claim": True}, WAIT),
    ("strict, of this attempt", ONCE, PERFORMED, {}, {"strict": True}, REUSE),
    ("strict, reviewed", ONCE, PERFORMED, {}, {"strict": True, "before_claim": True, "reviewed": True}, REUSE),
    ("strict, to be done again", ONCE, PERFORMED, {}, {"strict": True, "before_claim": True, "redo": True}, DO),
    ("strict, a known failure", ONCE, FAILED, {}, {"strict": True, "before_claim": True}, RAISE),
    ("strict is about ONCE", KEYED, PERFORMED, {}, {"strict": True, "before_claim": True}, REUSE),
    ("strict is about ONCE", READ, PERFORMED, {}, {"strict": True, "before_claim": True}, REUSE),
    ("another version, unsettled", ONCE, INTENDED, {"version": 2}, {}, DIVERGED),
    ("another version, unsettled, whatever was decided", ONCE, IN_DOUBT, {"version": 2}, {"redo": True}, DIVERGED),
    ("another version, unsettled", KEYED, INTENDED, {"version": 2}, {}, DIVERGED),
    ("another version, settled", ONCE, PERFORMED, {"version": 2}, {}, REUSE),
    ("another version of what is safe", IDEMPOTENT, INTENDED, {"version": 2}, {}, DO),
]


def receipt(idempotency: Idempotency, status: Status) -> Receipt:
    return Receipt(key=b"k" * 16, step=0, effect="e", version=1, idempotency=idempotency, status=status, number=1)


def rules(idempotency: Idempotency, **more: object) -> Rules:
    window_s = WINDOW_S if idempotency is KEYED else 0.0
    return Rules(idempotency=idempotency, window_s=window_s, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("idempotency", PLAIN)
@pytest.mark.parametrize("column", range(len(COLUMNS)))
def test_the_table_says_the_same_as_the_brief(idempotency: Idempotency, column: int) -> None:
    status = COLUMNS[column]
    known = None if status is None else receipt(idempotency, status)
    assert decide(rules(idempotency), known, Facts()) is PLAIN[idempotency][column]


@pytest.mark.parametrize(("why", "idempotency", "status", "declared", "facts", "verdict"), FACTS)
def test_a_fact_changes_a_cell(
    why: str,
    idempotency: Idempotency,
    status: Status,
    declared: dict[str, object],
    facts: dict[str, object],
    verdict: Verdict,
) -> None:
    found = decide(rules(idempotency, **declared), receipt(idempotency, status), Facts(**facts))  # type: ignore[arg-type]
    assert found is verdict, why


classes = st.sampled_from([READ, CONTAINED, COMPOSITE, IDEMPOTENT, KEYED, ONCE])
statuses = st.sampled_from(list(Status))
facts = st.builds(
    Facts,
    covered=st.booleans(),
    age_s=st.floats(-100, 1000),
    depended=st.booleans(),
    before_claim=st.booleans(),
    strict=st.booleans(),
    redo=st.booleans(),
    reviewed=st.booleans(),
)
declared = st.builds(
    Rules,
    idempotency=classes,
    version=st.integers(1, 2),
    probe=st.booleans(),
    window_s=st.floats(0, 100),
    max_age_s=st.none() | st.floats(0, 100),
)


@given(now=declared, then=classes, status=statuses, known=facts)
def test_where_the_class_changed_the_stricter_one_counts(
    now: Rules, then: Idempotency, status: Status, known: Facts
) -> None:
    from attrs import evolve

    strict = stricter(now.idempotency, then)
    as_if = decide(evolve(now, idempotency=strict), receipt(strict, status), known)
    assert decide(now, receipt(then, status), known) is as_if


@given(now=declared, status=statuses, known=facts)
def test_an_unsettled_once_call_is_done_again_by_a_decision_alone(now: Rules, status: Status, known: Facts) -> None:
    verdict = decide(now, receipt(ONCE, status), known)
    if status in (INTENDED, IN_DOUBT) and verdict is DO:
        assert known.redo


@given(now=declared, status=statuses, known=facts)
def test_only_what_may_have_changed_the_outside_is_ever_asked_about(now: Rules, status: Status, known: Facts) -> None:
    then = now.idempotency
    if decide(now, receipt(then, status), known) in (PROBE, WAIT, DIVERGED):
        assert then in (KEYED, ONCE)


@given(now=declared, then=classes, status=st.sampled_from([PERFORMED, FAILED]), known=facts)
def test_a_settled_call_is_never_probed_and_never_answered_with_the_other_outcome(
    now: Rules, then: Idempotency, status: Status, known: Facts
) -> None:
    assert decide(now, receipt(then, status), known) in {DO, WAIT, REUSE if status is PERFORMED else RAISE}
