"""What goes in and out as words: INPUT, --value, questions, and text that must not steer a terminal."""

import io
import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cli._input import read_input, read_value
from agent.cli._output import Output, one_line, printable
from agent.cli._question import answers, as_json, lines
from effects._question import CHOICES, Question, QuestionKind
from savepoint import Missing, Usage


def question(kind: QuestionKind = QuestionKind.IN_DOUBT, **fields: object) -> Question:
    return Question(id="0123456789ab", kind=kind, verdicts=CHOICES[kind], **fields)  # pyright: ignore[reportArgumentType]


def test_input_is_the_text_itself_or_a_file(tmp_path: Path):
    (tmp_path / "task").write_text("from a file\n")
    assert read_input("plain") == "plain"
    assert read_input(f"@{tmp_path / 'task'}") == "from a file\n"
    assert read_input(None) == ""


@pytest.mark.parametrize("given_", ["", "  \n"])
def test_an_empty_input_is_refused(given_: str):
    with pytest.raises(Usage, match="empty"):
        read_input(given_)


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path):
    with pytest.raises(Missing, match="gone"):
        read_input(f"@{tmp_path / 'gone'}")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(Usage, match="bytes"):
        read_input(f"@{tmp_path / 'bytes'}")
    with pytest.raises(Usage, match="cannot be read"):
        read_input(f"@{tmp_path}")


def test_a_value_is_json():
    assert read_value('{"paid": 3}') == {"paid": 3}
    assert read_value("null") is None
    for wrong in ("ok", "{", "[" * 100_000):
        with pytest.raises(Usage, match="not JSON"):
            read_value(wrong)


@pytest.mark.parametrize("kind", list(QuestionKind))
def test_every_verdict_of_every_kind_is_explained_with_a_command_that_a_shell_takes_as_written(kind: QuestionKind):
    run_id = "it's $HOME; rm -rf"
    asked = question(kind, arguments={"to": "a'b", "n": 1})
    told = list(answers(asked, run_id, Path("/some where/.savepoint")))
    assert len(told) == len(asked.verdicts)
    for verdict, (meaning, line) in zip(asked.verdicts, told, strict=True):
        words = shlex.split(line)
        assert words[:5] == ["savepoint", "decide", run_id, asked.id, verdict.value]
        assert words[-2:] == ["--store", "/some where/.savepoint"]
        assert meaning


def test_an_edit_is_offered_with_the_arguments_as_they_are():
    told = [line for _, line in answers(question(QuestionKind.APPROVAL, arguments={"to": "a'b"}), "r", None)]
    assert json.loads(shlex.split(told[1])[-1]) == {"to": "a'b"}


def test_a_question_shows_effect_arguments_and_what_is_known():
    asked = question(effect="mail/send", arguments={"to": "a@b.c"}, why="nobody knows", evidence={"probe": "silent"})
    text = "\n".join(lines(asked, "r", None))
    for part in ("mail/send", "a@b.c", "nobody knows", "silent", "in doubt"):
        assert part in text


def test_a_question_for_scripts_has_the_stable_fields():
    told = as_json(question(arguments={"x": (1, b"\0")}))
    assert {"id", "kind", "effect", "arguments", "verdicts"} <= told.keys()
    json.dumps(told)


@given(st.text())
def test_what_is_shown_never_steers_a_terminal(text: str):
    for shown in (printable(text), one_line(text, 40)):
        assert not any((ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160 for char in shown)
    assert len(one_line(text, 40)) <= 40
    assert "\n" not in one_line(text, 40)


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.none()))
def test_json_output_is_one_line_of_ascii_that_reads_back(document: dict[str, object]):
    out = io.StringIO()
    Output(json=True, out=out, err=io.StringIO()).emit(document)
    (line,) = out.getvalue().splitlines()
    assert line.isascii()
    assert json.loads(line) == document


def test_an_error_is_an_object_on_stdout_and_one_line_on_stderr():
    out, err = io.StringIO(), io.StringIO()
    Output(json=True, out=out, err=err).fail("held", "run r is\nheld", "wait")
    assert json.loads(out.getvalue()) == {"error": {"code": "held", "message": "run r is\nheld", "next": "wait"}}
    assert err.getvalue() == "savepoint: run r is held (next: wait)\n"


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_reader_that_goes_away_disturbs_nobody():
    output = Output(json=True, out=Gone(), err=Gone())
    output.emit({"a": 1})
    output.note("still here")
    output.fail("error", "x", "y")
