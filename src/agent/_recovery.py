"""Recovery by itself: orphaned runs are continued, with bounded tries. One run's trouble never stops the others."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from attrs import frozen

from savepoint import RunStatus, World
from savepoint._claim import LEASE_S
from savepoint._errors import Held, SavepointError, Usage
from savepoint._orphans import survey_orphans
from savepoint._poison import check_limit
from savepoint._run import RunRecord
from savepoint._run_result import get_run
from savepoint._store import Store

from ._agent import Agent
from ._link import stake_of
from ._model import Model
from ._progress import OnEvent, ignore
from ._result import Result
from ._resume import resume
from ._session import Session

TRIES = 3
"""Attempts at one run whose model cannot be reached."""
BACKOFF_S = 1.0
LONGEST_S = 60.0
"""Between two tries."""
POISON_AFTER = 5
"""Failures from one savepoint after which somebody is asked."""

Work = Callable[[int], Awaitable[Result]]
"""One attempt at one run; told which one it is, from 1."""


@frozen(kw_only=True)
class Resumed:
    """What came of one orphaned run."""

    run_id: str
    result: Result | None = None
    error: SavepointError | None = None
    """why there is no result: `Held` where somebody else has it; `Usage`, `Corrupt` where it was skipped"""
    tries: int = 0
    """attempts made; 0: it was skipped"""


async def resume_all(
    *agents: Agent,
    store: Store,
    world: World | None = None,
    deps: object = None,
    model: Model | str | None = None,
    on_event: OnEvent = ignore,
    session: Session | None = None,
    lease_s: float = LEASE_S,
    tries: int = TRIES,
    backoff_s: float = BACKOFF_S,
    poison_after: int | None = POISON_AFTER,
) -> list[Resumed]:
    """Continues the orphaned runs of `agents`, one after the other, the oldest first; those of other agents are skipped.

    Where a model cannot be reached the run is tried again, `tries` times in all, after all others had their turn and
    `backoff_s` seconds, twice as long each time (at most 60). A savepoint from which `poison_after` attempts in a row
    died or failed is not entered: the run waits with the question `poison`. An error of one run is in its `Resumed`.
    `session` is that of yours which some of them belong to. Safe to be called by several processes at once. Raises `Usage`, `Corrupt` (of the leases), before anything is
    performed.
    """
    check_recovery(tries, backoff_s, poison_after)
    known = _by_name(agents)
    skipped: list[Resumed] = []
    works: dict[str, Work] = {}

    def work(record: RunRecord, agent: Agent) -> Work:
        async def attempt(tried: int) -> Result:
            await must_be_left(store, record.run_id, tried)
            stake = stake_of(record)
            return await resume(
                record.run_id, agent=agent, store=store, world=world, deps=deps, model=model, on_event=on_event,
                session=None if stake is None or stake.own else session, lease_s=lease_s, poison_after=poison_after,
            )  # fmt: skip

        return attempt

    found, damaged = await survey_orphans(store)
    for record in found:
        agent = known.get(str(record.meta.get("agent")))
        if agent is None:
            skipped.append(Resumed(run_id=record.run_id, error=_unknown(record)))
        else:
            works[record.run_id] = work(record, agent)
    skipped += [Resumed(run_id=run_id, error=error) for run_id, error in damaged.items()]
    return [*await recover(works, tries=tries, backoff_s=backoff_s), *skipped]


async def recover(works: Mapping[str, Work], *, tries: int, backoff_s: float) -> list[Resumed]:
    """Does the works, by run id, in rounds: what may fare better later does not keep the others waiting."""
    found = {run_id: Resumed(run_id=run_id) for run_id in works}
    again = list(works)
    for tried in range(1, tries + 1):
        if tried > 1:
            await asyncio.sleep(delay_s(tried - 2, backoff_s))
        for run_id in again:
            found[run_id] = await _tried(works[run_id], run_id, tried)
        again = [run_id for run_id in again if may_fare_better(found[run_id])]
        if not again:
            break
    return list(found.values())


async def _tried(work: Work, run_id: str, tried: int) -> Resumed:
    try:
        return Resumed(run_id=run_id, result=await work(tried), tries=tried)
    except SavepointError as error:
        return Resumed(run_id=run_id, error=error, tries=tried)
    except Exception as error:  # noqa: BLE001  whatever it is, the other runs go on
        named = SavepointError(f"run {run_id}: {type(error).__name__}: {error}", next=f"savepoint resume {run_id}")
        named.__cause__ = error
        return Resumed(run_id=run_id, error=named, tries=tried)


async def must_be_left(store: Store, run_id: str, tried: int) -> None:
    """Raises `Held` where somebody else continued the run since it was listed, and it ended: that end is theirs."""
    ended = {RunStatus.FAILED} if tried > 1 else {RunStatus.FAILED, RunStatus.INTERRUPTED}
    record = await get_run(store, run_id)
    if record.status in ended:
        raise Held(
            f"run {run_id} was continued by another process meanwhile ({record.status})",
            next=f"savepoint resume {run_id}",
        )


def delay_s(tried: int, backoff_s: float) -> float:
    """Seconds before the try that follows number `tried`, 0-based."""
    return min(LONGEST_S, backoff_s * 2.0 ** min(tried, 64))


def may_fare_better(resumed: Resumed) -> bool:
    """Whether the same try may end otherwise later: the model could not be reached."""
    if resumed.result is not None:
        return resumed.result.status is RunStatus.INTERRUPTED
    return bool(getattr(resumed.error, "retryable", False))


def check_recovery(tries: int, backoff_s: float, poison_after: int | None) -> None:
    """Raises `Usage` for numbers that mean nothing."""
    if tries < 1:
        raise Usage(f"tries={tries}: not a number of tries", next="give 1 or more")
    if not backoff_s >= 0:
        raise Usage(f"backoff_s={backoff_s}: not a time", next="give seconds, 0 or more")
    check_limit(poison_after)


def _by_name(agents: tuple[Agent, ...]) -> dict[str, Agent]:
    """Raises `Usage` where two have one name: a run keeps nothing else of its agent."""
    known: dict[str, Agent] = {}
    for agent in agents:
        if known.setdefault(agent.name, agent) is not agent:
            raise Usage(f"two agents are named {agent.name!r}", next="give each a name of its own")
    return known


def _unknown(record: RunRecord) -> Usage:
    if "agent" not in record.meta:
        return Usage(f"run {record.run_id} is of a program, not of an agent", next=f"continue it with {record.program}")
    name = record.meta["agent"]
    return Usage(f"run {record.run_id} is one of agent {name!r}, which was not given", next="pass that agent too")
