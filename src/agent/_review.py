"""What is asked before a run of an agent goes on: is it this agent's, does its session stand, what changed since."""

from typing import Any, cast

from savepoint._errors import Conflict, Usage
from savepoint._form import Savepoint
from savepoint._resumable import Bound
from savepoint._review import Review, Reviewed
from savepoint._run import Recovery, RunRecord

from ._definition import changes_since
from ._held import Held, Wanted, held_by, widened
from ._link import Link, stake_of
from ._loop import take_turns
from ._scene import Scene

NOTHING = Wanted()


def reviewing(
    scene: Scene,
    *,
    wanted: Wanted = NOTHING,
    link: Link | None = None,
    strict: bool | None = None,
    outer: Held | None = None,
) -> Review:
    """The review that sets `scene` as the record and the savepoint say, with what is `wanted` now.

    `outer`: what the run that this one is nested in is held to now. `strict`: a changed agent is refused; None: where
    the run itself is strict.
    """

    async def review(record: RunRecord, savepoint: Savepoint) -> Reviewed:
        must_be_of(record, scene)
        before = held_by(record, scene.graph)
        scene.held = before.changed(wanted, scene.graph) if outer is None else before.within(outer)
        scene.max_turns = scene.held.max_turns
        stake = stake_of(record)
        if stake is not None and link is not None:
            await link.must_stand(record.run_id, stake)
        changes = await _set(scene, savepoint.resume)
        refuses = record.recovery is Recovery.STRICT if strict is None else strict
        if changes and refuses:
            raise Conflict(
                f"run {record.run_id} is strict, and {changes}",
                next="bring the former one back, or resume it with strict=False",
            )
        return Reviewed(warnings=(changes,) if changes else (), meta=widened(record, before, scene.held))

    return review


def must_be_of(record: RunRecord, scene: Scene) -> None:
    """Raises `Usage` for a run of another entry agent."""
    name = record.meta.get("agent")
    if name != scene.graph.entry.name:
        raise Usage(
            f"run {record.run_id} is one of agent {name!r}, not of {scene.graph.entry.name!r}",
            next="pass the agent that it started with",
        )


async def _set(scene: Scene, resume: Bound) -> str:
    """Puts the agent of a savepoint on the scene; says what changed in it since, or nothing. Raises `Usage`."""
    if resume.resumable is not take_turns:
        return ""
    arguments = cast("dict[str, Any]", resume.arguments)
    name: str = arguments["agent"]
    if target := arguments.get("handoff"):
        scene.graph.agent(target, "a pending handoff")
    scene.activate(name)
    if scene.definition is None or scene.fingerprint == arguments["fingerprint"]:
        return ""
    found = await changes_since(scene.store, arguments["fingerprint"], scene.definition.value)
    return f"agent {name} changed since the savepoint: {'; '.join(found)}" if found else ""
