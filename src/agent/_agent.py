"""Agents: what a model is told, may call, and is held to; and the fingerprint that a savepoint keeps of it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import Factory, field, frozen

from effects import Effect
from savepoint import Registry, Resumable, Types, digest
from savepoint._errors import Usage

from ._entries import TYPES
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

    known_tools: Mapping[str, Tool[..., Any]] = field(
        init=False,
        repr=False,
        default=Factory(lambda agent: {each.name: each for each in agent.tools}, takes_self=True),
    )
    """by name"""

    def instruct(self, deps: object) -> str:
        return self.instructions if isinstance(self.instructions, str) else self.instructions(deps)

    def fingerprint(self, model: Model, deps: object) -> str:
        """What its replies depend on, as 64 hexadecimal digits: part of every savepoint's identity."""
        return digest(
            {
                "name": self.name,
                "instructions": self.instruct(deps),
                "model": model.name,
                "settings": dict(model.settings),
                "tools": [each.definition for each in self.tools],
            }
        ).hex()

    def registry(self, *resumables: Resumable[..., Any]) -> Registry:
        """What a run of this agent can be resumed with."""
        return Registry(
            [*self.resumables, *resumables],
            effects=_with_compensations((*self.tools, *self.effects)),
            types=TYPES | self.types,
        )


def _with_compensations(effects: Iterable[Effect[..., Any]]) -> list[Effect[..., Any]]:
    listed = list(effects)
    return [*listed, *(each.compensation for each in listed if each.compensation is not None)]
