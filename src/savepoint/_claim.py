"""Who owns a run: a kernel file lock that death releases, a lease by a clock that never jumps, a fencing epoch.

Lock free: the owner is dead, claim at once. Lock held: its lease must run out first (the owner is stopped or hung).
Either way the claim is a compare-and-set on the lineage's head, so exactly one claimant wins and the former owner's
next write is refused. See `design/0006-runs.md`.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast
from weakref import WeakSet

from attrs import field, frozen, mutable

from ._ambient import boot_clock_s, boot_id, process_id
from ._codec import dumps, loads
from ._digest import Domain, seal
from ._errors import Corrupt, Held, NotWritable, SavepointError, Stale, Superseded
from ._store import Row, Space, Store, Transaction

LEASE_S = 30.0
"""How long an owner is believed without a renewal."""
MARGIN = 0.1
"""The part of the lease, at its end, in which the owner no longer trusts it."""
RENEWALS = 3
"""Renewals tried per lease."""
LOOK_S = 1.0
"""How often an owner looks whether somebody wants its run cancelled."""


@frozen(kw_only=True)
class Lease:
    """An owner's word that it is alive; `deadline_s` counts on the boot clock of boot `boot`."""

    epoch: int
    boot: str
    process: int
    deadline_s: float

    def expired(self) -> bool:
        """On this boot. A lease of another boot of this machine died with it; the kernel lock tells machines apart."""
        return self.boot != boot_id() or boot_clock_s() >= self.deadline_s


def write_lease(lease: Lease) -> bytes:
    return dumps([lease.epoch, lease.boot, lease.process, lease.deadline_s])


def read_lease(row: Row) -> Lease:
    try:
        epoch, boot, process, deadline_s, *_ = cast("list[object]", loads(row.body))
    except (TypeError, ValueError) as error:
        raise Corrupt(f"the lease of run {row.key!r}: {error}") from error
    return Lease(
        epoch=cast("int", epoch),
        boot=cast("str", boot),
        process=cast("int", process),
        deadline_s=cast("float", deadline_s),
    )


class KernelLock:
    """An exclusive lock on a file, held until `release` or death. Children that are executed do not inherit it."""

    def __init__(self, path: Path, handle: int) -> None:
        self._path = path
        self._handle = handle
        _OPEN.add(self)

    @classmethod
    def take(cls, path: Path) -> "KernelLock | None":
        """The lock, or None where another open file holds it. Never waits."""
        while True:
            try:
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                move = "open the store from where it can be written"
                raise NotWritable(f"the lock {path.name} cannot be made: {error.strerror}", next=move) from error
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                return None
            if _is_file(path, handle):
                return cls(path, handle)
            # Its former holder removed the file between open and lock: a lock on a nameless file protects nothing.
            os.close(handle)

    @staticmethod
    def held(path: Path) -> bool:
        """Whether somebody holds it. Asks with a shared lock, so that two who ask do not take each other for owners."""
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False

    def release(self) -> None:
        """Removes the file and lets go, in this order: whoever opened it meanwhile sees that it has no name."""
        if self._handle >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = -1

    def forget(self) -> None:
        """For a child made by fork alone: it shares the open file, and its life must not prolong the lock."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


_OPEN: WeakSet[KernelLock] = WeakSet()


def _forget_all() -> None:
    for lock in list(_OPEN):
        lock.forget()


os.register_at_fork(after_in_child=_forget_all)


def _is_file(path: Path, handle: int) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(handle))


def lock_path(store: Store, lineage: bytes, epoch: int) -> Path | None:
    """The lock file of one attempt; None for stores that no other process can open."""
    if store.locks is None:
        return None
    name = seal(Domain.LINEAGE, lineage).hex()[:32]
    return store.locks / f"{name}.{epoch}"


@mutable(kw_only=True, eq=False)
class Claim:
    """This process's hold on a run. `ensure` before every body; `renewing` keeps the lease alive."""

    store: Store
    run_key: bytes
    epoch: int
    lease_s: float
    lock: KernelLock | None
    outer: "Claim | None" = None
    """on the run that this one is nested in: who lost that one may do nothing more here either"""
    _deadline_s: float = field(default=0.0, init=False)
    _digest: bytes = field(default=b"", init=False)
    _lost: bool = field(default=False, init=False)
    _over: bool = field(default=False, init=False)
    _turn: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    """held by a renewal: two at once would take each other for another owner"""
    cancel_wanted: bool = field(default=False, init=False)
    """somebody asked for the run to be cancelled"""
    ending: bool = field(default=False, init=False)
    """the attempt is on its way out: nothing is cancelled any more"""

    def write(self, tx: Transaction) -> None:
        """Adds the first lease to the claim's commit; call `begun` when it is durable."""
        self._deadline_s = boot_clock_s() + self.lease_s
        self._digest = tx.write(Space.LEASE, self.run_key, write_lease(self._lease(self._deadline_s)))
        tx.delete(Space.REQUEST, self.run_key)  # a wish about an earlier attempt ends with it

    def _lease(self, deadline_s: float) -> Lease:
        return Lease(epoch=self.epoch, boot=boot_id(), process=process_id(), deadline_s=deadline_s)

    async def ensure(self) -> None:
        """Returns while this attempt may act. Raises `Superseded` once another one may hold the run.

        A lease that ran out while nobody claimed the run is renewed by compare-and-set; there is no other way back.
        """
        if self.outer is not None:
            await self.outer.ensure()
        if self._lost:
            raise Superseded
        if boot_clock_s() >= self._deadline_s - MARGIN * self.lease_s:
            await self.renew()

    async def renew(self) -> None:
        """Moves the deadline. Raises `Superseded` where another attempt's lease stands, or it cannot be written."""
        async with self._turn:
            if not self._over:
                await self._renew()

    async def rest(self) -> None:
        """Returns when no renewal is under way, and none will be: the attempt's last commit names the lease."""
        async with self._turn:
            self._over = True

    async def _renew(self) -> None:
        deadline_s, digest = boot_clock_s() + self.lease_s, b""
        try:
            async with self.store.commit(sync=False) as tx:
                tx.expect(Space.LEASE, self.run_key, self._digest)
                digest = tx.write(Space.LEASE, self.run_key, write_lease(self._lease(deadline_s)))
        except Stale:
            self._lost = True
            raise Superseded from None
        except NotWritable:
            if boot_clock_s() >= self._deadline_s:
                raise Superseded from None
            return
        except asyncio.CancelledError:
            # The write was finished before the cancellation went on; whether it succeeded, the store knows.
            row = await self.store.read(Space.LEASE, self.run_key)
            if row is not None and row.digest == digest:
                self._deadline_s, self._digest = deadline_s, digest
            raise
        self._deadline_s, self._digest = deadline_s, digest

    @contextlib.asynccontextmanager
    async def renewing(self, program: asyncio.Task[Any] | None) -> AsyncGenerator[None]:
        """Renews in the background while the block runs; cancels `program` when somebody asked for that."""
        task = asyncio.create_task(self._renew_for_ever(program))
        try:
            yield
        finally:
            task.cancel()
            # Whatever ended the renewals, `ensure` finds out before the next body.
            with contextlib.suppress(asyncio.CancelledError, Superseded, SavepointError):
                await task

    async def _renew_for_ever(self, program: asyncio.Task[Any] | None) -> None:
        due_s = boot_clock_s() + self.lease_s / RENEWALS
        while True:
            await asyncio.sleep(min(LOOK_S, self.lease_s / RENEWALS))
            # One failure of the store must not be the last look: the lease would run out under a living owner.
            with contextlib.suppress(SavepointError):
                if boot_clock_s() >= due_s:
                    due_s = await self._renew_if_mine()
                if program is not None and await self.store.read(Space.REQUEST, self.run_key) is not None:
                    self.cancel_wanted = True
                    if not self.ending:  # again at each look: a call in flight may have swallowed the first one
                        program.cancel()

    async def _renew_if_mine(self) -> float:
        """Renews, and returns when the next renewal is due. Raises `Superseded` where the run is lost for good."""
        try:
            await self.renew()
        except Superseded:
            if self._lost:
                raise
        return boot_clock_s() + self.lease_s / RENEWALS

    def give_back(self, tx: Transaction) -> None:
        """Adds the end of the lease to the attempt's last commit."""
        tx.expect(Space.LEASE, self.run_key, self._digest)
        tx.delete(Space.LEASE, self.run_key)
        tx.delete(Space.REQUEST, self.run_key)

    def release(self) -> None:
        """Lets go of the kernel lock."""
        if self.lock is not None:
            self.lock.release()


async def owner_of(store: Store, run_key: bytes) -> Lease | None:
    """The lease that stands, whoever wrote it."""
    row = await store.read(Space.LEASE, run_key)
    return None if row is None else read_lease(row)


def alive(store: Store, lineage: bytes, lease: Lease) -> bool:
    """Whether an owner must be waited for: it holds its lock (or its store has none) and its lease has not run out."""
    path = lock_path(store, lineage, lease.epoch)
    held = True if path is None else KernelLock.held(path)
    # Held on another boot: by another machine that sees this store, whose clock says nothing here.
    return held and (lease.boot != boot_id() or not lease.expired())


def take_lock(store: Store, lineage: bytes, run_id: str, lease: Lease | None, epoch: int) -> KernelLock | None:
    """The right to try to claim the run as `epoch`. Raises `Held` while an owner is alive or another one is claiming."""
    if lease is not None and alive(store, lineage, lease):
        left = max(0.0, lease.deadline_s - boot_clock_s())
        raise Held(
            f"run {run_id} is held by process {lease.process} (attempt {lease.epoch}, lease {left:.0f} s)",
            next=f"wait for it, or stop that process; then: savepoint resume {run_id}",
        )
    path = lock_path(store, lineage, epoch)
    if path is None:
        return None
    lock = KernelLock.take(path)
    if lock is None:
        raise Held(f"run {run_id} is being claimed by another process", next=f"savepoint show {run_id}")
    return lock


def sweep_locks(store: Store, lineage: bytes, epoch: int) -> None:
    """Removes the lock files of a lineage's earlier attempts, except of those that are superseded and not dead."""
    for path in _earlier_locks(store, lineage, epoch):
        if not KernelLock.held(path):
            path.unlink(missing_ok=True)


def all_dead(store: Store, lineage: bytes, epoch: int) -> bool:
    """Whether no earlier attempt holds its lock on this machine. One that was stopped and superseded, long before the
    newest owner, may still be inside a body.
    """
    return not any(KernelLock.held(path) for path in _earlier_locks(store, lineage, epoch))


def _earlier_locks(store: Store, lineage: bytes, epoch: int) -> list[Path]:
    newest = lock_path(store, lineage, epoch)
    if newest is None:
        return []
    found = (path for path in newest.parent.glob(f"{newest.stem}.*") if path.suffix[1:].isdecimal())
    return [path for path in found if int(path.suffix[1:]) < epoch]
