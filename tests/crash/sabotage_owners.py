"""Faults in who may act for a run."""

from collections.abc import Callable
from typing import Any

from savepoint import _begin, _claim, _program
from savepoint._claim import Claim
from savepoint._run import run_key
from savepoint._store import Space
from savepoint._unit import Unit
from savepoint._writer import CLAIM, Writer


def _claim_blindly() -> None:
    """A claim does not compare what it read with what is there: the last claimant wins, not the first."""
    commit = Writer.commit

    async def blind(self: Writer, boundary: object, *rest: Any, **more: Any) -> None:
        if boundary is CLAIM and (row := await self.store.read(Space.HEAD, self.lineage)) is not None:
            self.digest = row.digest
        await commit(self, boundary, *rest, **more)  # type: ignore[arg-type]

    async def unread(store: Any, run_id: str, _: object) -> bytes | None:
        row = await store.read(Space.RUN, run_key(run_id))
        return None if row is None else row.digest

    Writer.commit = blind  # type: ignore[method-assign, assignment]
    _begin._digest_of = unread


def _no_fencing() -> None:
    """A former owner's writes are not refused: no commit compares the lineage's head."""
    expect = Unit.expect

    def lax(self: Unit, space: Space, key: bytes, digest: bytes | None) -> None:
        if space is not Space.HEAD:
            expect(self, space, key, digest)

    Unit.expect = lax  # type: ignore[method-assign]


def _no_lease_check() -> None:
    """A body is entered without a look at the lease."""

    async def ensure(_: Claim) -> None:
        return None

    Claim.ensure = ensure  # type: ignore[method-assign]


def _living_owner_ignored() -> None:
    """A run is claimed although its owner lives."""
    _claim.alive = _program.alive = lambda *_: False


OWNERS: dict[str, Callable[[], None]] = {
    "claim without compare-and-set": _claim_blindly,
    "no fencing": _no_fencing,
    "no lease check": _no_lease_check,
    "living owner ignored": _living_owner_ignored,
}
