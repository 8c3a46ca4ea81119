"""A child of `test_world_evidence.py`: an agent whose undeclared tool acts outside and writes its workspace."""

import asyncio
import json
import sys
from pathlib import Path

from agent import Agent, Context, decide, resume, run, tool
from agent._entries import render
from agent.testing import ScriptedModel, call, say
from savepoint import Workspace, World, open_store
from savepoint._run_result import get_run
from savepoint.testing import kill_from_environment

PLACE = Path(sys.argv[1])


@tool
async def publish(context: Context[None], text: str) -> str:
    """Posts `text` and notes that it did."""
    root = context.world.system("files").path  # type: ignore[attr-defined]
    with (PLACE / "ledger").open("a") as ledger:
        ledger.write(f"{text}\n")
    (root / "posted.txt").write_text(text)
    (root / "old.txt").unlink()
    return f"posted {text}"


AGENT = Agent(
    name="publisher",
    tools=(publish,),
    model=ScriptedModel([call("publish", text="news"), say("done")]),
    systems=("files",),
)


async def main(verdict: str) -> dict[str, object]:
    world = World({"files": Workspace(PLACE / "host")})
    async with open_store(PLACE / "store") as store:
        if verdict == "run":
            result = await run(AGENT, "go", run_id="r", store=store, world=world)
        else:
            if verdict != "resume":
                waiting = await resume("r", agent=AGENT, store=store, world=world)
                (question,) = waiting.questions
                value = "posted news" if verdict == "performed" else None
                await decide("r", question.id, verdict, value=value, store=store)
            result = await resume("r", agent=AGENT, store=store, world=world)
        record = await get_run(store, "r")
        return {
            "status": result.status,
            "evidence": [each.evidence.get("world") for each in result.questions],
            "transcript": [repr(each) if not isinstance(each, str) else each for each in result.transcript],
            "told": [render(each, 500) for each in result.transcript if type(each).__name__ == "Lost"],
            "final": None if record.final is None else record.final.hex(),
            "forks": sorted(path.name for path in store.forks.iterdir()),
        }


kill_from_environment()
print(json.dumps(asyncio.run(main(sys.argv[2]))))
