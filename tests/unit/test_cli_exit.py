"""Every error and every status has its exit code, and the table has nothing else than what the brief lists."""

from collections.abc import Iterator
from itertools import combinations

from agent.cli._exit import OF_CODE, OF_STATUS, Exit
from agent.cli._recovery import worst
from effects import EffectError
from savepoint import RunStatus, SavepointError


def kinds(root: type) -> Iterator[type]:
    yield root
    for kind in root.__subclasses__():
        yield from kinds(kind)


def test_every_error_of_the_three_packages_has_an_exit_code():
    ours = [*kinds(SavepointError), *kinds(EffectError)]
    codes = {kind.code for kind in ours if kind.__module__.partition(".")[0] in {"agent", "effects", "savepoint"}}
    assert len(codes) > 15
    assert codes <= OF_CODE.keys()


def test_no_error_is_success():
    assert Exit.DONE not in OF_CODE.values()


def test_every_status_has_an_exit_code_and_only_a_completed_run_is_done():
    assert OF_STATUS.keys() == set(RunStatus)
    assert [status for status, code in OF_STATUS.items() if code is Exit.DONE] == [RunStatus.COMPLETED]


def test_the_codes_are_those_that_scripts_know():
    assert {code.name: int(code) for code in Exit} == {
        "DONE": 0, "FAILED": 1, "USAGE": 2, "WAITING": 3, "NOT_FOUND": 4, "HELD": 5, "DAMAGED": 6, "NEWER": 7,
        "CONFLICT": 8, "NOT_WRITABLE": 9, "INTERRUPTED": 130,
    }  # fmt: skip


def test_of_several_runs_a_failure_says_more_than_a_question_and_a_question_more_than_success():
    assert worst([]) is Exit.DONE
    order = [
        Exit.INTERRUPTED,
        Exit.FAILED,
        Exit.WAITING,
        Exit.HELD,
        Exit.NOT_WRITABLE,
        Exit.CONFLICT,
        Exit.USAGE,
        Exit.DONE,
    ]
    for one, other in combinations(order, 2):
        assert worst([one, other]) is worst([other, one]) is one
    assert {worst([code]) for code in Exit} == set(Exit)
