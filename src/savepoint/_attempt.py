"""One attempt: a process's hold on a run, from the claim to the commit that ends it."""

import contextlib
from collections.abc import AsyncGenerator

from attrs import evolve, field, mutable

from effects._failure import Failure
from effects._receipt import Status

from ._ambient import wall_clock_s
from ._claim import Claim, owner_of
from ._codec import Encoded, encode
from ._crashpoint import CrashPoint, reach
from ._events import Called, Head, Past
from ._forks import fork_place, forked, sweep_forks
from ._form import Savepoint, plain_ids, snapshot_ids
from ._journal import Journal
from ._resumable import Registry
from ._run import RunRecord, RunStatus, may, run_key, write_run
from ._store import Space, Store, Transaction
from ._stored import get_value
from ._thread import in_thread
from ._world import Snapshot, World
from ._writer import END


@mutable(kw_only=True, eq=False)
class Attempt:
    """A claimed run, ready to be entered."""

    store: Store
    registry: Registry
    record: RunRecord
    claim: Claim
    journal: Journal
    host: World
    savepoint: Savepoint
    past: Past
    former_owner_dead: bool = False
    """proved: its kernel lock, on this machine, is free"""
    damage: str = ""
    """what is wrong with the receipts after the savepoint"""
    warnings: list[str] = field(factory=list[str])
    former: RunRecord | None = None
    """the record before this claim; None: the run begins"""
    poison_after: int | None = None
    """failures from one savepoint after which it is not entered before somebody says so; None: it always is"""

    @property
    def lineage(self) -> bytes:
        return self.record.lineage

    @contextlib.asynccontextmanager
    async def world(self) -> AsyncGenerator[World]:
        """The fork of the host world that this attempt works in; gone at the end, its content is in the snapshots."""
        reach(CrashPoint.FORK_BEFORE)
        self.journal.base = await self.snapshot()
        if self.host.systems:
            with contextlib.suppress(OSError):
                await in_thread(sweep_forks, self.store, self.lineage, self.claim.epoch)
        place = fork_place(self.store, self.lineage, self.claim.epoch)
        async with forked(self.store, self.host, self.savepoint, at=self.journal.base, place=place) as fork:
            reach(CrashPoint.FORK_AFTER)
            yield fork

    async def snapshot(self) -> Snapshot:
        """The ids that this attempt starts from: of the savepoint, or of a later snapshot within its step."""
        if self.past.world is None:
            return self.savepoint.world
        return snapshot_ids(await get_value(self.store, self.past.world, self.registry.types))

    async def over(self) -> bool:
        """Whether the commit that ends this attempt is durable: its lease was given back in it."""
        lease = await owner_of(self.store, self.claim.run_key)
        return lease is None or lease.epoch != self.claim.epoch

    async def end(
        self,
        status: RunStatus,
        *,
        result: Encoded | None = None,
        state: Encoded | None = None,
        error: Failure | None = None,
        final: Snapshot | None = None,
    ) -> None:
        """The commit that ends this attempt: what landed, withdrawn intents, the run's status, the lease."""
        if not may(self.record.status, status):
            raise RuntimeError(f"a run cannot go from {self.record.status} to {status}")
        world = None if not final else encode(plain_ids(final))
        now = wall_clock_s()
        record = evolve(
            self.record,
            status=status,
            changed_at=now,
            ended_at=now,
            result=None if result is None else result.digest,
            error=error,
            state=None if state is None else state.digest,
            final=None if world is None else world.digest,
        )
        withdrawn = [Called(receipt=evolve(intent, status=Status.WITHDRAWN)) for intent in self.journal.mine.values()]

        def rows(tx: Transaction, _: Head) -> None:
            tx.write(Space.RUN, run_key(record.run_id), write_run(record))
            self.claim.give_back(tx)

        values = [value for value in (result, state, world) if value is not None]
        await self.journal.writer.commit(END, withdrawn, values=values, also=rows)
        self.record = record
