"""The subset of gitignore, against git itself where it is understood."""

import subprocess

import pytest

from savepoint._ignore import Ignore

CASES = [
    ("*.log", "a.log", "a/b.log", "!a.logs", "!a.log.txt"),
    ("/top", "top", "!a/top"),
    ("a/b", "a/b", "!x/a/b", "!a"),
    ("data/", "data/", "x/data/", "!data"),
    ("**/x", "x", "a/x", "a/b/x"),
    ("a/**", "a/b", "a/b/c", "!b"),
    ("a/**/b", "a/b", "a/x/b", "a/x/y/b", "!ab"),
    ("f?o", "foo", "!f/o", "!fo"),
    ("[a-c]x", "ax", "cx", "!dx"),
    ("[!a]x", "bx", "!ax"),
    ("\\#x", "#x"),
    ("\\!x", "y/!x", "!y/x"),
    ("# no rule", "!# no rule"),
    ("tail\\ ", "tail ", "!tail"),
    ("tail  ", "tail", "!tail "),
    ("\u4e2d*", "\u4e2d\u6587.txt"),
    ("*.log\n!keep.log", "a.log", "!keep.log"),
    ("[", "![", "!a"),
    ("a\\*b", "a*b", "!axb"),
]


@pytest.mark.parametrize(("rules", "paths"), [(case[0], case[1:]) for case in CASES])
def test_a_line_means_what_it_means_to_git(tmp_path, rules, paths):
    ignore = Ignore.parse(rules.encode())
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text(rules)
    for text in paths:
        kept = text.startswith("!") and not text.startswith("!!")
        path = text.removeprefix("!").encode()
        directory = path.endswith(b"/")
        assert ignore.hides(path.rstrip(b"/"), directory=directory) is not kept, text
        asked = subprocess.run(["git", "-C", tmp_path, "check-ignore", "-q", "--", path], check=False)
        assert asked.returncode == (1 if kept else 0), text


def test_nothing_below_a_hidden_directory_comes_back():
    ignore = Ignore.parse(b"d/\n!d/keep")
    assert ignore.hides(b"d/keep", directory=False)


def test_only_stores_are_left_out_without_rules():
    ignore = Ignore()
    assert ignore.hides(b"a/.savepoint", directory=True)
    assert ignore.hides(b".savepoint/store.db", directory=False)
    assert not ignore.hides(b".savepoint", directory=False)
    for name in (b".git", b"node_modules", b".savepointignore", b".env", b"x.pyc"):
        assert not ignore.hides(name, directory=True)


@pytest.mark.parametrize("line", ["[", "[]", "[!]", "[z-a]", "\\", "**", "***", "/", "//", "!", "a**b", "[[:alpha:]]"])
def test_no_line_breaks_the_reading(line):
    Ignore.parse(line.encode()).hides(b"a/b", directory=False)
