"""Faults in syncing show when the power is cut: a traced run of `power_program`, and disks that a cut leaves of it."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import power_program
from attrs import frozen
from graded_ways import Bench, Sight
from rig import env

from savepoint.crash import Verdict, Violation
from savepoint.crash._image import Image, write
from savepoint.crash._power import images
from savepoint.crash._record import record
from savepoint.crash._recording import Recording

HERE = Path(__file__).parent
NEWS = [f"news {turn}" for turn in range(power_program.TURNS)]
Cuts = Callable[[Recording], Iterator[tuple[int, Image]]]
"""After how many events, and what is left then."""


@frozen
class PowerCut:
    """The faulty program runs once, traced; from each disk that `cuts` gives, the program as it is goes on."""

    cuts: Cuts
    durability: str = "power"
    disk: str = "-"

    def __str__(self) -> str:
        disk = ", a disk that fails" if self.disk == "pack" else ""
        return f"power cut, {self.durability}, {self.cuts}{disk}"

    def __call__(self, bench: Bench, sabotage: str | None) -> list[Sight]:
        place = bench.room()
        live = place / "live"
        (live / power_program.OUTSIDE).mkdir(parents=True)
        (live / "host").mkdir()
        script = [sys.executable, "-P", str(HERE / "power_faulty.py"), sabotage or "-", self.disk]
        traced, recording = record(
            [*script, "run", str(live), self.durability, "wal"],
            root=live,
            cwd=place,
            env=env(),
            stdout=place / "out",
            stderr=place / "err",
            timeout_s=100,
        )
        if traced.code is None or (traced.code and self.disk == "-"):
            said = (place / "err").read_text().splitlines()[-1:]
            return [Sight("-", Violation(Verdict.FAILS, f"{said}"))]
        found: list[Sight] = []
        for cut, image in self.cuts(recording):
            rmtree(live)
            write(image, live)
            found += [
                Sight(f"cut after event {cut}, {image.label}", each)
                for each in _wrong(_resumed(bench, self.durability, live))
            ]
        return found


def _resumed(bench: Bench, durability: str, live: Path) -> dict[str, Any]:
    """What becomes of the run in `live`: one server for all disks."""
    name = f"power {durability}"
    if name not in bench.kept:
        server = subprocess.Popen(
            [sys.executable, "-P", str(HERE / "power_program.py"), "serve", durability, "wal"],
            env=env(),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        bench.kept[name] = server
        bench.stack.callback(server.communicate)
    server = bench.kept[name]
    print(live, file=server.stdin, flush=True)
    return json.loads(server.stdout.readline())


def _wrong(found: dict[str, Any]) -> Iterator[Violation]:
    if found["status"] != "completed":
        said = str(found.get("error")).strip().splitlines()[-1]
        yield Violation(Verdict.STUCK, f"the run cannot go on: {found['status']}: {said}")
        return
    counts = Counter(found["ledger"])
    for news in NEWS:
        if counts[news] > 1:
            yield Violation(Verdict.DUPLICATE, f"{news} was posted {counts[news]} times")
        if not counts[news]:
            yield Violation(Verdict.LOST, f"{news} was never posted")
    for each in (*found["damage at first"], *found["damage"]):
        yield Violation(Verdict.CORRUPT, f"damage: {each}")


# -- cuts -------------------------------------------------------------------------------------------------------------


def _strict(recording: Recording, at: int, most: int = 1) -> Iterator[tuple[int, Image]]:
    for image in images(recording, at, spared=[power_program.OUTSIDE], most=most):
        yield at, image


def _after(recording: Recording, name: str) -> list[int]:
    """After each line that was written to this file of the outside."""
    line = f"/{power_program.OUTSIDE}/{name})"
    return [at + 1 for at, each in enumerate(recording.events) if each.text.startswith("write") and line in each.text]


@frozen
class After:
    """Nothing but what was synced is left, just after the `nth` line was written to this file of the outside, or at the
    end.
    """

    name: str
    nth: int = 1

    def __str__(self) -> str:
        return f"line {self.nth} of {self.name}"

    def __call__(self, recording: Recording) -> Iterator[tuple[int, Image]]:
        found = [*_after(recording, self.name), *[len(recording.events)] * self.nth]
        yield from _strict(recording, found[self.nth - 1])


@frozen
class Making:
    """While the store is made: before the first line of the outside, also with more than what was synced."""

    every: int

    def __str__(self) -> str:
        return "making the store"

    def __call__(self, recording: Recording) -> Iterator[tuple[int, Image]]:
        for at in range(self.every, _after(recording, "ledger")[0], self.every):
            yield from _strict(recording, at, 2)
