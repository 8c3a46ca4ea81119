"""Runs whose processes were killed are all continued by a fresh one, or by two at once; one that kills is asked about."""

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import outside
from rig import env

from agent import decide
from savepoint import open_store
from savepoint._orphans import orphans
from savepoint._run import RunRecord
from savepoint._run_result import get_run

ORPHANED = Path(__file__).with_name("orphaned.py")
KILLED = -signal.SIGKILL
POINTS = {
    "made": "create.after 1",
    "replied": "reply.after 1",
    "in a body": "body.before 1",
    "done and not recorded": "landed 1",
    "saved": "gap.after 1",
    "seen": "reply.after 2",
    "at the end": "end.before 1",
}
"""Run -> the crash point at which its first process is killed, and which arrival there."""


def begun(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", str(ORPHANED), *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=env(), stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def met(process: subprocess.Popen[str]) -> Any:
    """What it printed; None where it was killed."""
    out, err = process.communicate("go\n", timeout=60)
    assert process.returncode in (0, KILLED), err
    return None if process.returncode else json.loads(out.splitlines()[-1])


def lived(*words: object) -> Any:
    return met(begun(*words))


def ill(place: Path, run_id: str, *, well: bool = False) -> None:
    path = place / "outside" / f"{run_id} is ill"
    path.parent.mkdir(exist_ok=True)
    path.unlink() if well else path.touch()


def record(place: Path, run_id: str) -> RunRecord:
    async def read() -> RunRecord:
        async with open_store(place / "store", create=False) as store:
            return await get_run(store, run_id)

    return asyncio.run(read())


def listed(place: Path) -> list[str]:
    async def read() -> list[str]:
        async with open_store(place / "store", create=False) as store:
            return [each.run_id for each in await orphans(store)]

    return asyncio.run(read())


def answered(place: Path, run_id: str, question: str, verdict: str) -> None:
    async def answer() -> None:
        async with open_store(place / "store", create=False) as store:
            await decide(run_id, question, verdict, store=store)

    asyncio.run(answer())


def until_asked(place: Path, poison_after: int) -> tuple[int, Any]:
    """How many processes died of continuing all, and what the first one that lived has met."""
    for died in range(10):
        if (said := lived("all", place, poison_after)) is not None:
            return died, said
    raise AssertionError("nobody is ever asked")


def acts(place: Path) -> Counter[str]:
    return Counter(str(act.arguments[0]) for act in outside.ledger(place / "outside"))


def test_runs_killed_anywhere_are_all_finished_by_a_fresh_process(memory: Path) -> None:
    for run_id, point in POINTS.items():
        assert lived("run", memory, run_id, *point.split()) is None
    assert lived("run", memory, "fine")["status"] == "completed"
    assert listed(memory) == list(POINTS)
    said = lived("all", memory, 5)
    assert {run_id: how["status"] for run_id, how in said.items()} == dict.fromkeys(POINTS, "completed")
    assert acts(memory) == Counter([*POINTS, "fine"]), "each was charged once, and none was forgotten"
    assert listed(memory) == []
    assert lived("all", memory, 5) == {}


def test_a_run_that_kills_its_process_every_time_is_asked_about_and_keeps_no_other_from_going_on(memory: Path) -> None:
    ill(memory, "bad")
    assert lived("run", memory, "bad") is None
    assert lived("run", memory, "good", "gap.after", "1") is None
    entered = len(outside.entered(memory / "outside"))
    died, said = until_asked(memory, 3)
    assert died == 3, "the first process began at savepoint 0: its death is no failure of savepoint 1"
    assert len(outside.entered(memory / "outside")) == entered + died
    assert said["good"]["status"] == "completed"
    ((question, kind, step, why),) = said["bad"]["questions"]
    assert (said["bad"]["status"], kind, step) == ("waiting", "poison", 1)
    assert why.startswith("3 attempts in a row died or failed from savepoint 1; the process of the last one died")
    assert lived("all", memory, 3) == {}, "what waits is no orphan"
    assert lived("resume", memory, "bad")["status"] == "waiting"

    answered(memory, "bad", question, "redo")
    assert lived("resume", memory, "bad") is None  # the first of three more
    died, said = until_asked(memory, 3)
    assert died == 2
    ((again, kind, _, why),) = said["bad"]["questions"]
    assert (kind, again == question) == ("poison", False)
    assert why.startswith("6 attempts in a row")

    answered(memory, "bad", again, "redo")
    ill(memory, "bad", well=True)
    assert lived("resume", memory, "bad")["status"] == "completed"
    assert acts(memory) == Counter(["bad", "good"])


def test_fail_ends_the_run_without_entering_it(memory: Path) -> None:
    ill(memory, "bad")
    assert lived("run", memory, "bad") is None
    _, said = until_asked(memory, 1)
    ((question, *_),) = said["bad"]["questions"]
    answered(memory, "bad", question, "fail")
    entered = outside.entered(memory / "outside")
    for _ in range(2):
        ended = lived("resume", memory, "bad")
        assert (ended["status"], ended["error"]) == ("failed", "Poison")
    assert outside.entered(memory / "outside") == entered
    assert lived("all", memory, 1) == {}


def test_two_processes_that_continue_all_at_once_share_the_runs_and_do_nothing_twice(memory: Path) -> None:
    """Whoever has `slow` holds it until the other one has met its owner, so that one does all the others."""
    run_ids = ["slow", *(f"run-{number}" for number in range(6))]
    for run_id in run_ids:
        assert lived("run", memory, run_id, "create.after", "1") is None
    both = [begun("all", memory, 5) for _ in range(2)]
    for each in both:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in both:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    one, other = map(met, both)
    loser, owner = (one, other) if one["slow"] == "Held" else (other, one)
    assert (loser["slow"], owner["slow"]["status"], owner["slow"]["replayed"]) == ("Held", "completed", False)
    for run_id in run_ids[1:]:
        assert (loser[run_id]["status"], loser[run_id]["replayed"]) == ("completed", False)
        assert (owner[run_id]["status"], owner[run_id]["replayed"]) == ("completed", True)
    assert {record(memory, run_id).attempts for run_id in run_ids} == {2}, "one process made it, one claimed it"
    assert acts(memory) == Counter(run_ids)
    assert len(outside.entered(memory / "outside")) == len(run_ids)
