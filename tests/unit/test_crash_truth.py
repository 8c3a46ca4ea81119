"""What the rig answers for an agent: which lines are whose, and what is true of a call of unknown end."""

from collections.abc import Sequence

from agent.cli._crash_truth import Known, Passed, were_performed, written_by


def body(key: str, began: int, left: int) -> tuple[Passed, Passed]:
    return Passed(key=key, left=False, lines=began), Passed(key=key, left=True, lines=left)


def known(**lines: Sequence[str]) -> dict[str, Known]:
    return {call: Known(lines=each, result="") for call, each in lines.items()}


def test_lines_belong_to_the_body_in_which_they_came() -> None:
    one, two = body("one", 0, 1), body("two", 1, 3)
    assert written_by([*one, *two], ["a", "b", "c"]) == {"one": ["a"], "two": ["b", "c"]}


def test_an_inner_body_is_left_before_the_outer_one() -> None:
    outer, inner = body("outer", 0, 2), body("inner", 0, 1)
    assert written_by([outer[0], *inner, outer[1]], ["i", "o"]) == {"inner": ["i"], "outer": ["o"]}


def test_a_body_that_was_not_left_wrote_nothing_that_is_known() -> None:
    assert written_by([body("one", 0, 1)[0]], ["a"]) == {}


def test_a_call_whose_lines_are_there_was_performed() -> None:
    calls = known(one=["a"], two=["b"])
    assert were_performed(["two"], ["one"], calls, ["a", "b"]) == [True]
    assert were_performed(["two"], ["one"], calls, ["a"]) == [False]


def test_equal_lines_of_two_calls_are_shared_out() -> None:
    calls = known(one=["pay 5"], two=["pay 5"], three=["pay 5"])
    assert were_performed(["two"], ["one"], calls, ["pay 5"]) == [False]
    assert were_performed(["two", "three"], ["one"], calls, ["pay 5", "pay 5"]) == [True, False]


def test_a_call_that_no_unkilled_run_makes_was_not_performed() -> None:
    assert were_performed(["other"], ["strange"], known(one=["a"]), ["a"]) == [False]
