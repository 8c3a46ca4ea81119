"""Agents: what a model is told, may call, and is held to; and the fingerprint that a savepoint keeps of it."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from attrs import Factory, field, frozen

from effects import Effect
from savepoint import Resumable, Types
from savepoint._codec import Encoded, encode
from savepoint._errors import Usage

from ._model import Model
from ._tool import Tool

Instructions = str | Callable[[Any], str]


def _tools(given: Iterable[Tool[..., Any]]) -> tuple[Tool[..., Any], ...]:
    tools = tuple(given)
    names = [each.name for each in tools]
    for name in names:
        if names.count(name) > 1:
            raise Usage(f"two tools are named {name!r}", next="give one of them another name: @tool(name=...)")
    return tools


@frozen(kw_only=True, eq=False)
class Agent:
    """A model with instructions and tools. A value: nothing of a run lives here.

    Raises `Usage` for two tools of one name.
    """

    name: str
    instructions: Instructions = ""
    """text, or a function of `deps` that gives it"""
    model: Model | None = None
    """None: the one given to `run`"""
    tools: tuple[Tool[..., Any], ...] = field(default=(), converter=_tools)
    max_turns: int = 50
    """model replies of a run, over all its attempts; reaching it asks for more (`budget`)"""
    systems: tuple[str, ...] = ()
    """names of the world's systems that its tools need; a run without them is refused"""
    effects: tuple[Effect[..., Any], ...] = ()
    """effects that the tools' bodies perform: needed for their probes and compensations after a crash"""
    resumables: tuple[Resumable[..., Any], ...] = ()
    types: Types = field(factory=Types)
    """portable classes that tools take or return"""
    description: str = ""
    """what other agents' models are told of it, where it is one of their handoffs or tools"""
    handoffs: tuple["Agent | str", ...] = field(default=(), converter=tuple["Agent | str", ...])
    """agents that the conversation can be handed over to; a name means the agent of that name in the entry agent's
    graph, which is how two agents name each other
    """

    known_tools: Mapping[str, Tool[..., Any]] = field(
        init=False,
        repr=False,
        default=Factory(lambda agent: {each.name: each for each in agent.tools}, takes_self=True),
    )
    """by name"""

    def instruct(self, deps: object) -> str:
        return self.instructions if isinstance(self.instructions, str) else self.instructions(deps)

    def definition(self, model: Model, deps: object, held: Mapping[str, object] = MappingProxyType({})) -> Encoded:
        """What its replies depend on; its digest is part of every savepoint's identity.

        `held` is what the run is held to. What an agent does not have is left out, so that a later version of this
        program, with more that an agent can have, finds the same digest.
        """
        names = [each if isinstance(each, str) else each.name for each in self.handoffs]
        return encode(
            {
                "name": self.name,
                "instructions": self.instruct(deps),
                "model": model.name,
                "settings": dict(model.settings),
                "tools": [each.definition for each in self.tools],
                **({"handoffs": names} if names else {}),
                **({"held": dict(held)} if held else {}),
            }
        )
