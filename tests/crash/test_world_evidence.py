"""A call that acts outside and writes the world, killed in the middle: what it did to the world is evidence, and
`performed` brings it back."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHILD = Path(__file__).with_name("world_program.py")
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    host = tmp_path / "host"
    host.mkdir()
    (host / "old.txt").write_text("old")
    (host / "kept.txt").write_text("kept")
    return tmp_path


def life(place: Path, what: str, kill: str = "") -> dict[str, Any] | None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "SAVEPOINT_KILL": kill}
    command = [sys.executable, "-W", "error", str(CHILD), str(place), what]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    if done.returncode == -9:
        return None
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def unkilled(place: Path) -> dict[str, Any]:
    other = place / "unkilled"
    other.mkdir()
    shutil.copytree(place / "host", other / "host")
    found = life(other, "run")
    assert found is not None
    return found


def test_performed_brings_its_changes_of_the_world_back(place: Path):
    wanted = unkilled(place)
    assert life(place, "run", "body.after:2") is None  # the first body is the model's
    waiting = life(place, "resume")
    assert waiting is not None
    assert waiting["status"] == "waiting"
    assert waiting["evidence"] == [["removed files: old.txt", "added files: posted.txt"]]
    done = life(place, "performed")
    assert done is not None
    assert (done["status"], done["transcript"], done["final"]) == ("completed", wanted["transcript"], wanted["final"])
    assert done["forks"] == []
    assert (place / "ledger").read_text() == "news\n"


def test_where_the_fork_is_gone_the_model_is_told_that_the_changes_are_lost(place: Path):
    assert life(place, "run", "body.after:2") is None
    for left in (place / "store" / "forks").iterdir():
        shutil.rmtree(left)
    waiting = life(place, "resume")
    assert waiting is not None
    assert waiting["evidence"] == ["what it changed in the world is lost"]
    done = life(place, "performed")
    assert done is not None
    assert done["status"] == "completed"
    assert len(done["told"]) == 1
    assert "what it changed in the world is lost" in done["told"][0]


def test_redo_starts_from_the_snapshot_and_ends_equal(place: Path):
    wanted = unkilled(place)
    assert life(place, "run", "body.before:2") is None
    done = life(place, "redo")
    assert done is not None
    assert (done["status"], done["transcript"], done["final"]) == ("completed", wanted["transcript"], wanted["final"])
    assert (place / "ledger").read_text() == "news\n"
