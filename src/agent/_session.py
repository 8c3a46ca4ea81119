"""What a session is: the conversation across runs, as segments that are only ever appended.

`_stored_session.py` is ours, over any store. Design: `design/0011-sessions.md`.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from attrs import field, frozen


@frozen(kw_only=True)
class Segment:
    """One run's part of a session."""

    run_id: str | None
    """None: appended without one, so nothing tells a repeat from a second part"""
    entries: Sequence[object]
    """users' texts, replies, and behind each reply exactly one outcome a call; never empty"""
    meta: Mapping[str, object] = field(factory=dict[str, object])
    """what the caller keeps with it; a run's `timing` is `{"started_at", "finished_at"}`, in seconds since 1970"""


class Session(Protocol):
    """A place for conversations; an application can bring its own. `SessionContract` of `agent.testing` is its test.

    A session id that nothing was appended under is an empty conversation, not an error.
    """

    async def segments(self, session_id: str) -> Sequence[Segment]:
        """The runs' parts, oldest first."""
        ...

    async def load(self, session_id: str) -> Sequence[object]:
        """The entries of all segments, one behind the other."""
        ...

    async def append(
        self,
        session_id: str,
        entries: Sequence[object],
        *,
        run_id: str | None = None,
        meta: Mapping[str, object] | None = None,
    ) -> str:
        """Adds one segment, whole or not at all. Returns "", or a warning in words.

        Under a run id that is known already nothing is added: silently where the entries are the same, with a warning
        where they differ. No entries are no segment.
        """
        ...

    async def clear(self, session_id: str) -> None:
        """Removes all segments. An unknown session stays unknown."""
        ...

    async def ids(self) -> Sequence[str]:
        """The sessions that hold something, in order of their text."""
        ...


@runtime_checkable
class Rewindable(Protocol):
    """A session whose end can be dropped: the way to edit a message and send it again. Optional for a custom one."""

    async def rewind(self, session_id: str, *, keep_entries: int) -> int:
        """Drops the entries from `keep_entries` on (counted over `load`); returns how many it removed.

        Whole later runs go. A run that the cut lands inside is cut so that its calls stay paired, which may drop a reply
        before the cut as well, and loses its meta. 0 empties the session; a count at or past the end is a no-op.
        """
        ...
