"""The power is cut: while a program of ours runs, a disk that may be left then is made, and the run goes on from it.

The program is traced once for each mode of the store; each cut is a replay of what it wrote and synced
(`savepoint.crash._power`). Its outside is on another disk. Judged is what durability promises: the outside sees each
call once and nothing is forgotten, also what was acknowledged; no damage is left; the workspace is right at the end.

With CRASH_EXHAUSTIVE set, after every event; else at some of the syncs, others with each CRASH_SEED.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import power_program
import pytest

from savepoint.crash._image import Image, write
from savepoint.crash._power import images
from savepoint.crash._record import record
from savepoint.crash._recording import Recording, Synced
from savepoint.crash._trace import refused

if reason := refused():
    pytest.skip(f"no power can be cut: {reason}", allow_module_level=True)

EXHAUSTIVE = bool(os.environ.get("CRASH_EXHAUSTIVE"))
SEED = int(os.environ.get("CRASH_SEED", "0"))
PROGRAM = Path(power_program.__file__)
MODES = [("power", "wal"), ("power", "delete"), ("process", "wal")]
CUTS, EACH = 16, 5
"""Of the quick run: how many cuts, and how many disks each"""
NEWS = [f"news {turn}" for turn in range(power_program.TURNS)]
RESULT = json.dumps([[f"posted {news}", turn + 1] for turn, news in enumerate(NEWS)])
Json = dict[str, Any]
pytestmark = pytest.mark.timeout(0 if EXHAUSTIVE else 240)


class Rig:
    """One mode: the recording of an unkilled run, and a server that resumes what a cut left, at the same path."""

    def __init__(self, place: Path, durability: str, journal: str) -> None:
        self.live = place / "live"
        (self.live / power_program.OUTSIDE).mkdir(parents=True)
        (self.live / "host").mkdir()
        (self.live / "host/README").write_text("hello\n")
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        traced, self.recording = record(
            [sys.executable, str(PROGRAM), "run", str(self.live), durability, journal],
            root=self.live,
            cwd=place,
            env=env,
            stdout=place / "out",
            stderr=place / "err",
            timeout_s=60,
        )
        assert traced.code == 0, (place / "err").read_text()
        argv = [sys.executable, str(PROGRAM), "serve", durability, journal]
        self._server = subprocess.Popen(argv, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.reference = self._recovered()

    def resumed(self, image: Image) -> Json:
        shutil.rmtree(self.live)
        write(image, self.live)
        return self._recovered()

    def _recovered(self) -> Json:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(f"{self.live}\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())

    def close(self) -> None:
        self._server.communicate()


@pytest.fixture(params=MODES, ids="-".join)
def rig(request: pytest.FixtureRequest, memory: Path) -> Iterator[Rig]:
    made = Rig(memory, *request.param)
    yield made
    made.close()


def faults(found: Json, reference: Json) -> list[str]:
    """What is wrong with a run that was resumed until it was done; what was acknowledged stands in its outside."""
    if found["status"] != "completed":
        return [f"{found['status']}: {found.get('error')}"]
    return [
        *([] if found["ledger"] == NEWS else [f"the outside saw {found['ledger']}"]),
        *([] if found["result"] == [RESULT, "merged"] else [f"the result is {found['result']}"]),
        *([] if found["files"] == reference["files"] else [f"the workspace is {found['files']}"]),
        *(f"damage: {each}" for each in found["damage"]),
    ]


def distinct(recording: Recording, cuts: Sequence[int], most: int) -> Iterator[tuple[int, Image]]:
    seen: set[bytes] = set()
    for cut in cuts:
        for image in images(recording, cut, spared=[power_program.OUTSIDE], most=most):
            if image.digest not in seen:
                seen.add(image.digest)
                yield cut, image


def syncs(recording: Recording, wanted: Callable[[str], bool] = lambda _: True) -> list[int]:
    """Where most is at stake: just before each sync."""
    events = enumerate(recording.events)
    return [at for at, event in events if isinstance(event.change, Synced) and wanted(event.text)]


def judge(rig: Rig, cuts: Sequence[int], most: int) -> list[str]:
    return [
        f"cut after event {cut}, {image.label}: {fault}"
        for cut, image in distinct(rig.recording, cuts, most)
        for fault in faults(rig.resumed(image), rig.reference)
    ]


def test_no_power_cut_repeats_loses_or_damages_anything(rig: Rig) -> None:
    assert not faults(rig.reference, rig.reference)
    every = range(len(rig.recording.events) + 1)
    some = syncs(rig.recording)
    some = some[SEED % max(1, len(some) // CUTS) :: max(1, len(some) // CUTS)]
    found = judge(rig, every if EXHAUSTIVE else some, 48 if EXHAUSTIVE else EACH)
    assert not found, f"{len(found)} faults:\n" + "\n".join(found[:20])


def test_a_power_cut_while_contents_are_appended_damages_nothing(rig: Rig) -> None:
    """The tail of a pack is not durable: whatever is left of it, the run goes on and nothing is named as damaged."""
    found = judge(rig, syncs(rig.recording, lambda text: ".pack" in text), 48)
    assert not found, f"{len(found)} faults:\n" + "\n".join(found[:20])


def test_what_is_not_synced_shows(memory: Path) -> None:
    """The rig is graded: where nothing of the store counts as synced, calls are repeated or their outcome forgotten."""
    rig = Rig(memory, "power", "wal")
    try:
        unsynced = [each for each in rig.recording.events if not isinstance(each.change, Synced)]
        recording = Recording(nodes=rig.recording.nodes, names=rig.recording.names, events=unsynced)
        strict = next(iter(images(recording, len(unsynced), spared=[power_program.OUTSIDE])))
        assert faults(rig.resumed(strict), rig.reference)
    finally:
        rig.close()
