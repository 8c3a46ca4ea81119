"""The crash suite's servers, and its modules on the path: they run in processes of their own too."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from rig import Server


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "exhaustive: every pair of kills; runs where CRASH_EXHAUSTIVE is set")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not os.environ.get("CRASH_EXHAUSTIVE"):
        for item in items:
            if item.get_closest_marker("exhaustive"):
                item.add_marker(pytest.mark.skip(reason="set CRASH_EXHAUSTIVE=1"))


@pytest.fixture(scope="session")
def servers() -> Iterator[list[Server]]:
    with Server() as one, Server() as other:
        yield [one, other]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: a kill loses nothing of it, and syncing costs nothing."""
    import shutil
    import tempfile

    shared = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else tmp_path))
    yield place
    shutil.rmtree(place, ignore_errors=True)
