"""Sessions in a store, beside the runs whose entries they share. Design: `design/0011-sessions.md`."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from savepoint._ambient import wall_clock_s
from savepoint._errors import Corrupt, Usage
from savepoint._log import Log
from savepoint._memory import MemoryStore
from savepoint._portable import Encoded
from savepoint._resumable import OURS
from savepoint._store import Space, Store, Transaction
from savepoint._stored import load_log
from savepoint._types import Types

from . import _landing, _rewinding, _trimming
from ._entries import TYPES
from ._landing import Footing, addition
from ._results import ResultStore
from ._segments import head_of, member_of, parts_of, retried, stands
from ._session import Segment
from ._session_rows import Head, Part, Standing, below, read_head, read_pending, run_row_key, write_pending


@frozen(kw_only=True)
class SegmentInfo:
    """A segment without its entries."""

    run_id: str | None
    start: int
    """entries before it"""
    count: int
    meta: Mapping[str, object]
    at: float
    """when it was appended or cut, in seconds since 1970"""


@frozen(kw_only=True)
class SessionSummary:
    """A session in a list."""

    session_id: str
    runs: int
    """its segments"""
    entries: int
    changed_at: float
    """seconds since 1970; of one that nothing landed in, when its last run began"""
    pending: int
    """runs that began in it and have not landed"""


class StoredSession:
    """Conversations in a store: a `Session`, `Rewindable`, and what a run needs of it.

    `types`: the classes that outcomes may be of. Each change is one commit; of those who make one at once all succeed,
    one after the other (`Conflict` after 200 tries). Reading raises `Corrupt`, `Foreign` (an entry of an unknown kind)
    and `Newer`; a text that cannot be an id is `Usage`.
    """

    def __init__(self, store: Store, types: Types = TYPES) -> None:
        self._store = store
        self._types = types | OURS

    @property
    def store(self) -> Store:
        """Where it lies: a run of the same store needs no other to land in it."""
        return self._store

    # -- the protocol

    async def segments(self, session_id: str) -> Sequence[Segment]:
        async def once() -> tuple[list[Part], Log[Any]]:
            head = await head_of(self._store, session_id)
            return await parts_of(self._store, session_id, head), await self._log(head.root, head.entries)

        parts, log = await retried(session_id, once)
        for part in parts:
            if log.root_at(part.end) != part.root:
                raise Corrupt(f"segment {part.number} of session {session_id!r} names other entries than it holds")
        return [
            Segment(run_id=part.run_id, entries=tuple(log[part.start : part.end]), meta=part.meta) for part in parts
        ]

    async def load(self, session_id: str) -> Log[Any]:
        return (await self.footing(session_id)).history

    async def append(
        self,
        session_id: str,
        entries: Sequence[object],
        *,
        run_id: str | None = None,
        meta: Mapping[str, object] | None = None,
    ) -> str:
        """As the protocol says. Raises `Usage` for entries that do not pair, naming the first of them, `NotPortable`."""
        return await _landing.append(self._store, addition(session_id, entries, run_id=run_id, meta=meta))

    async def clear(self, session_id: str) -> None:
        """As the protocol says. The run ids stay known, as rewound: no repeat brings their parts back."""
        await _rewinding.clear(self._store, session_id)

    async def ids(self) -> Sequence[str]:
        return [row.key.decode() for row in await self._store.scan(Space.SESSION)]

    # -- maintenance

    async def rewind(self, session_id: str, *, keep_entries: int) -> int:
        """As `Rewindable` says. No part that is dropped comes back: neither by a repeat nor with a run that saw it."""
        return await _rewinding.rewind(self._store, self._types, session_id, keep_entries)

    async def trim_tool_results(
        self, session_id: str, *, keep_chars: int = 400, keep_runs: int = 1, results: ResultStore | None = None
    ) -> int:
        """Cuts the text of outcomes to `keep_chars` characters, but for those of the last `keep_runs` runs.

        Structure, order and pairing stay; idempotent; returns how many it cut. With `results` each is archived before:
        the tool `recall_tool_result` brings it back. Without, it is gone from the session for good.
        """
        trimming = _trimming.Trimming(keep_chars, keep_runs, results)
        return await _trimming.trim(self._store, self._types, session_id, trimming)

    # -- listing: rows only

    async def outline(self, session_id: str) -> list[SegmentInfo]:
        async def once() -> list[Part]:
            return await parts_of(self._store, session_id, await head_of(self._store, session_id))

        return [
            SegmentInfo(run_id=part.run_id, start=part.start, count=part.count, meta=part.meta, at=part.at)
            for part in await retried(session_id, once)
        ]

    async def summaries(self) -> list[SessionSummary]:
        """Those that nothing landed in yet, too, where a run began in them."""
        heads = {row.key.decode(): row for row in await self._store.scan(Space.SESSION)}
        pending: dict[str, list[float]] = {}
        for row in await self._store.scan(Space.PENDING):
            pending.setdefault(row.key.partition(b"\0")[0].decode(), []).append(read_pending(row)[0])
        return [
            _summary(name, read_head(heads.get(name), name), pending.get(name, []))
            for name in sorted(heads.keys() | pending.keys())
        ]

    # -- what a run needs

    async def footing(self, session_id: str) -> Footing:
        """What a run begins with. Reads the head and the entries, whatever the number of segments."""
        head = await head_of(self._store, session_id)
        return Footing(session_id=session_id, history=await self._log(head.root, head.entries), mark=head.mark)

    async def stands(self, footing_count: int, mark: bytes, session_id: str) -> bool:
        """Whether the session still begins with a run's footing. Reads O(log n) rows and no entries."""

        async def once() -> bool:
            head = await head_of(self._store, session_id)
            return await stands(self._store, session_id, head, footing_count, mark)

        return await retried(session_id, once)

    def pending(self, tx: Transaction, session_id: str, run_id: str, *, anew: bool = False) -> None:
        """Adds to a unit of work that a run begins in the session. Raises `Usage`.

        `anew`: the former run of this id was `undone`; what was said of it does not hold for this one.
        """
        key = run_row_key(session_id, run_id)
        tx.write(Space.PENDING, key, write_pending(run_id, wall_clock_s()))
        if anew:
            tx.delete(Space.MEMBER, key)

    async def undone(self, session_id: str, run_id: str) -> bool:
        """Whether the part of a run of this id was rewound, or refused: a new run under the id may land all the same."""
        member = await member_of(self._store, session_id, run_id)
        return member is not None and member.standing is not Standing.LANDED

    async def pending_runs(self, session_id: str) -> list[str]:
        """The runs that began in the session and have not landed, oldest first.

        By the wall clock, which may have jumped: an order to land them in, nothing depends on it.
        """
        rows = await self._store.scan(Space.PENDING, below(session_id))
        return [run_id for _, run_id in sorted(map(read_pending, rows))]

    async def forget_pending(self, session_id: str, run_id: str) -> None:
        """The run will never land."""
        async with self._store.commit() as tx:
            tx.delete(Space.PENDING, run_row_key(session_id, run_id))

    async def land(
        self,
        session_id: str,
        run_id: str,
        transcript: Log[Any],
        *,
        history: int,
        mark: bytes,
        meta: Mapping[str, object] | None = None,
    ) -> str:
        """Appends what a run added to its footing (`history` entries, whose last segment has `mark`).

        Returns "", or a warning: the session does not begin with the footing any more, or the run's part is known
        already. The run is not pending then. Raises as `append` does, and then it still is.
        """
        if not 0 <= history <= len(transcript):
            raise Usage(
                f"run {run_id!r}: a transcript of {len(transcript)} entries cannot begin with {history}",
                next="pass the number of entries of its footing",
            )
        own: list[Encoded] = [transcript.encoded_at(place) for place in range(history, len(transcript))]
        added = addition(session_id, own, run_id=run_id, meta=meta)
        return await _landing.land(self._store, added, transcript, history=history, mark=mark)

    async def _log(self, root: bytes, count: int) -> Log[Any]:
        return await load_log(self._store, root, count, self._types)


def _summary(session_id: str, head: Head, began: Sequence[float]) -> SessionSummary:
    """`began`: when its pending runs did."""
    return SessionSummary(
        session_id=session_id,
        runs=head.segments,
        entries=head.entries,
        changed_at=max(began, default=0.0) if head.digest is None else head.changed_at,
        pending=len(began),
    )


class InMemorySession(StoredSession):
    """Sessions that end with their process: for tests and chats that nobody keeps."""

    def __init__(self, types: Types = TYPES) -> None:
        super().__init__(MemoryStore(), types)
