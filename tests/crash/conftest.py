"""The crash suite's servers, and its modules on the path: they run in processes of their own too."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from rig import Server


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
