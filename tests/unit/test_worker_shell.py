"""The shell tool and its words for a model."""

from pathlib import Path

import pytest

from agent.worker._availability import available
from agent.worker._errors import Unsuitable
from agent.worker._process import Completed
from agent.worker._shell import in_words, run_shell


@pytest.mark.parametrize("sandboxed", [True, False])
async def test_runs_in_the_workspace_and_records_where(tmp_path: Path, sandboxed: bool):
    if sandboxed and not available():
        pytest.skip(available().reason)
    done = await run_shell(
        tmp_path, "echo hi > made; cat made; exit 3", sandboxed=sandboxed, hidden=[tmp_path / "none"]
    )
    assert done == Completed(exit_code=3, output="hi\n", truncated_bytes=0, timed_out=False, sandboxed=sandboxed)
    assert (tmp_path / "made").read_text() == "hi\n"


async def test_refuses_what_makes_no_sense(tmp_path: Path):
    for command, timeout_s in (("", 1), ("  ", 1), ("a\0b", 1), ("true", 0), ("true", 1e9), ("true", float("nan"))):
        with pytest.raises(Unsuitable):
            await run_shell(tmp_path, command, sandboxed=False, timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("output", "exit_code", "timed_out", "words"),
    [
        ("hi\n", 0, False, "hi"),
        ("", 0, False, "[no output]"),
        ("hi\n", 2, False, "hi\n[exit code 2]"),
        ("", 137, True, "[the time was up: the command and all that it started were killed]"),
    ],
)
def test_words(output: str, exit_code: int, timed_out: bool, words: str):
    done = Completed(exit_code=exit_code, output=output, truncated_bytes=0, timed_out=timed_out, sandboxed=False)
    assert in_words(done) == words
