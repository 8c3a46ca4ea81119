"""The processes that the laws' tests kill: the servers and modules of the crash suite, started once a session."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "crash"))
sys.path.insert(0, str(Path(__file__).parent))

from law_kills import Kills, opened


@pytest.fixture(scope="session")
def kills() -> Iterator[Kills]:
    with opened() as kills:
        yield kills
