"""A transcript that was cut off is mended: what has no other half goes, the rest stays as it is."""

from hypothesis import given
from hypothesis import strategies as st

from agent import Reply, User, drop_dangling_tool_calls
from agent._contract_session import parts
from agent._entries import paired, whole_turns
from agent._message import ToolCall


def reply(count: int, step: int = 0, text: str = "") -> Reply:
    return Reply(text=text, calls=tuple(ToolCall(id=f"{step}.{i}", tool="f", arguments="{}") for i in range(count)))


@st.composite
def torn(draw: st.DrawFn) -> list[object]:
    """A transcript that lost some of its entries, or got some that belong nowhere."""
    entries = draw(parts())
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(entries)))
        if draw(st.booleans()):
            del entries[place : place + 1]
        else:
            entries.insert(place, draw(st.sampled_from(("stray", None, User(content="stray")))))
    return entries


@given(torn())
def test_what_is_mended_is_paired_and_stays_as_it_is(entries: list[object]) -> None:
    mended = drop_dangling_tool_calls(entries)
    assert paired(mended) == []
    assert drop_dangling_tool_calls(mended) == mended


@given(torn())
def test_no_text_is_lost_and_nothing_is_added(entries: list[object]) -> None:
    mended = drop_dangling_tool_calls(entries)
    for kind, name in ((User, "content"), (Reply, "text")):
        texts = [[getattr(e, name) for e in each if isinstance(e, kind)] for each in (entries, mended)]
        assert [text for text in texts[1] if text] == [text for text in texts[0] if text]
    left = [call for e in mended if isinstance(e, Reply) for call in e.calls]
    assert [call for e in entries if isinstance(e, Reply) for call in e.calls if call in left] == left
    outcomes = [[e for e in each if not isinstance(e, User | Reply)] for each in (entries, mended)]
    assert len(outcomes[1]) == len(left) <= len(outcomes[0])


@given(torn())
def test_what_is_whole_is_not_touched(entries: list[object]) -> None:
    if not paired(entries):
        assert drop_dangling_tool_calls(entries) == entries


def test_a_reply_keeps_the_calls_that_have_outcomes_and_its_text() -> None:
    assert drop_dangling_tool_calls([reply(3), "one", "two"]) == [reply(2), "one", "two"]
    assert drop_dangling_tool_calls([reply(2, text="let me look"), User(content="stop")]) == [
        Reply(text="let me look"),
        User(content="stop"),
    ]
    assert drop_dangling_tool_calls([User(content="go"), reply(1)]) == [User(content="go")]


def test_outcomes_without_a_call_go() -> None:
    assert drop_dangling_tool_calls(["stray", User(content="go"), "stray", reply(1), "one", "stray"]) == [
        User(content="go"),
        reply(1),
        "one",
    ]


def test_an_empty_answer_is_an_answer() -> None:
    assert drop_dangling_tool_calls([User(content="go"), Reply()]) == [User(content="go"), Reply()]


def test_ids_that_are_wrong_stay_for_append_to_refuse() -> None:
    twice = [reply(1), "one", reply(1), "two"]
    assert drop_dangling_tool_calls(twice) == twice
    assert paired(twice)


@given(parts(), st.data())
def test_a_cut_keeps_whole_turns_and_no_fewer(entries: list[object], data: st.DataObject) -> None:
    kept = entries[: data.draw(st.integers(0, len(entries)))]
    count = whole_turns(kept)
    assert paired(kept[:count]) == []
    assert all(paired(kept[:more]) for more in range(count + 1, len(kept) + 1))
