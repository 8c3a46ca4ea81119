"""An agent as a tool of another one, as the graph sees it; what happens when it is called is `_nested.py`'s."""

from typing import ParamSpec, TypeVar

from attrs import define, setters

from ._agent import Agent
from ._tool import Tool

P = ParamSpec("P")
R = TypeVar("R")


@define(eq=False, repr=False, kw_only=True, slots=False, on_setattr=setters.frozen)
class AgentTool(Tool[P, R]):
    """A tool whose body is a run of `agent`; made by `as_tool`."""

    agent: Agent
