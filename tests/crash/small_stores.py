"""Small stores for damage, each left by real processes, and what `flips.py` says of them damaged."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flips_read import PLANS
from lives import HERE, Lives, environment
from small_program import Json

from savepoint import open_store

VARIANTS = ("folded", "log", "rollback", "journal")
"""How the store's process ended: all is in the database; the newest commits are in the write-ahead log; the store has a
rollback journal, and none is left; it died in the middle of a commit."""
LAST = ["body.before", 2]
"""Where the last process dies: `send 4` is recorded, the step is not over."""


def build(place: Path) -> dict[str, Path]:
    """Variant -> a directory with `store`, `outside` and `host`."""
    with Lives() as lives:
        return {**_build(place / "log", "log", lives.lived), **_build(place / "rollback", "rollback", lives.lived)}


def _build(place: Path, variant: str, lived: Callable[..., tuple[int, Json]]) -> dict[str, Path]:
    how = {} if variant == "log" else {"wal": False}
    begun = place / "begun"
    begun.mkdir(parents=True)
    for run, plan in PLANS.items():
        lived(place=begun, plan=plan, run=run, how=how)
    once: Json = {"plan": PLANS["open"], "run": "open", "how": how, "decide": "performed"}
    killed = _copy(begun, place / "killed")
    assert lived(place=killed, die=LAST, **once)[0] == -9
    if variant == "log":
        assert (killed / "store/store.db-wal").stat().st_size
        folded = _copy(killed, place / "folded")
        asyncio.run(_fold(folded / "store"))
        assert not (folded / "store/store.db-wal").exists()
        return {"log": killed, "folded": folded}
    return {"rollback": killed, "journal": _halved(begun, place, lived, once)}


def _halved(begun: Path, place: Path, lived: Callable[..., tuple[int, Json]], once: Json) -> Path:
    """Left in the middle of a commit, by a kernel that refuses its database to grow: in which commit that happens
    depends on the random names of its rows.
    """
    for point in ("outcome.before", "intent.before", "settle.before", "claim.before"):
        halved = _copy(begun, place / point)
        died = lived(place=halved, small_files=[point, 1], **once)[0] < 0
        journal = halved / "store/store.db-journal"
        if died and journal.exists() and journal.stat().st_size:
            return halved
    raise AssertionError("no process died in the middle of a commit")


def _copy(place: Path, to: Path) -> Path:
    return Path(shutil.copytree(place, to))


async def _fold(store: Path) -> None:
    async with open_store(store, create=False):
        pass


def look(place: Path, variant: str, read: Sequence[str], resume: Sequence[str], *, workers: int = 2) -> list[Json]:
    """The verdicts of `flips.py` on damages (as text); two processes share the work, and one that dies is told."""
    with ThreadPoolExecutor(workers) as pool:
        parts = [(read[index::workers], resume[index::workers]) for index in range(workers)]
        return [said for part in pool.map(lambda each: _look(place, variant, *each), parts) for said in part]


def _look(place: Path, variant: str, read: Sequence[str], resume: Sequence[str]) -> list[Json]:
    job = json.dumps({"place": str(place), "variant": variant, "read": read, "resume": resume})
    done = subprocess.run(
        [sys.executable, "-P", str(HERE / "flips.py")],
        input=job + "\n",
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    said = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode == 0:
        return said
    left = [*(("read", each) for each in read), *(("resume", each) for each in resume)][len(said) :]
    kind, damage = left[0] if left else ("end", "")
    why = f"the process ended with {done.returncode}: {done.stderr[-2000:]}"
    return [*said, {"damage": damage, "kind": kind, "verdict": "wrong", "why": why}]
