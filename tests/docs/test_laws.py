"""The table of laws names tests that exist, and for each law a property test."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "design" / "laws.md").read_text()
LAWS = range(1, 15)
ROWS = {int(row.split()[1]): row for row in TABLE.splitlines() if re.match(r"\| \d", row)}


def _tests() -> Iterator[tuple[str, bool]]:
    """Name of each test function, and whether it is a property test; of each module, `zone/name` and name."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        yield path.stem, False
        yield f"{path.parent.name}/{path.stem}", False
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield node.name, any("given(" in ast.unparse(each) for each in node.decorator_list)


@pytest.fixture(scope="module")
def existing() -> dict[str, bool]:
    found = dict[str, bool]()
    for name, is_property in _tests():
        found[name] = found.get(name, False) or is_property
    return found


def test_every_test_that_the_table_names_exists(existing: dict[str, bool]):
    named = set(re.findall(r"(?:[a-z]+/)?\btest_\w+", TABLE))
    assert len(named) > len(LAWS)
    assert named - existing.keys() == set()


@pytest.mark.parametrize("law", LAWS)
def test_every_law_is_a_property_test_that_its_row_names(law: int, existing: dict[str, bool]):
    ours = {name for name, is_property in existing.items() if is_property and name.startswith(f"test_law_{law}_")}
    assert ours
    assert ours <= set(re.findall(r"\btest_law_\w+", ROWS[law])), "the row leaves one out"
