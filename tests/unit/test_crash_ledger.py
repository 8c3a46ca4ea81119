"""Anyone's ledger, and the words of anyone's command."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoint import Usage
from savepoint.crash._budget import seconds
from savepoint.crash._ledger import LedgerFault, grown_fault, parse_ledger, read_ledger, rewriting, shown, torn_over
from savepoint.crash._words import anchored, named_files, split_words


def test_a_ledger_is_its_lines_and_how_often_each():
    ledger = parse_ledger(b"a\nb\na\n")
    assert (dict(ledger.lines), ledger.torn) == ({"a": 2, "b": 1}, "")
    assert not parse_ledger(b"").lines


def test_a_last_line_that_nothing_ends_is_torn_and_counts():
    ledger = parse_ledger(b"a\nb")
    assert (dict(ledger.lines), ledger.torn) == ({"a": 1, "b": 1}, "b")


def test_bytes_that_are_no_text_are_named_with_their_line():
    with pytest.raises(LedgerFault, match="line 2 is not UTF-8"):
        parse_ledger(b"a\n\xff\n")


def test_an_absent_ledger_is_empty_and_a_directory_is_none(tmp_path: Path):
    assert read_ledger(tmp_path / "gone") == b""
    with pytest.raises(LedgerFault, match="is not a file"):
        read_ledger(tmp_path)


@given(st.binary(), st.binary())
def test_a_ledger_that_only_grew_has_no_fault(before: bytes, more: bytes):
    assert grown_fault(before, before + more) == ""


def test_a_ledger_that_shrank_or_changed_names_the_line():
    assert "shrank from 4 to 2 bytes: line 2, 'b', is gone" in grown_fault(b"a\nb\n", b"a\n")
    assert "line 1, 'a', is another one now" in grown_fault(b"a\nb\n", b"x\nb\nc\n")


@given(st.lists(st.sampled_from(["a\n", "b\n", "é"])), st.lists(st.sampled_from(["a\n", "c\n", "é"])))
def test_a_fault_is_found_exactly_where_the_former_is_no_beginning(one: list[str], other: list[str]):
    before, after = "".join(one).encode(), "".join(other).encode()
    assert bool(grown_fault(before, after)) == (not after.startswith(before))


def test_a_torn_line_that_was_written_on_is_told():
    assert torn_over(b"a\npa", b"a\npapay b\nc\n") == "papay b"
    assert torn_over(b"a\n", b"a\nb\n") == torn_over(b"a\npa", b"a\npa") == ""


@pytest.mark.parametrize(
    "calls",
    [
        ["open(ledger)"],
        ["write(other)", "ftruncate(ledger)"],
        ["unlink(ledger)"],
        ["rename(new -> ledger)"],
        ["rename(ledger -> old)"],
    ],
)
def test_a_call_that_takes_back_what_was_there_is_told(calls: list[str]):
    assert rewriting(calls, "ledger", empty=False) == calls[-1]
    assert rewriting(calls, "ledger", empty=True) == ""


def test_a_process_that_takes_back_what_it_wrote_itself_is_told():
    assert rewriting(["open(ledger)", "write(ledger)", "truncate(ledger)"], "ledger", empty=True) == "truncate(ledger)"
    assert rewriting(["open(ledger)", "write(ledger)", "fsync(ledger)"], "ledger", empty=True) == ""


def test_a_line_is_shown_in_quotes_whatever_it_holds():
    assert shown("a\x1b[31m\ud800") == "'a\\x1b[31m\\ud800'"
    assert len(shown("x" * 1000)) == 120


def test_words_that_name_files_here_are_absolute_elsewhere(tmp_path: Path):
    for name in ("agent.py", "a.toml", "run.sh", "python"):
        (tmp_path / name).touch()
    words = anchored(["python", "agent.py", "--config=a.toml", "-v", "other.py", "a.toml"], tmp_path)
    here = str(tmp_path)
    assert words == ["python", f"{here}/agent.py", f"--config={here}/a.toml", "-v", "other.py", f"{here}/a.toml"]
    assert anchored(["./run.sh"], tmp_path) == [f"{here}/run.sh"]
    assert named_files(words) == [tmp_path / "agent.py", tmp_path / "a.toml", tmp_path / "a.toml"]


def test_the_runs_own_files_stay_their_own_where_an_earlier_run_left_some(tmp_path: Path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "ledger").touch()
    words = ["tool", "data/ledger", "--out=data"]
    assert anchored(words, tmp_path, own=["data/ledger"]) == ["tool", "data/ledger", f"--out={tmp_path}/data"]
    assert anchored(words, tmp_path, own=["data"]) == words


@given(st.lists(st.text(min_size=1), min_size=1))
def test_any_words_are_taken(words: list[str]):
    assert len(anchored(words, Path("/nonexistent"))) == len(words)


def test_a_command_is_split_as_a_shell_does():
    assert split_words("python 'my agent.py' -x", option="--start") == ["python", "my agent.py", "-x"]
    for wrong in ("", "   ", "python 'x"):
        with pytest.raises(Usage, match="--start"):
            split_words(wrong, option="--start")


def test_times_as_people_write_them():
    assert [seconds(each, option="--budget") for each in ("60s", "5m", "1.5h", "500ms", "7")] == [60, 300, 5400, 0.5, 7]
    for wrong in ("", "0", "-1s", "1d", "s", "nan", "inf"):
        with pytest.raises(Usage, match="--budget"):
            seconds(wrong, option="--budget")
