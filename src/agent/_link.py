"""A run's way to its session: what it stands on there, whether that still stands, and its landing when it completed."""

from collections.abc import Mapping
from typing import Any, cast

from attrs import field, frozen

from savepoint import Log, RunStatus
from savepoint._errors import Conflict, Corrupt, Missing, Usage
from savepoint._run import RunRecord
from savepoint._run_result import find_run
from savepoint._store import Store
from savepoint._types import Types

from ._entries import paired
from ._result import transcript_of
from ._session import Session
from ._stored_session import StoredSession

META = "session"


@frozen(kw_only=True)
class Stake:
    """What a run stands on in its session."""

    session_id: str
    history: int = 0
    """entries of the session that the run's transcript begins with"""
    mark: bytes = b""
    """of the last segment among them; of a custom session, the root of their log"""
    own: bool = True
    """the session lies in the run's store"""

    @property
    def meta(self) -> dict[str, object]:
        """As a run's record keeps it."""
        plain = {"id": self.session_id, "history": self.history, "mark": self.mark, "own": self.own}
        return {META: plain}


def stake_of(record: RunRecord) -> Stake | None:
    """What the record says; None for a run without a session."""
    plain = cast("Mapping[str, Any] | None", record.meta.get(META))
    if plain is None:
        return None
    return Stake(session_id=plain["id"], history=plain["history"], mark=plain["mark"], own=plain["own"])


@frozen(kw_only=True)
class Begun:
    """Where a new run of a session begins."""

    stake: Stake
    history: Log[Any] = field(factory=Log[Any])
    anew: bool = False
    """a former run of this id was undone in the session"""
    warnings: tuple[str, ...] = ()


@frozen(kw_only=True, eq=False)
class Link:
    """The sessions of one store, or custom ones; made by `link_to`."""

    store: Store
    session: Session
    own: StoredSession | None
    """the session where it lies in the run's store"""
    types: Types

    async def begin(self, session_id: str, run_id: str) -> Begun:
        """Lands what completed and did not land, then says what a new run begins with.

        Raises `Usage` for a custom session whose calls and outcomes do not pair: no model is ever sent such a thing.
        """
        if self.own is not None:
            warnings = await self._heal(self.own, session_id)
            footing = await self.own.footing(session_id)
            stake = Stake(session_id=session_id, history=len(footing.history), mark=footing.mark)
            anew = await self.own.undone(session_id, run_id)
            return Begun(stake=stake, history=footing.history, anew=anew, warnings=warnings)
        history = await self._loaded(session_id)
        if wrong := paired(history):
            raise Usage(f"session {session_id}: {wrong[0]}", next="mend what it loads with drop_dangling_tool_calls")
        return Begun(
            stake=Stake(session_id=session_id, history=len(history), mark=history.root, own=False), history=history
        )

    async def must_stand(self, run_id: str, stake: Stake) -> None:
        """Raises `Conflict` where what the run stands on was rewound or cleared."""
        if not await self._stands(stake):
            raise Conflict(
                f"session {stake.session_id} changed since run {run_id} began: what the run stands on was undone",
                next="start it anew on the session as it is: if_run_exists=restart",
            )

    async def land(self, record: RunRecord, stake: Stake, transcript: Log[Any] | None = None) -> str:
        """Appends what a completed run added, once. Returns "", or why it is not there, in words.

        `transcript` is the run's, where it was read already.
        """
        if transcript is None:
            transcript = await transcript_of(self.store, record, self.types)
        meta = {"timing": {"started_at": record.created_at, "finished_at": record.ended_at or record.changed_at}}
        if self.own is not None:
            return await self.own.land(
                stake.session_id, record.run_id, transcript, history=stake.history, mark=stake.mark, meta=meta
            )
        if not await self._stands(stake):
            return f"session {stake.session_id} changed since run {record.run_id} began: its part was not appended"
        added = transcript[stake.history :]
        return await self.session.append(stake.session_id, added, run_id=record.run_id, meta=meta) or ""

    async def _stands(self, stake: Stake) -> bool:
        if self.own is not None:
            return await self.own.stands(stake.history, stake.mark, stake.session_id)
        history = await self._loaded(stake.session_id)
        return stake.history <= len(history) and history.root_at(stake.history) == stake.mark

    async def _loaded(self, session_id: str) -> Log[Any]:
        return Log(await self.session.load(session_id))

    async def _heal(self, own: StoredSession, session_id: str) -> tuple[str, ...]:
        """Lands the runs of the session that completed and whose process died before they landed."""
        warnings: list[str] = []
        for run_id in await own.pending_runs(session_id):
            record = await find_run(self.store, run_id)
            stake = None if record is None else stake_of(record)
            gone = record is None or record.removed or record.status is RunStatus.CANCELLED
            if gone or stake is None or stake.session_id != session_id:
                await own.forget_pending(session_id, run_id)
            elif record is not None and record.status is RunStatus.COMPLETED:
                warnings.append(await self._healed(record, stake))
        return tuple(filter(None, warnings))

    async def _healed(self, record: RunRecord, stake: Stake) -> str:
        try:
            return await self.land(record, stake)
        except (Corrupt, Missing) as error:
            raise Corrupt(
                f"run {record.run_id} completed, and cannot land in session {stake.session_id}: {error.message}",
                next=f"savepoint verify; or give up what it did there: savepoint rm {record.run_id} --abandon",
            ) from error


async def land_first(store: Store, record: RunRecord, types: Types) -> None:
    """Before a completed run is removed or replaced: what it did lands in its session, where that is the store's own.

    Raises `Foreign` for outcomes of classes that are not in `types`.
    """
    stake = stake_of(record)
    if stake is not None and stake.own and not record.removed:
        await link_to(store, None, types).land(record, stake)


def link_to(store: Store, session: Session | None, types: Types) -> Link:
    """The link to `session`; None: the sessions of the run's own store."""
    if session is None:
        session = StoredSession(store, types)
    own = session if isinstance(session, StoredSession) and session.store is store else None
    return Link(store=store, session=session, own=own, types=types)


def link_of(record: RunRecord, store: Store, session: Session | None, session_id: str | None, types: Types) -> Link:
    """The link of a run that exists. Raises `Conflict` for another session than its own, `Usage` where it is lacking."""
    stake = stake_of(record)
    mine = None if stake is None else stake.session_id
    if session_id is not None and session_id != mine:
        belongs = "to no session" if mine is None else f"to session {mine}"
        raise Conflict(
            f"run {record.run_id} belongs {belongs}, not to session {session_id}", next="choose another run id"
        )
    link = link_to(store, session, types)
    if stake is not None and stake.own != (link.own is not None):
        kept = "the run's own store" if stake.own else "a session of yours"
        raise Usage(
            f"run {record.run_id} belongs to session {stake.session_id}, which is kept in {kept}",
            next="leave out session=" if stake.own else "pass session= as at its start",
        )
    return link
