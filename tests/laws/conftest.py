"""The processes that the laws' tests kill: the servers and modules of the crash suite, started once a session."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "crash"))
sys.path.insert(0, str(Path(__file__).parent))

from law_kills import EXHAUSTIVE, Kills, opened


@pytest.fixture(scope="session")
def kills() -> Iterator[Kills]:
    with opened() as kills:
        yield kills


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ten times as many examples need more than the suite's time for a test."""
    for item in items if EXHAUSTIVE else ():
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(1800))
