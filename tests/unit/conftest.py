"""What tests of the command line share: a project with a module of the test's own, and the command in it."""

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from agent.cli import main

_NUMBER = itertools.count()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / ".git").mkdir()
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before


@pytest.fixture
def shop(request: pytest.FixtureRequest, project: Path) -> str:
    """The test module's `PROJECT`, under a name of its own: modules stay imported in this process."""
    name = f"cli_shop_{next(_NUMBER)}"
    (project / f"{name}.py").write_text(request.module.PROJECT)
    return name


@pytest.fixture
def cli(project: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[Any], str]]:
    """Exit code, the JSON objects of stdout, stderr."""

    def perform(*words: str) -> tuple[int, list[Any], str]:
        with chdir(project):
            code = main([*words, "--json"])
        out, err = capfd.readouterr()
        return code, [json.loads(line) for line in out.splitlines()], err

    return perform
