"""Searching a workspace; the searches run as the real program."""
# ruff: noqa: ASYNC240, PTH208  nothing else runs in a test's loop; parameters of cases

import asyncio
import os
import re
import time
from pathlib import Path

import pytest

from agent.worker._errors import Outside, Unsuitable
from agent.worker._search import search_files
from agent.worker.child._grep import glob_expression


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    for path, text in {
        "a.py": "x = 1\ny = 2\n",
        "src/b.py": "x = 3\n",
        "src/deep/c.ts": "x\r\n",
        ".git/d.py": "x",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, newline="")
    return root


async def test_finds_lines_in_order(root: Path):
    assert (await search_files(root, r"x\b")).splitlines() == [
        "a.py:1: x = 1",
        "src/b.py:1: x = 3",
        "src/deep/c.ts:1: x",
    ]
    assert await search_files(root, "nothing here") == "[no match]"


async def test_a_path_and_a_glob_choose_files(root: Path):
    assert await search_files(root, "x", "src", glob="*.py") == "src/b.py:1: x = 3"
    assert await search_files(root, "x", glob="src/**/*.ts") == "src/deep/c.ts:1: x"
    assert await search_files(root, "x", "src/b.py") == "src/b.py:1: x = 3"


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("*.py", "a/b.py", True),
        ("*.py", "a/b.pyc", False),
        ("a/*.py", "a/b/c.py", False),
        ("a/**/*.py", "a/b/c/d.py", True),
        ("a/**/*.py", "a/d.py", True),
        ("**/d.py", "d.py", True),
        ("a/**", "a/b/c", True),
        ("?.[ch]", "x/a.h", True),
        ("?.[!ch]", "a.h", False),
        ("a+b", "a+b", True),
        ("[", "[", True),
    ],
)
def test_globs(glob: str, path: str, matches: bool):
    assert bool(re.fullmatch(glob_expression(glob), path)) is matches


async def test_binary_files_links_and_what_leads_outside_are_left_out(root: Path, tmp_path: Path):
    (tmp_path / "secret").write_text("needle")
    (root / "binary").write_bytes(b"needle\0")
    (root / "link").symlink_to("../secret")
    (root / "directory").symlink_to("..")
    os.mkfifo(root / "pipe")
    assert await search_files(root, "needle") == "[no match]"
    for path in ("link", "directory", "../secret", "/etc"):
        with pytest.raises(Outside):
            await search_files(root, "needle", path)


async def test_matches_are_bounded(root: Path):
    (root / "many").write_text("needle\n" * 1000)
    lines = (await search_files(root, "needle", limit=10)).splitlines()
    assert len(lines) == 11
    assert lines[-1].startswith("[there are more matches")
    assert len((await search_files(root, "needle", limit=1000)).splitlines()) == 1000


async def test_long_lines_show_the_match(root: Path):
    (root / "long").write_text("a" * 100_000 + "needle" + "b" * 100_000)
    (line,) = (await search_files(root, "needle")).splitlines()
    assert len(line) < 400
    assert "needle" in line


async def test_a_pattern_that_would_never_end_is_stopped_and_the_rest_is_told(root: Path):
    (root / "a.py").write_text("aab\n")
    (root / "z").write_text("a" * 60 + "c")
    start = time.monotonic()
    found, note = (await search_files(root, "(a+)+b", timeout_s=0.5)).splitlines()
    assert time.monotonic() - start < 10
    assert (found, note.startswith("[stopped after 0.5 s")) == ("a.py:1: aab", True)


def _arguments(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


async def test_cancelling_ends_the_search(root: Path):
    (root / "z").write_text("a" * 60 + "c")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await search_files(root, "(a+)+b(?#cancelled)", timeout_s=60)
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and "(?#cancelled)" in _arguments(pid)]


async def test_what_is_no_pattern_or_no_path_is_refused(root: Path):
    for pattern, path, words in (
        ("(", ".", "not a regular expression: missing"),
        ("x", "gone", "no such file"),
        ("\0", ".", "NUL"),
    ):
        with pytest.raises(Unsuitable, match=words):
            await search_files(root, pattern, path)


async def test_undecodable_names_and_contents(root: Path):
    Path(os.fsdecode(os.fsencode(root) + b"/\xff")).write_bytes(b"caf\xe9 needle\n")
    assert await search_files(root, "needle") == "\\xff:1: caf\\xe9 needle"
