"""A task of the agents that the crash suite kills, and the agent that is made of it."""

from collections.abc import Callable, Mapping
from typing import Any

import outside
from agents import EFFECTS, TOOLS, Setting, inside
from attrs import evolve, field, frozen

from agent import Agent, Tool, as_tool
from agent._model import Request
from agent._scripted import Script, ScriptedModel


@frozen(kw_only=True)
class Task:
    """One script of a model, and what may be asked of its run."""

    turns: Script
    approval: str = "approve"
    """the truth about approvals"""
    handled: bool = False
    """a handler stands around the run and forwards every post"""
    no_questions: bool = False
    loses_world: bool = False
    """a question about a call that writes the world, answered `performed`, loses what it wrote"""
    fresh: bool = False
    """observations differ from run to run, so identities do"""
    max_turns: int = 50
    session: bool = False
    """the run continues a conversation that has one already"""
    partner: str = ""
    """an agent that the entry hands over to and that hands back; whoever is on plays the next turn"""
    helpers: "Mapping[str, Task]" = field(factory=dict[str, "Task"])
    """agents that are tools of this one, by name"""
    strict: bool = False
    """a ONCE call after the savepoint is asked about although it was performed"""
    interrupted: bool = False
    """the first process ends before the run does"""


def first_said(request: Request) -> str:
    """What the run was asked."""
    said: Any = request.messages[request.history]
    return said.content


class Counted(ScriptedModel):
    """A model whose every question is written down outside: the reply, and who is said to give it, unless the entry."""

    async def reply(self, request: Request, *, on_text: Callable[[str], None] | None = None) -> Any:
        reply, who = f"{inside(first_said(request))}{request.turn}", request.instructions
        outside._append("asked", f"{reply} {who}" if who else int(reply) if reply.isdigit() else reply)
        return await super().reply(request, on_text=on_text)


def agent_for(task: Task, name: str = "crash", *, tools: tuple[Tool[..., Any], ...] = TOOLS) -> Agent:
    """The agent of a task, with those that it hands over to and those that are its tools."""
    helpers = (as_tool(agent_for(each, name, tools=tools)) for name, each in task.helpers.items())
    alone = Agent(
        name=name,
        model=Counted(task.turns),
        tools=(*tools, *helpers),
        effects=EFFECTS,
        max_turns=task.max_turns,
    )
    if not task.partner:
        return alone

    def told(_: object) -> str:
        if Setting.away:
            raise LookupError(f"{task.partner} is away")
        return task.partner

    return evolve(alone, handoffs=(evolve(alone, name=task.partner, instructions=told, handoffs=(name,)),))
