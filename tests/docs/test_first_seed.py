"""The table of the first seed names tests that exist, and each of its rows names one."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "design" / "first-seed.md").read_text()
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", TABLE)


def rows_of(section: str) -> list[str]:
    """Without the head of its table."""
    text = TABLE.split(f"## {section}")[1].split("## ")[0]
    return [row for row in text.splitlines() if row.startswith("| ")][1:]


def functions(path: str) -> set[str]:
    """Those of a file, also of its classes."""
    file = ROOT / path if path.startswith("src/") else ROOT / "tests" / path
    nodes = ast.walk(ast.parse(file.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_test_that_the_table_names_exists():
    assert len(NAMED) > 100
    known = {path: functions(path) for path, _ in NAMED}
    assert [f"{path}::{name}" for path, name in NAMED if name not in known[path] or not name.startswith("test_")] == []


def test_every_promise_has_a_proof_unless_it_says_that_it_is_not_here():
    promises = rows_of("What it says")
    assert len(promises) > 60
    assert [row for row in promises if "::" not in row and "not here" not in row] == []


def test_every_hole_has_a_proof():
    holes = rows_of("What it leaves open")
    assert len(holes) > 40
    assert [row for row in holes if "::" not in row] == []
