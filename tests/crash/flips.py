"""Reads and resumes damaged copies of one small store, many in one process; `python flips.py < JOB` for `test_every_byte`.

A job is one line of JSON: `place` (a store, its outside, its host, whole), `variant`, `read` and `resume` (damages as
text). The answer to each damage is one line: its text, a verdict, and what was seen.
"""

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flips_judge import (
    EARLIER,
    EQUAL,
    HIDDEN,
    NAMED,
    WRONG,
    commits,
    in_database,
    in_page_header,
    judged,
    leaks,
    resumed_wrong,
)
from flips_read import PLANS, Content, everything, known, raw, verified
from flips_store import LONG_S, in_time, without_threads
from small import Request, attempt
from small_program import Json, lines

from savepoint import open_store
from savepoint.crash._damage import Damage, Hurt, Stock, hurt

RARE = 16
"""One byte in so many of a database is read in full even where that cannot show anything."""


def writable(variant: str) -> bool:
    """Whether looking at it takes a writer: a hot journal must be rolled back."""
    return variant == "journal"


class Worker:
    def __init__(self, place: Path, variant: str) -> None:
        self.whole = place
        self.write = writable(variant)
        self.how = {} if variant in ("folded", "log") else {"wal": False}
        self.stock = Stock.of(place / "store")
        self.place = Path(tempfile.mkdtemp(dir=place.parent))  # removed with it, where this process is killed
        self.store = self.place / "store"
        self.reference: Json = {}
        """how the runs end without damage"""

    async def begin(self) -> None:
        self.stock.put(self.store)
        async with open_store(self.store, create=False, read_only=not self.write) as store:
            self.known = await known(store)
        self.baseline, self.raw = await self.read(None), await self.answers(None)
        log = self.stock.contents.get("store.db-wal", b"")
        ends = [0, *commits(log)[:-1]] if log else []
        cuts = [Damage(how=Hurt.CUT, file="store.db-wal", at=end) for end in ends]
        self.earlier = [await self.read(cut) for cut in cuts]
        self.raw_earlier = [await self.answers(cut) for cut in cuts]

    @contextmanager
    def damaged(self, damage: Damage | None) -> Generator[None]:
        """The store with its damage, while the block runs. Who only reads leaves it as it is."""
        if self.write or damage is None:
            self.stock.put(self.store, damage)
        with without_threads(), in_time():
            if self.write or damage is None:
                yield
            else:
                with hurt(self.store, damage):
                    yield

    async def read(self, damage: Damage | None) -> Content:
        with self.damaged(damage):
            return await everything(self.store, self.known, write=self.write, worlds=not in_database(damage))

    async def answers(self, damage: Damage | None) -> Content:
        with self.damaged(damage):
            return await raw(self.store, self.known, write=self.write)

    async def look(self, damage: Damage) -> Json:
        """Reads all, and asks `verify`: less where the database answers exactly as it did without the damage, or as
        an earlier commit did.
        """
        if not in_database(damage):
            return judged(damage, self.stock, self.baseline, (), await self.read(damage), await self.verify(damage))
        answers = await self.answers(damage)
        if bad := leaks(answers):
            return {"verdict": WRONG, "why": f"raised without a name: {bad[:3]}"}
        rare = damage.at % RARE == 0
        known = answers == self.raw or answers in self.raw_earlier
        if not known or rare:
            seen = await self.read(damage)
        else:
            seen = self.baseline if answers == self.raw else self.earlier[self.raw_earlier.index(answers)]
        skipped = known and not rare and damage.file != "store.db"
        return judged(
            damage, self.stock, self.baseline, self.earlier, seen, [] if skipped else await self.verify(damage)
        )

    def unchanged(self) -> bool:
        """Whether those who only read left all bytes as they were; SQLite's shared memory is nobody's content."""
        after = Stock.of(self.store).contents
        return self.write or all(
            after.get(name) == was for name, was in self.stock.contents.items() if "-shm" not in name
        )

    async def verify(self, damage: Damage) -> Any:
        with self.damaged(damage):
            return await verified(self.store, write=self.write)

    # -- resuming -------------------------------------------------------------------------------------------------

    async def finish(self, damage: Damage | None) -> Json:
        """Both runs, run on by who does not know of the damage."""
        self.stock.put(self.store, damage)
        for name in ("outside", "host"):
            shutil.rmtree(self.place / name, ignore_errors=True)
            shutil.copytree(self.whole / name, self.place / name)
        said: Json = {}
        for run, plan in PLANS.items():
            how = {**self.how, "busy_s": 1.0}
            try:
                async with asyncio.timeout(LONG_S):
                    said[run] = await attempt(Request(place=str(self.place), plan=plan, run=run, how=how))
            except TimeoutError:
                said[run] = {"leak": "it never ends", "trace": ""}
        for each in said.values():
            each.pop("points", None)  # they are compared as they are read
        return {**said, "ledger": lines(self.place / "outside", "ledger")}

    async def resume(self, damage: Damage) -> Json:
        said = await self.finish(damage)
        wrong = resumed_wrong(said, self.reference)
        if not wrong:
            named = any(said[run] != self.reference[run] for run in PLANS)
            why = [said[run].get("error") or said[run]["status"] for run in PLANS]
            return {"verdict": NAMED if named else EQUAL, "why": why}
        self.stock.put(self.store)
        if damage.file.endswith("-wal") and await self.answers(damage) in self.raw_earlier:
            return {"verdict": EARLIER, "why": wrong}
        found = await self.verify(damage)
        narrow = found and in_page_header(damage, self.stock)
        return {"verdict": HIDDEN if narrow else WRONG, "why": [*wrong, f"verify: {found}"]}


def told(damage: str, kind: str, said: Json) -> None:
    sys.stdout.write(json.dumps({"damage": damage, "kind": kind, **said}) + "\n")
    sys.stdout.flush()


async def each(damages: Sequence[str], kind: str, act: Callable[[Damage], Awaitable[Json]]) -> None:
    for text in damages:
        told(text, kind, await act(Damage.parse(text)))


async def work(job: Json) -> None:
    worker = Worker(Path(job["place"]), job["variant"])
    try:
        await worker.begin()
        await each(job["read"], "read", worker.look)
        if job["read"] and not worker.unchanged():
            told("", "read", {"verdict": WRONG, "why": "a reader wrote"})
        if job["resume"]:
            worker.reference = await worker.finish(None)
            await each(job["resume"], "resume", worker.resume)
    finally:
        shutil.rmtree(worker.place)


if __name__ == "__main__":
    asyncio.run(work(json.loads(sys.stdin.readline())))
