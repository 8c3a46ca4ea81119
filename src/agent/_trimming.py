"""How a session's old tool results become short: in place, so that structure, order and pairing stay.

Marks stay too: a run that began before goes on standing on the session, and lands behind it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from attrs import evolve

from savepoint._ambient import wall_clock_s
from savepoint._errors import Usage
from savepoint._log import EMPTY_ROOT, Log
from savepoint._portable import Encoded, encode
from savepoint._store import Space, Store
from savepoint._stored import load_log, put_elements
from savepoint._types import Types

from ._entries import Reply, Trimmed, User
from ._landing import write_change
from ._render import whole_text
from ._results import ResultStore
from ._segments import head_of, parts_of, retried
from ._session_rows import Part, part_key, session_key, write_part


class Trimming:
    """What is to be shortened, and where it is archived first."""

    def __init__(self, keep_chars: int, keep_runs: int, results: ResultStore | None) -> None:
        for name, value in (("keep_chars", keep_chars), ("keep_runs", keep_runs)):
            if type(value) is not int or value < 0:
                raise Usage(f"{name}={value!r}: a number from 0 on is needed", next=f"pass {name}=400, or leave it out")
        self._keep_chars = keep_chars
        self.keep_runs = keep_runs
        self._results = results
        self._refs: dict[bytes, str] = {}
        """what is archived by now, by its digest: a change that is tried again archives nothing twice"""

    async def shortened(self, log: Log[Any], places: range) -> dict[int, Encoded]:
        """The entries of these places that become shorter."""
        found = list(self._long(log, places))
        return {place: encode(await self._short(log, place, text), f"entries[{place}]") for place, text in found}

    def _long(self, log: Log[Any], places: range) -> Iterator[tuple[int, str]]:
        for place, entry in zip(places, log[places.start : places.stop], strict=True):
            if not isinstance(entry, User | Reply):
                text = entry.text if isinstance(entry, Trimmed) else whole_text(entry)
                if len(text) > self._keep_chars:
                    yield place, text

    async def _short(self, log: Log[Any], place: int, text: str) -> Trimmed:
        entry: object = log[place]
        if isinstance(entry, Trimmed):
            return evolve(entry, text=text[: self._keep_chars])
        ref = await self._archived(log.encoded_at(place).digest, entry)
        return Trimmed(text=text[: self._keep_chars], length=len(text), ref=ref)

    async def _archived(self, digest: bytes, outcome: object) -> str:
        if self._results is None:
            return ""
        if digest not in self._refs:
            self._refs[digest] = await self._results.save(outcome)
        return self._refs[digest]


async def trim(store: Store, types: Types, session_id: str, trimming: Trimming) -> int:
    """Shortens the outcomes of all but the last runs; returns how many. Raises `Conflict`, and what loading raises."""
    session_key(session_id)

    async def once() -> int:
        head = await head_of(store, session_id)
        parts = await parts_of(store, session_id, head)
        old = parts[: max(0, len(parts) - trimming.keep_runs)]
        if not old:
            return 0
        log = await load_log(store, head.root, head.entries, types)
        shorter = await trimming.shortened(log, range(old[-1].end))
        if not shorter:
            return 0
        first = next(part.number for part in parts if part.end > min(shorter))
        async with store.commit() as tx:
            root = parts[first - 1].root if first else EMPTY_ROOT
            for part in parts[first:]:
                # Segment by segment, so that each of their ends stays the end of a stored log: a later rewind to it
                # reads no entries.
                root = put_elements(tx, root, _elements(log, part, shorter), store)
                tx.write(Space.SEGMENT, part_key(session_id, part.number), write_part(evolve(part, root=root)))
            write_change(tx, session_id, head, evolve(head, root=root, changed_at=wall_clock_s()))
        return len(shorter)

    return await retried(session_id, once)


def _elements(log: Log[Any], part: Part, shorter: dict[int, Encoded]) -> Sequence[Encoded]:
    return [shorter.get(place) or log.encoded_at(place) for place in range(part.start, part.end)]
