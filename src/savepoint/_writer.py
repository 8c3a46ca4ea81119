"""The one writer of a lineage's events: every durable boundary of an attempt is one `commit` here.

Outcomes that landed wait for the next commit, so receipts become durable in the order in which things happened.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from attrs import field, frozen, mutable

from effects._receipt import Receipt, Status

from ._codec import Encoded
from ._crashpoint import CrashPoint, reach
from ._errors import Stale, Superseded
from ._events import Called, Event, Head, event_key, link, write_events, write_head
from ._store import Space, Store, Transaction
from ._stored import put_value

Also = Callable[[Transaction, Head], None]
"""More rows of the same commit, given the head as it will be."""


@frozen(kw_only=True)
class Boundary:
    """The crash points around one kind of commit."""

    before: CrashPoint
    after: CrashPoint


CREATE = Boundary(before=CrashPoint.CREATE_BEFORE, after=CrashPoint.CREATE_AFTER)
CLAIM = Boundary(before=CrashPoint.CLAIM_BEFORE, after=CrashPoint.CLAIM_AFTER)
SETTLE = Boundary(before=CrashPoint.SETTLE_BEFORE, after=CrashPoint.SETTLE_AFTER)
REPLY = Boundary(before=CrashPoint.REPLY_BEFORE, after=CrashPoint.REPLY_AFTER)
INTENT = Boundary(before=CrashPoint.INTENT_BEFORE, after=CrashPoint.INTENT_AFTER)
OUTCOME = Boundary(before=CrashPoint.OUTCOME_BEFORE, after=CrashPoint.OUTCOME_AFTER)
SNAPSHOT = Boundary(before=CrashPoint.SNAPSHOT_BEFORE, after=CrashPoint.SNAPSHOT_AFTER)
GAP = Boundary(before=CrashPoint.GAP_BEFORE, after=CrashPoint.GAP_AFTER)
PARK = Boundary(before=CrashPoint.PARK_BEFORE, after=CrashPoint.PARK_AFTER)
END = Boundary(before=CrashPoint.END_BEFORE, after=CrashPoint.END_AFTER)


@mutable(kw_only=True, eq=False)
class Writer:
    """Appends to one lineage while its head is what this writer wrote last; otherwise `Superseded`."""

    store: Store
    lineage: bytes
    head: Head
    digest: bytes | None
    """the head row's digest; None: the lineage is new"""
    numbered: Callable[[Receipt], None] = field(default=lambda _: None)
    """told each receipt with its number once it is durable"""
    _landed: list[Event] = field(factory=list[Event], init=False)
    _changes: dict[str, Any] = field(factory=dict[str, Any], init=False)
    """fields of the head that the next commit changes"""
    _values: list[Encoded] = field(factory=list[Encoded], init=False)
    _rows: list[Also] = field(factory=list[Also], init=False)
    """more rows that the next commit writes"""
    _known: set[bytes] = field(factory=set[bytes], init=False)
    """objects of the newest commit: a reply is named by its receipt first and by the transcript next"""
    _turn: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    @property
    def has_landed(self) -> bool:
        """Whether an outcome waits for the next commit."""
        return bool(self._landed)

    def land(self, receipt: Receipt, *values: Encoded) -> None:
        """An outcome that the next commit will hold."""
        self._landed.append(Called(receipt=receipt))
        self._values.extend(values)

    def add(self, rows: Also) -> None:
        """Rows that the next commit will hold, with all that landed."""
        self._rows.append(rows)

    def hold(self, event: Event, **head: Any) -> None:
        """An event that could not be committed now; the next commit will hold it."""
        self._landed.append(event)
        self._changes.update(head)

    async def commit(
        self,
        boundary: Boundary,
        events: Sequence[Event] = (),
        *,
        values: Sequence[Encoded] = (),
        also: Also | None = None,
        **head: Any,
    ) -> None:
        """One durable boundary: all that landed, then `events`; `head` names fields of the head to change.

        Raises `Superseded`, `NotWritable`; then nothing was written and what landed still waits. A cancellation goes
        on once it is known whether the commit happened.
        """
        async with self._turn:
            landed, self._landed = self._landed, []
            kept, self._values = self._values, []
            rows, self._rows = self._rows, []
            before = self.digest
            more = [*rows, *(() if also is None else (also,))]
            try:
                await self._write(boundary, [*landed, *events], [*kept, *values], more, {**self._changes, **head})
                self._changes = {}
            except BaseException:
                if self.digest == before:
                    self._landed, self._values = [*landed, *self._landed], [*kept, *self._values]
                    self._rows = [*rows, *self._rows]
                raise

    async def _write(
        self,
        boundary: Boundary,
        events: Sequence[Event],
        values: Sequence[Encoded],
        more: Sequence[Also],
        changes: dict[str, Any],
    ) -> None:
        reach(boundary.before)
        first = self.head.count
        head = self.head
        durable: list[Callable[[], None]] = []
        digest = b""
        try:
            async with self.store.commit(sync=_holds_intent(events)) as tx:
                tx.expect(Space.HEAD, self.lineage, self.digest)
                head = self._append(tx, events, changes)
                digest = tx.write(Space.HEAD, self.lineage, write_head(head))
                durable = [put_value(tx, value, self.store, self._known) for value in values]
                for rows in more:
                    rows(tx, head)
        except Stale as error:
            raise Superseded from error
        except asyncio.CancelledError:
            # The write was finished before the cancellation went on; whether it succeeded, the store knows.
            row = await self.store.read(Space.HEAD, self.lineage)
            if row is not None and row.digest == digest:
                self._written(head, digest, events, first, durable)
            raise
        self._written(head, digest, events, first, durable)
        self._known = {value.digest for value in values} if events else self._known
        reach(boundary.after)

    def _append(self, tx: Transaction, events: Sequence[Event], changes: dict[str, Any]) -> Head:
        """Adds one row of events; the head as it will be."""
        head = self.head
        count, chain = head.count, head.chain
        if events:
            chain = link(chain, tx.write(Space.EVENT, event_key(self.lineage, count), write_events(events)))
        return Head(
            count=count + len(events),
            chain=chain,
            step=changes.get("step", head.step),
            epoch=changes.get("epoch", head.epoch),
            point_step=changes.get("point_step", head.point_step),
        )

    def _written(
        self, head: Head, digest: bytes, events: Sequence[Event], first: int, durable: Sequence[Callable[[], None]]
    ) -> None:
        self.head, self.digest = head, digest
        for note in durable:
            note()
        for number, event in enumerate(events, first):
            if isinstance(event, Called):
                self.numbered(event.receipt.at_number(number))


def _holds_intent(events: Sequence[Event]) -> bool:
    """Intents are synced at every durability: what lasts only until a power cut would let a call happen twice."""
    return any(isinstance(event, Called) and event.receipt.status is Status.INTENDED for event in events)
