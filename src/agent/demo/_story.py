"""One run of the demo from its start to its end: killed inside its post or not, asked about, decided, finished."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import field, frozen, mutable

from agent._decide import decide
from savepoint import open_store

from ._actor import STORE
from ._agent import demo_agent
from ._child import Child, actor, child
from ._outside import LEDGER, posts
from ._screen import Screen

Fields = dict[str, Any]


@frozen(kw_only=True)
class Plan:
    """What happens to a run. The verdict is what a person finds who looks into the outside's ledger."""

    run_id: str
    title: str
    kill_at: str = ""
    """where the outside stops when the run is killed: `greeting` or `answer`; empty: it is not killed"""
    verdict: str = ""


PLANS = (
    Plan(run_id="unkilled", title="nobody interferes"),
    Plan(run_id="killed-before", title="killed before the outside has the post", kill_at="greeting", verdict="redo"),
    Plan(run_id="killed-after", title="killed after the outside has the post", kill_at="answer", verdict="performed"),
)


@mutable(kw_only=True)
class Story:
    """What came of a plan so far."""

    plan: Plan
    kills: int = 0
    questions: list[Fields] = field(factory=list[Fields])
    decisions: list[Fields] = field(factory=list[Fields])


@frozen(kw_only=True)
class Stage:
    """Where stories are played."""

    place: Path
    outside: Child
    screen: Screen
    tests: str

    def act(self, verb: str, run_id: str) -> Any:
        return child(actor(verb, run_id, self.tests), self.place)


async def play(stage: Stage, plan: Plan) -> Story:
    """Raises `Staging` where a process of the demo does not do its part."""
    story = Story(plan=plan)
    stage.screen.begin(plan.run_id, plan.title)
    if plan.kill_at:
        await _killed(stage, story)
        stage.screen.note("resume, in a new process")
        waiting = await _attempt(stage, story, "resume")
        for question in waiting.get("questions", []):
            await _decided(stage, story, question)
        stage.screen.note("resume, in a new process")
        await _attempt(stage, story, "resume")
    else:
        await _attempt(stage, story, "run")
    stage.screen.counted(len(_posts(stage, plan.run_id)))
    return story


async def _attempt(stage: Stage, story: Story, verb: str) -> Fields:
    """A process that runs or resumes the run to where it can get. Returns the result that it told."""
    async with stage.act(verb, story.plan.run_id) as running:
        last = await _watched(running, stage.screen.show)
        await running.ended()
        if last.get("event") != "Result":
            raise running.failed(f"{verb} {story.plan.run_id} ended without a result")
    return last


async def _killed(stage: Stage, story: Story) -> None:
    """Starts the run, and kills its process where the outside holds it inside the post."""
    plan = story.plan
    stage.outside.order(f"hold {plan.kill_at}")
    await stage.outside.event("will_hold")
    async with stage.act("run", plan.run_id) as running:
        watching = asyncio.create_task(_watched(running, stage.screen.show))
        held = asyncio.create_task(stage.outside.event("held"))
        try:
            await asyncio.wait([watching, held], return_when=asyncio.FIRST_COMPLETED)
            if not held.done():
                raise running.failed(f"{plan.run_id} ended before its post")
            await held
            await running.kill()
            await watching  # what it told before it died
        finally:
            held.cancel()
            watching.cancel()
    story.kills += 1
    stage.screen.killed("post_report", len(_posts(stage, plan.run_id)))


async def _watched(running: Child, show: Callable[[Fields], None]) -> Fields:
    """Shows what a process tells until it ends; returns the last of it."""
    last: Fields = {}
    async for last in running.events():
        show(last)
    return last


async def _decided(stage: Stage, story: Story, question: Fields) -> None:
    """Answers with the truth, which is in the outside's ledger."""
    run_id, verdict, found = story.plan.run_id, story.plan.verdict, _posts(stage, story.plan.run_id)
    value = found[0] if verdict == "performed" and found else None
    story.questions.append({"run_id": run_id, **question})
    stage.screen.question(run_id, question, verdict, value, len(found))
    async with open_store(stage.place / STORE, create=False) as store:
        decision = await decide(
            run_id,
            question["id"],
            verdict,
            value=value,
            note=f"the outside's ledger has {len(found)} posts of this run",
            store=store,
            agent=demo_agent(stage.tests),
        )
    story.decisions.append(
        {
            "run_id": run_id,
            "question": question["id"],
            "verdict": decision.choice,
            "value": decision.value,
        }
    )


def _posts(stage: Stage, run_id: str) -> list[dict[str, str]]:
    return posts(stage.place / LEDGER, run_id)
