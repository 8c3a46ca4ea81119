"""Handoffs: a transfer is a tool that only the loop performs, and its outcome follows from the reply alone."""

import re
from collections.abc import Iterable, Mapping

from attrs import frozen

from effects._failure import Failure

from ._agent import Agent
from ._entries import Reply
from ._model import ToolSpec

_LONGEST = 52
"""Characters of an agent's name in its tool's, whose names have 64 at most."""


def transfer_name(agent: str) -> str:
    """The name of the tool that hands over to the agent of this name."""
    return f"transfer_to_{re.sub('[^A-Za-z0-9_-]', '_', agent)[:_LONGEST]}"


def transfer_spec(agent: Agent) -> ToolSpec:
    """What a model is told of it."""
    told = f"Hands the conversation over to {agent.name}, who answers from then on. {agent.description}".rstrip()
    return ToolSpec(name=transfer_name(agent.name), description=told, parameters={"type": "object", "properties": {}})


def transfers(agents: Iterable[Agent]) -> Mapping[str, str]:
    """Tool name -> name of the agent that it hands over to."""
    return {transfer_name(each.name): each.name for each in agents}


@frozen(kw_only=True)
class Fired:
    """The transfers of one reply: the first one counts, whatever runs beside it."""

    known: Mapping[str, str]
    """tool name -> agent"""
    index: int = -1
    """of the call that counts; -1: there is none"""
    target: str = ""

    def outcome(self, index: int, tool: str) -> object:
        """What the model is told of the transfer that is call `index` of the reply."""
        if index == self.index:
            return f"The conversation is handed over to {self.target}."
        return Failure(
            kind="TransferIgnored",
            message=f"{self.known[tool]} was not asked: this reply hands over to {self.target} already",
        )


def fired(reply: Reply, known: Mapping[str, str]) -> Fired:
    """The transfer that a reply makes. Depends on nothing else, so every attempt finds the same one."""
    for index, call in enumerate(reply.calls):
        if call.tool in known:
            return Fired(known=known, index=index, target=known[call.tool])
    return Fired(known=known)
