"""What a run may change: named systems, and cells of declared state; taken together at one quiet point."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, runtime_checkable

from attrs import frozen

from effects._call import CURRENT

from ._cell import Cell
from ._conflict import MergeConflict
from ._errors import Foreign, Missing, Newer, SavepointError, Usage
from ._portable import is_immutable, normalise
from ._system import Change, Contents, System

T = TypeVar("T")

QUIET_TIMEOUT_S = 5.0


@frozen(kw_only=True)
class SnapshotId:
    """What names one system's state: the system's kind, the version of the id's meaning, and 32 bytes."""

    kind: str
    format: int
    id: bytes


class Busy(SavepointError):
    """Something was still in flight in the world when it should have been quiet; `operations` names it."""

    code = "busy"

    def __init__(self, operations: Sequence[str], timeout_s: float) -> None:
        super().__init__(
            f"the world is not quiet after {timeout_s:g} s: {', '.join(operations)} in flight",
            next="wait for what is in flight, or allow more time",
        )
        self.operations = tuple(operations)


@runtime_checkable
class Checked(Protocol):
    """A system that can tell its conflicts before it writes."""

    async def conflicts(self, contents: Contents, old: bytes, new: bytes) -> Sequence[str]: ...


Snapshot = Mapping[str, SnapshotId]
EMPTY: Snapshot = MappingProxyType({})


class World:
    """Named systems and cells. A world made here is a host; `fork` makes isolated children.

    In a `read_only` one, and its forks, what a body of a run changed is undone before its outcome is recorded.
    """

    def __init__(
        self,
        systems: Mapping[str, System] = MappingProxyType({}),
        *,
        cells: Iterable[Cell[Any]] = (),
        read_only: bool = False,
    ) -> None:
        self.read_only = read_only
        self._systems = dict(sorted(systems.items()))
        self._cells: dict[str, Any] = {}
        self._declared: dict[str, Cell[Any]] = {}
        self._in_flight: list[str] = []
        self._changed = asyncio.Event()
        self._taking = False
        self._applying = False
        for cell in cells:
            self._declare(cell)

    def __getitem__(self, cell: Cell[T]) -> T:
        self._declare(cell)
        if cell.name not in self._cells:
            # Kept, so that a default that can be changed belongs to this world alone.
            self._cells[cell.name] = normalise(cell.default, cell.name)
        value: T = self._cells[cell.name]
        return value

    def __setitem__(self, cell: Cell[T], value: T) -> None:
        """Raises `Usage` (not the cell's type; inside an effect's body), `NotPortable` with the offender's path."""
        if CURRENT.get() is not None:
            raise Usage(
                f"cell {cell.name!r} was set inside the body of {CURRENT.get().call.name}",  # type: ignore[union-attr]
                next="return the value and set the cell in the program: a body whose receipt is reused is not entered",
            )
        self._declare(cell)
        cell.check(value)
        self._cells[cell.name] = normalise(value, cell.name)

    @property
    def cells(self) -> Mapping[str, object]:
        """The state by name, as far as it was set or read."""
        return MappingProxyType(self._cells)

    def restore(self, state: Mapping[str, object]) -> None:
        """Makes `state` (in normal form, by cell name) the whole state: other cells are at their defaults again."""
        self._cells = dict(state)

    @property
    def systems(self) -> Mapping[str, System]:
        return MappingProxyType(self._systems)

    def system(self, name: str) -> System:
        try:
            return self._systems[name]
        except KeyError:
            known = ", ".join(self._systems) or "none"
            raise Missing(f"this world has no system {name!r}", next=f"it has: {known}") from None

    @asynccontextmanager
    async def using(self, operation: str) -> AsyncGenerator[None]:
        """Says that `operation` is at work in this world's systems: no snapshot is taken meanwhile.

        Waits while one is being taken.
        """
        while self._taking:
            await self._change()
        self._in_flight.append(operation)
        try:
            yield
        finally:
            self._in_flight.remove(operation)
            self._changed.set()

    async def snapshot(self, contents: Contents, *, quiet_timeout_s: float = QUIET_TIMEOUT_S) -> Snapshot:
        """The ids of all systems at one quiet point, by name; what they name is durable when this returns.

        Raises `Busy` where the world is not quiet in time, and what a system raises.
        """
        if not self._systems:
            return EMPTY
        async with self._stillness(quiet_timeout_s):
            taken = {name: await _identify(system, contents) for name, system in self._systems.items()}
        await contents.flush()
        return taken

    async def fork(self, contents: Contents, *, at: Snapshot | None = None, place: Path) -> "World":
        """An isolated child at the ids `at` (`None`: at the present state), its files below `place`.

        Cells go along by value. Where one system fails, those made already are discarded.
        """
        ids = await self.snapshot(contents) if at is None else at
        self._match(ids)
        made: dict[str, System] = {}
        try:
            for index, (name, system) in enumerate(self._systems.items()):
                # By number: a name may be any text, and is never part of a path.
                made[name] = await system.fork(contents, at=ids[name].id, place=place / str(index))
        except BaseException as error:
            await _discard_all(made.values(), error)
            raise
        child = World(made, read_only=self.read_only)
        child._cells = {name: v if is_immutable(v) else normalise(v, name) for name, v in self._cells.items()}
        child._declared = dict(self._declared)
        return child

    async def left(self, contents: Contents, *, place: Path) -> Snapshot:
        """The ids of what a fork whose process died left at `place`, of those systems that outlive a process."""
        found: dict[str, SnapshotId] = {}
        for index, (name, system) in enumerate(self._systems.items()):
            taken = await system.left(contents, place=place / str(index))
            if taken is not None:
                found[name] = SnapshotId(kind=system.kind, format=system.format, id=taken)
        await contents.flush()
        return found

    async def diff(self, contents: Contents, old: Snapshot, new: Snapshot) -> Mapping[str, Sequence[Change]]:
        """What changed between two snapshots of this world, by system; those without changes are left out."""
        self._match(old)
        self._match(new)
        found = {n: await s.diff(contents, old[n].id, new[n].id) for n, s in self._systems.items() if old[n] != new[n]}
        return {name: changes for name, changes in found.items() if changes}

    async def apply(self, contents: Contents, old: Snapshot, new: Snapshot) -> Mapping[str, Sequence[Change]]:
        """Merges the changes from `old` to `new` into this world, one merge after the other.

        Raises `MergeConflict` with the paths of all systems that can tell (`Checked`) before anything is written.
        """
        self._match(old)
        self._match(new)
        # What one merge checked must still hold when it writes.
        while self._applying:
            await self._change()
        self._applying = True
        try:
            async with self.using("a merge"):
                return await self._merge(contents, old, new)
        finally:
            self._applying = False
            self._changed.set()

    async def _merge(self, contents: Contents, old: Snapshot, new: Snapshot) -> Mapping[str, Sequence[Change]]:
        changed = [(n, s, old[n].id, new[n].id) for n, s in self._systems.items() if old[n] != new[n]]
        clashes: list[str] = []
        for name, system, before, after in changed:
            if isinstance(system, Checked):
                clashes += [f"{name}: {path}" for path in await system.conflicts(contents, before, after)]
        if clashes:
            raise MergeConflict("world", clashes)
        return {name: await system.apply(contents, before, after) for name, system, before, after in changed}

    def only_read(self) -> "World":
        """The same systems, read-only for what is forked from here."""
        view = World(self._systems, read_only=True)
        view._cells, view._declared = self._cells, self._declared
        return view

    async def discard(self) -> None:
        """Ends a fork; repeating it is a no-op. Raises `Usage` for a host, what one system raises after the others."""
        await _discard_all(self._systems.values(), None)

    def _declare(self, cell: Cell[Any]) -> None:
        known = self._declared.setdefault(cell.name, cell)
        if known is not cell and known.type != cell.type:
            raise Usage(f"two cells of different types are named {cell.name!r}", next="rename one of them")

    def _match(self, ids: Snapshot) -> None:
        if ids.keys() != self._systems.keys():
            differing = sorted(ids.keys() ^ self._systems.keys())
            raise Usage(
                f"the snapshot and this world have different systems: {', '.join(differing)}",
                next="use a world with the systems of the snapshot",
            )
        for name, system in self._systems.items():
            _match_kind(name, ids[name], system)

    @asynccontextmanager
    async def _stillness(self, timeout_s: float) -> AsyncGenerator[None]:
        """Waits until nothing is in flight and no other snapshot is being taken, then keeps it so."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._in_flight or self._taking:
                    await self._change()
        except TimeoutError:
            raise Busy(tuple(self._in_flight) or ("a snapshot",), timeout_s) from None
        self._taking = True
        try:
            yield
        finally:
            self._taking = False
            self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


async def _identify(system: System, contents: Contents) -> SnapshotId:
    return SnapshotId(kind=system.kind, format=system.format, id=await system.snapshot(contents))


def _match_kind(name: str, wanted: SnapshotId, system: System) -> None:
    if wanted.kind != system.kind:
        raise Foreign(
            f"system {name!r} is a {system.kind} here and a {wanted.kind} in the snapshot",
            next=f"use a world whose {name!r} is a {wanted.kind}",
        )
    if wanted.format > system.format:
        raise Newer(f"system {name!r}: snapshot of format {wanted.format}", next="upgrade")
    if wanted.format != system.format:
        raise Foreign(f"system {name!r}: snapshot of format {wanted.format}", next="migrate it with the older version")


async def _discard_all(systems: Iterable[System], cause: BaseException | None) -> None:
    """Every one is tried; what fails is noted at `cause`, or the first of it is raised."""
    failed: list[Exception] = []
    for system in systems:
        try:
            await system.discard()
        except Exception as error:  # noqa: BLE001  the others must still be discarded
            failed.append(error)
    if cause is None and failed:
        raise failed[0]
    if cause is not None:
        for error in failed:
            cause.add_note(f"what was made of the fork could not be discarded: {error}")
