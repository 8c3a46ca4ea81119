"""Places to die and schedules: one line of text, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoint import Usage
from savepoint._crashpoint import CrashPoint
from savepoint.crash import Kill, Schedule

names = st.sampled_from([*map(str, CrashPoint), "time"])
kills = st.one_of(
    st.builds(Kill, names, st.integers(1, 10**6)),
    st.builds(Kill, st.just("call"), st.integers(1, 10**6), st.booleans()),
)
schedules = st.dictionaries(st.integers(0, 20), kills, max_size=5).map(Schedule)


@given(schedules)
def test_a_schedule_is_one_line_that_says_all(schedule: Schedule) -> None:
    assert Schedule.parse(str(schedule)) == schedule
    assert " " not in str(schedule)
    assert "\n" not in str(schedule)


@pytest.mark.parametrize(
    "text", ["", "body.after", "0@", "0@body.after", "x@body.after:1", "0@body.after:1,", "0@call:-1"]
)
def test_what_is_no_schedule_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Usage) as raised:
        Schedule.parse(text)
    assert "0@body.after:1" in raised.value.next


def test_the_last_process_that_dies_is_known() -> None:
    assert Schedule.parse("-").last == -1
    assert Schedule.parse("0@enter:1,3@time:20").last == 3
    assert str(Schedule.parse("3@time:20,0@enter:1")) == "0@enter:1,3@time:20"
