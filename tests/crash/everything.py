"""`make crash`: every kill and every pair of kills of every program and agent of the suite, all other faults of the rig
at their full extent, and the rig's own grade, in one report.

    everything.py [--parts programs,agents,...] [--json FILE] [--junit FILE]

Exit code 0 where nothing was violated and every sabotage was caught, else 1.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from agent_tasks import KILLED
from attrs import define, field
from grading import grade
from rig import HERE
from scenarios import SCENARIOS
from targets import agents, complaints, programs, servers

from savepoint._crashpoint import CrashPoint
from savepoint.crash import Explorer, ForkServer, Story, Verdict
from savepoint.crash._scratch import bases

WORKERS = int(os.environ.get("CRASH_WORKERS", "2"))
MODES = {"write-ahead log": None, "rollback journal": False}
SUITES = {
    "the outside": "test_outside.py",
    "sessions and handoffs": "test_session_cases.py test_session_races.py test_agent_sessions.py",
    "races": "test_races.py test_races_at_once.py test_owners.py",
    "perturbations": "test_perturbed.py test_perturbed_agents.py test_perturbed_keys.py",
    "store faults": "test_store_faults.py",
    "every byte": "test_every_byte.py test_damage.py",
    "environment and clocks": "test_environment.py test_clocks.py test_clock.py test_fresh_interpreter.py",
    "power cuts": "test_power.py",
    "anyone's programs": "test_commands.py test_crash_cli.py test_crash_plugin.py",
    "command line": "test_cli_signals.py test_demo.py",
    "state machine": "test_machine.py",
}
WRONG = (Verdict.DUPLICATE, Verdict.LOST, Verdict.CORRUPT, Verdict.UNDETECTED)


@define
class Part:
    """One line of the report."""

    name: str
    stories: int = 0
    processes: int = 0
    killed: int = 0
    parked: int = 0
    """stories in which somebody had to be asked"""
    seconds: float = 0.0
    verdicts: Counter[str] = field(factory=Counter[str])
    points: set[str] = field(factory=set[str])
    wrong: list[str] = field(factory=list[str])
    """what was violated, each with what shows it again"""
    notes: list[str] = field(factory=list[str])

    def hear(self, story: Story) -> None:
        self.stories += 1
        self.verdicts[str(story.verdict)] += 1
        self.parked += any(life.questions for life in story.history.lives)
        self.points |= {kill.at for index, kill in story.schedule.kills.items() if story.lives[index].killed}
        self.wrong += complaints([story])


# -- kills ------------------------------------------------------------------------------------------------------------

Make = Callable[..., Explorer]


def kills(name: str, life: str, make: Make, names: Sequence[str], orders: Sequence[bool]) -> list[Part]:
    """All single kills, at every arrival, and all pairs of kills that leave different bytes, in both SQLite modes."""
    found: list[Part] = []
    for mode, wal in MODES.items():
        part = Part(f"{name}, {mode}")
        began = time.monotonic()
        with servers(life, WORKERS) as running, tempfile.TemporaryDirectory(dir=bases()[0]) as place:
            for number, each in enumerate(names):
                for reverse in orders:
                    setting = {"wal": wal, **({"reversed": True} if reverse else {})}
                    _explore(part, make, each, running, Path(place, str(number)), setting)
                _say(f"{part.name}: {number + 1} of {len(names)}, {part.stories} runs, {len(part.wrong)} violated")
        part.seconds = time.monotonic() - began
        found.append(part)
    return found


def _explore(part: Part, make: Make, name: str, running: list[ForkServer], place: Path, setting: dict) -> None:
    jumps = SCENARIOS[name].jumps if name in SCENARIOS else (None,)
    for jump in jumps:
        told = {**setting, **({} if jump is None else {"jump_s": jump})}
        every = make(name, running, place / "every", setting=told, told=part.hear)
        every.explore(every.singles())
        pairs = make(name, running, place / "pairs", setting=told, told=part.hear, distinct=True)
        pairs.explore(pairs.singles(), lambda plans: plans)
        part.processes += every.processes + pairs.processes
        part.killed += every.killed + pairs.killed


# -- the other suites -------------------------------------------------------------------------------------------------


def suite(name: str, files: str) -> Part:
    """The tests of these files at their full extent; what they count is in their properties."""
    part = Part(name)
    began = time.monotonic()
    there = [str(HERE / each) for each in files.split() if (HERE / each).exists()]
    with tempfile.NamedTemporaryFile(suffix=".xml") as out:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:randomly",
            "-n",
            str(WORKERS),
            f"--junitxml={out.name}",
        ]
        told = {**os.environ, "CRASH_EXHAUSTIVE": "1"}
        done = subprocess.run(
            [*command, *there], cwd=HERE.parents[1], env=told, capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, 1):
            part.wrong.append(
                f"{files}: pytest ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
            return part
        for case in ET.parse(out.name).iter("testcase"):
            _case(part, case)
    part.seconds = time.monotonic() - began
    return part


def _case(part: Part, case: ET.Element) -> None:
    part.stories += 1
    words = f"{case.get('classname')}::{case.get('name')}"
    if case.find("skipped") is not None:
        skipped = case.find("skipped")
        part.notes.append(f"skipped {words}: {skipped.get('message') if skipped is not None else ''}")
    elif case.find("failure") is not None or case.find("error") is not None:
        part.wrong.append(f"pytest {words}")
    else:
        part.verdicts["pass"] += 1
    for each in case.iter("property"):
        part.notes.append(f"{each.get('name')}: {each.get('value')}")


def grading() -> Part:
    part = Part("sabotages")
    began = time.monotonic()
    for each in grade():
        part.stories += 1
        part.verdicts[each.verdict] += 1
        if not each.caught:
            part.wrong.append(f"the rig does not notice {each.name!r} ({each.schedule}: {each.verdict})")
    part.notes.append(f"{part.stories - len(part.wrong)} of {part.stories} caught")
    part.seconds = time.monotonic() - began
    return part


# -- the report -------------------------------------------------------------------------------------------------------


def text(parts: Sequence[Part]) -> str:
    lines = [f"{'part':34}{'runs':>8}{'processes':>11}{'killed':>9}{'asked':>8}{'violated':>10}{'s':>8}"]
    lines += [
        f"{each.name:34}{each.stories:8}{each.processes:11}{each.killed:9}{each.parked:8}"
        f"{len(each.wrong):10}{each.seconds:8.0f}"
        for each in parts
    ]
    lines.append("")
    for each in parts:
        lines += [f"{each.name}: {note}" for note in each.notes]
    killed = [each for each in parts if each.points]
    if killed:
        points = set[str]().union(*(each.points for each in killed))
        missed = sorted({str(each) for each in CrashPoint} - points)
        lines.append(
            f"named points: {len(points)} of {len(CrashPoint)} killed at" + (f"; not {missed}" if missed else "")
        )
        counts = Counter[str]()
        for each in killed:
            counts += each.verdicts
        lines.append(", ".join(f"{counts[str(verdict)]} {verdict}" for verdict in WRONG))
    for each in parts:
        lines += [f"VIOLATED {each.name}: {what}" for what in each.wrong[:20]]
        if len(each.wrong) > 20:
            lines.append(f"VIOLATED {each.name}: and {len(each.wrong) - 20} more")
    wrong = sum(len(each.wrong) for each in parts)
    lines.append("PASSED: nothing was violated" if not wrong else f"VIOLATED: {wrong}")
    return "\n".join(lines)


def document(parts: Sequence[Part]) -> list[dict[str, object]]:
    return [
        {
            "part": each.name,
            "runs": each.stories,
            "processes": each.processes,
            "killed": each.killed,
            "asked": each.parked,
            "seconds": round(each.seconds, 1),
            "verdicts": dict(each.verdicts),
            "points": sorted(each.points),
            "violated": each.wrong,
            "notes": each.notes,
        }
        for each in parts
    ]


def junit(parts: Sequence[Part]) -> bytes:
    root = ET.Element("testsuites", name="crash")
    for each in parts:
        top = ET.SubElement(root, "testsuite", name=each.name, tests=str(each.stories), failures=str(len(each.wrong)))
        case = ET.SubElement(top, "testcase", classname="crash", name=each.name, time=f"{each.seconds:.1f}")
        for what in each.wrong:
            ET.SubElement(case, "failure", message=what[:200]).text = what
    return ET.tostring(root, encoding="utf-8", xml_declaration=True)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    every = ["programs", "agents", *SUITES, "sabotages"]
    parser = argparse.ArgumentParser(description="Every kill, every fault, one report.")
    parser.add_argument("--parts", help=f"some of: {', '.join(every)}", default=",".join(every))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--junit", type=Path)
    wish = parser.parse_args()
    wanted = [each.strip() for each in wish.parts.split(",")]
    if unknown := [each for each in wanted if each not in every]:
        parser.error(f"there is no part {unknown[0]!r}")
    parts: list[Part] = []
    if "programs" in wanted:
        parts += kills("programs", "rig:live", programs, [*SCENARIOS], [False])
    if "agents" in wanted:
        parts += kills("agents", "agent_rig:live", agents, [*KILLED], [False])
    for name, files in SUITES.items():
        if name in wanted:
            _say(name)
            parts.append(suite(name, files))
    if "sabotages" in wanted:
        _say("sabotages")
        parts.append(grading())
    print(text(parts))
    if wish.json:
        wish.json.write_text(json.dumps(document(parts), indent=1) + "\n")
    if wish.junit:
        wish.junit.write_bytes(junit(parts))
    return 1 if any(each.wrong for each in parts) else 0


if __name__ == "__main__":
    sys.exit(main())
