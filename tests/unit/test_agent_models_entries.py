"""Transcripts: pairing by place, and what a model is shown of outcomes."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from agent._answer import Answer, Usage, Wanted
from agent._entries import TYPES, Denied, Lost, Reply, User, messages, paired, recorded, render
from agent._message import AssistantMessage, ToolCall, ToolMessage, UserMessage
from effects._failure import Failure
from savepoint._codec import dumps, loads
from savepoint._errors import Corrupt


def reply(step: int, count: int, text: str = "") -> Reply:
    calls = (ToolCall(id=f"{step}.{index}", tool="f", arguments="{}") for index in range(count))
    return Reply(text=text, calls=tuple(calls))


OUTCOMES = st.sampled_from(["ok", None, 7, Failure(kind="KeyError", message="x"), Denied(reason="no"), ["a"]])


@st.composite
def transcripts(draw: st.DrawFn) -> list[object]:
    entries: list[object] = []
    for step, count in enumerate(draw(st.lists(st.integers(0, 3), max_size=5))):
        if draw(st.booleans()):
            entries.append(User(content="u"))
        entries += [reply(step, count), *(draw(OUTCOMES) for _ in range(count))]
    return entries


@given(transcripts())
def test_a_whole_transcript_is_paired_and_every_call_is_shown_with_its_outcome(entries: list[object]) -> None:
    assert paired(entries) == []
    shown = messages(entries)
    asked = [call.id for each in shown if isinstance(each, AssistantMessage) for call in each.calls]
    assert [each.call_id for each in shown if isinstance(each, ToolMessage)] == asked


@given(transcripts(), st.data())
def test_every_lost_outcome_is_found_and_never_shown(entries: list[object], data: st.DataObject) -> None:
    places = [place for place, entry in enumerate(entries) if not isinstance(entry, (User, Reply))]
    if places:
        del entries[data.draw(st.sampled_from(places))]
        assert paired(entries)
        with pytest.raises(Corrupt):
            messages(entries)


@given(transcripts(), st.data())
def test_every_outcome_too_many_is_found(entries: list[object], data: st.DataObject) -> None:
    ends = [place for place in range(len(entries) + 1) if place == len(entries) or isinstance(entries[place], User)]
    entries.insert(data.draw(st.sampled_from(ends)), "stray")
    assert any("without a call" in found for found in paired(entries))


def test_what_a_transcript_and_a_models_receipt_hold_is_portable() -> None:
    wanted = Wanted(tool="f", arguments="{oops", provider_id="x")
    answer = Answer(text="t", calls=(wanted,), usage=Usage(input_tokens=1), provider={"id": "z"})
    values = [User(content="go"), recorded(answer, step=2), Denied(reason="no"), Lost(note="gone"), answer]
    assert loads(dumps(values), types=TYPES) == values


def test_open_calls_are_named() -> None:
    assert paired([reply(3, 2), "ok"]) == ["call 3.1 (f) of entry 0 has no outcome"]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([reply(0, 1), "ok", reply(0, 1), "ok"], "id of an earlier call"),
        ([Reply(calls=(ToolCall(id="0.1", tool="f", arguments=""),)), "ok"], "stands at index 0"),
        (
            [
                Reply(calls=tuple(ToolCall(id=each, tool="f", arguments="") for each in ("0.0", "1.1"))),
                "ok",
                "ok",
            ],
            "several steps: 0, 1",
        ),
    ],
)
def test_call_ids_that_lie_are_found(entries: list[object], words: str) -> None:
    found = paired(entries)
    assert len(found) == 1
    assert words in found[0]


def test_a_model_is_shown_texts_calls_and_outcomes_in_order() -> None:
    entries = [User(content="go"), reply(0, 2, "look"), "found", Failure(kind="KeyError", message="k")]
    assert list(messages(entries)) == [
        UserMessage(content="go"),
        AssistantMessage(text="look", calls=reply(0, 2).calls),
        ToolMessage(call_id="0.0", text="found"),
        ToolMessage(call_id="0.1", text="Failed: KeyError: k"),
    ]


class Color(Enum):
    RED = "red"


@frozen(kw_only=True)
class Point:
    x: int
    color: Color


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        ("as it is\n", "as it is\n"),
        (None, "null"),
        (True, "true"),
        ({"é": [1, 2.5, (None,)]}, '{"é": [1, 2.5, [null]]}'),
        ({1: "a", "1": "b"}, '[[1, "a"], ["1", "b"]]'),
        ({1: "a", 2: "b"}, '{"1": "a", "2": "b"}'),
        ({(1, 2): "a"}, '{"[1, 2]": "a"}'),
        (frozenset({"b", "a"}), '["a", "b"]'),
        (float("nan"), '"nan"'),
        (b"\x00\xff", '"hex:00ff"'),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00+00:00"'),
        (timedelta(seconds=90), '"90.0 s"'),
        (Decimal("1.50"), '"1.50"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Point(x=1, color=Color.RED), '{"x": 1, "color": "red"}'),
        (Denied(reason="not today"), "Denied: not today"),
        (Denied(reason=""), "Denied: no reason was given"),
        (Lost(note="its result is gone"), "Lost: its result is gone"),
    ],
    ids=lambda each: f"{type(each).__name__} {str(each)[:20]}" if not isinstance(each, frozenset) else "frozenset",
)
def test_outcomes_are_told_in_words_or_json(outcome: object, text: str) -> None:
    assert render(outcome, 1000) == text


def test_an_integer_that_python_will_not_write_is_told_all_the_same() -> None:
    assert json.loads(render(10**5000, 10_000)) == hex(10**5000)


@given(st.text(max_size=200), st.integers(0, 50))
def test_a_long_text_keeps_its_head_and_tail_and_says_what_is_missing(text: str, limit: int) -> None:
    shown = render(text, limit)
    if len(text) <= limit:
        assert shown == text
    else:
        tail = limit // 4
        note = f"\n[{len(text) - limit} of {len(text)} characters cut here; the full result is stored]\n"
        assert shown == text[: limit - tail] + note + text[len(text) - tail :]
