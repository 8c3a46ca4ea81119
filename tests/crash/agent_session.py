"""The session that the crash suite's agents talk in: what was said before, and how it stands at the end."""

from pathlib import Path
from typing import Any

from agent_world import host

import agent
from agent import Agent, StoredSession
from agent._entries import paired
from agent._nested import registry_for
from agent._scripted import ScriptedModel, call, say
from savepoint._crashpoint import arm
from savepoint._run_result import find_run
from savepoint._sqlite import SqliteStore

SESSION = "u1"
EARLIER = "earlier"
"""the run that the session has when ours begins"""


async def converse(store: SqliteStore, worker: Agent, place: Path) -> None:
    """What was said before our run. No kill comes so early: a run that landed is nothing new to the session."""
    if await find_run(store, EARLIER) is not None:
        return
    hook = arm(None)
    model = ScriptedModel([call("look", what="before"), say("hello")])
    world = host(place / "files")
    await agent.run(worker, EARLIER, run_id=EARLIER, session_id=SESSION, store=store, world=world, model=model)
    arm(hook)


async def conversation(store: SqliteStore, worker: Agent) -> tuple[list[Any], list[str]]:
    """Run id and entries of each part, and what is wrong with them (law 14)."""
    session = StoredSession(store, registry_for(worker).types)
    parts = [(each.run_id, list(each.entries)) for each in await session.segments(SESSION)]
    entries = [entry for _, part in parts for entry in part]
    wrong = [f"in the session, {each}" for each in paired(entries)]
    starts = [sum(len(part) for _, part in parts[:number]) for number in range(len(parts))]
    if [(each.start, each.count) for each in await session.outline(SESSION)] != list(
        zip(starts, (len(part) for _, part in parts), strict=True)
    ):
        wrong.append("the parts of the session are not contiguous")
    if entries != list(await session.load(SESSION)):
        wrong.append("the session is not its parts, one after the other")
    wrong += [f"run {each} has not landed" for each in await session.pending_runs(SESSION)]
    return parts, wrong
