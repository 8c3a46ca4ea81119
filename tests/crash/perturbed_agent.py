"""The processes of an agent whose model asks for almost the same in another process: its script is told to each."""

import tempfile
from typing import Any

import agent_rig
import agents
import outside
from agent_task import Task
from agent_tasks import TASKS
from agents import began, in_turn
from rig import Json

from agent import Context, tool
from agent._scripted import Turn, call, calls, say
from effects import Idempotency

SCRIPT = "perturbed"


@tool(idempotency=Idempotency.ONCE)
async def ticket(what: str, count: int = 1) -> str:
    began()
    await in_turn()
    return outside.act(what, count)


@tool(idempotency=Idempotency.CONTAINED)
async def mood(context: Context[Any], what: str) -> str:
    """Changes the world, and answers what its process was told to."""
    began()
    state: Any = context.world.system("kv")
    state["mood"] = what
    return Mood.said


class Mood:
    """What the rig says of this process."""

    said = "fine"


agents.TOOLS = (*agents.TOOLS, ticket, mood)
TOOLS: tuple[Any, ...] = agents.TOOLS


def live(request: Json) -> Json:
    """As `agent_rig.live`, with `script`: per turn its calls, each a tool, the arguments' text and an id; none: done."""
    assert isinstance(TASKS, dict)
    Mood.said = request.get("mood", "fine")
    TASKS[SCRIPT] = Task(turns=[_turn(each) for each in request["script"]])
    # Every process names its tools' versions, so that all have these tools and none else.
    return agent_rig.live({"changed": {"ticket": {}}, **request, "scenario": SCRIPT})


def _turn(wanted: list[list[str]]) -> Turn:
    return calls(*(call(name, _raw=text, _id=id_ or None) for name, text, id_ in wanted)) if wanted else say("done")


def warm_up() -> None:
    with tempfile.TemporaryDirectory() as place:
        live({"place": place, "first": True, "script": [[["ticket", '{"what": "x"}', ""]], []]})
