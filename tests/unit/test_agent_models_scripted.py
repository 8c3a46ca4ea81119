"""The scripted model, script files, and what an answer must be to be used."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent._answer import Answer, ModelError, ModelUnavailable, Problem, Trouble, Usage, Wanted, refusals, sane
from agent._arguments import BadArguments, parse_object
from agent._entries import Reply, User, messages, recorded
from agent._message import AssistantMessage, Messages, UserMessage
from agent._model import Request, resolve_model
from agent.testing import ScriptedModel, Turn, call, calls, say
from effects._failure import Failure
from savepoint import _errors


def after(answers: int, *, history: int = 0) -> Request:
    shown = [UserMessage(content="go"), *(AssistantMessage(text="x") for _ in range(answers))]
    return Request(messages=Messages(shown), history=history)


async def test_a_rebuilt_model_goes_on_where_the_run_is() -> None:
    for turn, text in enumerate(["one", "two", "three"]):
        model = ScriptedModel([say("one"), say("two"), say("three")])
        assert (await model.reply(after(turn))).text == text
        assert model.asked == 1


async def test_answers_of_earlier_runs_of_the_session_do_not_count() -> None:
    answer = await ScriptedModel([say("first")]).reply(after(2, history=3))
    assert answer.text == "first"


async def test_a_plain_list_of_messages_counts_like_the_shared_one() -> None:
    request = Request(messages=[UserMessage(content="go"), AssistantMessage(text="x")])
    assert (await ScriptedModel([say("one"), say("two")]).reply(request)).text == "two"


async def test_a_script_that_is_over_says_so() -> None:
    with pytest.raises(ModelError, match="1 turns and the run asks for turn 2") as caught:
        await ScriptedModel([say("one")]).reply(after(1))
    assert not caught.value.retryable


async def test_a_turn_may_be_a_function_of_the_request() -> None:
    model = ScriptedModel([lambda request: say(f"{len(request.messages)} messages")])
    assert (await model.reply(after(0))).text == "1 messages"


async def test_calls_keep_their_text_ids_and_order_in_one_turn() -> None:
    turn = calls(say("both:"), call("f", a=1, b="é"), call("f", _raw="{oops", _id="mine"))
    answer = await ScriptedModel([turn], usage=Usage(input_tokens=60, output_tokens=40)).reply(after(0))
    assert answer.text == "both:"
    assert answer.calls == (
        Wanted(tool="f", arguments='{"a": 1, "b": "é"}', provider_id="scripted-0-0"),
        Wanted(tool="f", arguments="{oops", provider_id="mine"),
    )
    assert answer.usage.total == 100


async def test_text_is_shown_in_pieces_that_make_the_whole() -> None:
    seen: list[str] = []
    answer = await ScriptedModel([say(" one  two\nthree ")]).reply(after(0), on_text=seen.append)
    assert "".join(seen) == answer.text
    assert len(seen) > 1


@pytest.mark.parametrize("arguments", [{"_raw": "{}", "a": 1}, {"a": {1, 2}}], ids=["raw and more", "no JSON"])
def test_a_turn_that_cannot_be_is_refused_when_it_is_written(arguments: dict[str, object]) -> None:
    with pytest.raises(_errors.Usage, match="'f'"):
        call("f", **arguments)  # type: ignore[arg-type]


async def test_a_script_file_plays_every_form_of_turn(tmp_path: Path) -> None:
    turns: list[object] = [
        "just text",
        {"say": "with a call", "call": "f", "arguments": {"a": 1}, "id": "x"},
        {"call": "f", "raw": "{oops"},
        {"calls": [{"call": "f"}, {"call": "g", "arguments": {}}]},
    ]
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"turns": turns, "usage": {"input_tokens": 7}}))
    model = resolve_model(f"script:{path}")
    answers = [await model.reply(after(turn)) for turn in range(4)]
    assert [answer.text for answer in answers] == ["just text", "with a call", "", ""]
    assert answers[1].calls == (Wanted(tool="f", arguments='{"a": 1}', provider_id="x"),)
    assert answers[2].calls[0].arguments == "{oops"
    assert [wanted.tool for wanted in answers[3].calls] == ["f", "g"]
    assert {answer.usage for answer in answers} == {Usage(input_tokens=7)}
    assert str(path) not in repr((model.name, model.settings))  # no machine's path in a fingerprint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "unreadable"),
        ("7", "must be an object"),
        ('{"turn": []}', "unknown 'turn'"),
        ('{"turns": {}}', "turns must be a list"),
        ("[{}]", "turn 1 is empty"),
        ('["a", 7]', "turn 2 must be an object"),
        ('[{"arguments": {}}]', "turn 1: arguments, raw or id without call"),
        ('[{"call": 7}]', "turn 1: call must be a text"),
        ('[{"call": "f", "raw": "x", "arguments": {}}]', "turn 1: both raw and arguments"),
        ('[{"call": "f", "arguments": []}]', "turn 1: arguments must be an object"),
        ('[{"call": "f", "argumnets": {}}]', "unknown 'argumnets'"),
        ('{"turns": [], "usage": {"input_tokens": -1}}', "input_tokens"),
    ],
)
def test_a_script_file_with_a_mistake_is_refused_by_its_place(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "script.json"
    path.write_text(text)
    with pytest.raises(_errors.Usage, match=words):
        resolve_model(f"script:{path}")


def test_a_script_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(_errors.Missing, match="no script"):
        resolve_model(f"script:{tmp_path / 'none.json'}")


@pytest.mark.parametrize(
    ("spec", "words"),
    [("gpt", "names no model"), ("openai:", "names no model"), ("anthropic:x", "Anthropic"), ("magic:x", "'magic'")],
)
def test_a_model_that_cannot_be_named_is_a_usage_error(spec: str, words: str) -> None:
    with pytest.raises(_errors.Usage, match=words) as caught:
        resolve_model(spec)
    assert caught.value.next


class Taking:
    """A tool that takes any object."""

    def parse(self, arguments: str, /) -> Mapping[str, object]:
        return parse_object(arguments)


def test_each_thing_wrong_with_an_answer_is_found_with_its_call() -> None:
    wanted = (
        Wanted(tool="send", arguments="{}", provider_id="x"),
        Wanted(tool="sned", arguments="{}", provider_id="x"),
        Wanted(tool="send", arguments='{"to": '),
        Wanted(tool="send", arguments="[]"),
        Wanted(tool="send", arguments=""),
    )
    problems = sane(Answer(calls=wanted), {"send": Taking()})
    assert [(problem.call, problem.trouble) for problem in problems] == [
        (1, Trouble.DUPLICATE_ID),
        (1, Trouble.UNKNOWN_TOOL),
        (2, Trouble.BAD_ARGUMENTS),
        (3, Trouble.BAD_ARGUMENTS),
    ]
    assert "did you mean 'send'? Known tools: send" in problems[1].message


def test_what_must_not_be_performed_gets_a_failure_and_the_rest_goes_on() -> None:
    wanted = (
        Wanted(tool="send", arguments="{}", provider_id="x"),
        Wanted(tool="send", arguments="{}", provider_id="x"),
        Wanted(tool="send", arguments="{oops", provider_id="x"),
    )
    refused = refusals(Answer(calls=wanted), {"send": Taking()})
    assert refused.keys() == {2}
    assert isinstance(refused[2], Failure)
    assert (refused[2].kind, "not valid JSON" in refused[2].message) == ("BadArguments", True)


def test_calls_go_by_our_own_numbers_whatever_the_provider_calls_them() -> None:
    wanted = tuple(Wanted(tool="f", arguments="{}", provider_id="same") for _ in range(2))
    reply = recorded(Answer(text="t", calls=wanted, usage=Usage(input_tokens=9), provider={"id": "z"}), step=4)
    assert [each.id for each in reply.calls] == ["4.0", "4.1"]
    assert reply == recorded(Answer(text="t", calls=tuple(attrs.evolve(w, provider_id="") for w in wanted)), step=4)


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_answer_may_be_asked_again(text: str) -> None:
    answer = Answer(text=text, usage=Usage(output_tokens=3))
    assert sane(answer, {}) == (
        Problem(trouble=Trouble.EMPTY, message="the model answered with neither text nor calls"),
    )
    with pytest.raises(ModelUnavailable) as caught:
        refusals(answer, {})
    assert caught.value.retryable


@given(st.text(st.characters(codec=None), max_size=20))
def test_every_answer_can_be_stored_as_text(text: str) -> None:
    answer = Answer(text=text, calls=(Wanted(tool=text, arguments=text, provider_id=text),))
    for each in (answer.text, answer.calls[0].tool, answer.calls[0].arguments, answer.calls[0].provider_id):
        each.encode()
    if text.isascii():
        assert answer.text == text


@given(st.text(max_size=60) | st.recursive(st.none() | st.integers(), st.lists, max_leaves=5).map(json.dumps))
def test_any_text_is_an_object_or_refused_with_a_reason(text: str) -> None:
    try:
        value = parse_object(text)
    except BadArguments as error:
        reason = error.message
    else:
        reason = ""
        assert isinstance(value, dict)
    assert not reason or reason.startswith("the arguments")


@given(st.lists(st.lists(st.sampled_from([UserMessage(content="u"), AssistantMessage(text="a")]), max_size=3)))
def test_messages_grow_without_being_seen_to_and_know_their_replies(parts: list[list[UserMessage]]) -> None:
    view, plain = Messages(), list[object]()
    for part in parts:
        other = view.extended([AssistantMessage(text="other")])
        before, view = view, view.extended(part)
        assert list(before) == plain
        assert list(other) == [*plain, AssistantMessage(text="other")]
        plain += part
        assert list(view) == plain
        assert view[: len(plain)] == plain
        assert view.replies == sum(isinstance(each, AssistantMessage) for each in plain)


def test_messages_of_a_longer_transcript_cost_only_what_is_new() -> None:
    entries: list[object] = [User(content="go"), Reply(text="a")]
    shown = messages(entries)
    entries[0] = "not looked at again"
    grown = messages([*entries, User(content="more")], shown=shown, seen=2)
    assert list(grown) == [
        UserMessage(content="go"),
        AssistantMessage(text="a"),
        UserMessage(content="more"),
    ]
    assert (len(shown), Turn(text="x").calls) == (2, ())


FRESH = """
import os, sys
{before}
from agent._model import resolve_model
assert "openai" not in sys.modules or sys.modules["openai"] is None
try:
    resolve_model("openai:m")
except Exception as error:
    print(type(error).__name__, error, "|", error.next)
"""


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("sys.modules['openai'] = None", "pip install 'portable-savepoints[openai]'"),
        ("os.environ.pop('OPENAI_API_KEY', None)", "set OPENAI_API_KEY"),
    ],
    ids=["no package", "no key"],
)
def test_what_a_model_lacks_is_said_before_anything_runs(before: str, words: str) -> None:
    program = FRESH.format(before=before)
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=here)
    assert done.stdout.startswith("Usage openai:m")
    assert words in done.stdout
