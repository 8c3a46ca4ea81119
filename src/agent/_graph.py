"""The agents of a run: those that the entry agent reaches, by name. Names are all that a savepoint and a receipt keep."""

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen

from effects import Effect, Idempotency
from savepoint import Registry, Resumable, Types
from savepoint._errors import Usage

from ._agent import Agent
from ._agent_tool import AgentTool
from ._entries import TYPES
from ._handoff import transfer_name
from ._tool import Tool


@frozen(kw_only=True, eq=False)
class Graph:
    """An entry agent and all that it reaches through handoffs and agents used as tools; made by `graph_of`."""

    entry: Agent
    agents: Mapping[str, Agent]
    """by name, the entry first"""

    def agent(self, name: str, whose: str = "the savepoint") -> Agent:
        """Raises `Usage` that names the known ones."""
        found = self.agents.get(name)
        if found is None:
            known = ", ".join(self.agents)
            raise Usage(
                f"{whose} names the agent {name!r}, which {self.entry.name!r} does not reach (it reaches: {known})",
                next="give the agent its name back, or the graph the agent, and resume; or fork the run before it",
            )
        return found

    def handoffs(self, agent: Agent) -> tuple[Agent, ...]:
        """Whom `agent` can hand over to, in its order."""
        return tuple(self.agents[each if isinstance(each, str) else each.name] for each in agent.handoffs)

    @property
    def tools(self) -> Mapping[str, Tool[..., Any]]:
        """Every tool of every agent, by name."""
        return {each.name: each for agent in self.agents.values() for each in agent.tools}

    @property
    def systems(self) -> Mapping[str, str]:
        """The systems of the world that some tool needs -> the agent that says so."""
        return {name: agent.name for agent in self.agents.values() for name in agent.systems}

    @property
    def types(self) -> Types:
        types = TYPES
        for agent in self.agents.values():
            types |= agent.types
        return types

    def registry(
        self,
        *resumables: Resumable[..., Any],
        effects: Iterable[Effect[..., Any]] = (),
        classes: Mapping[str, Idempotency],
    ) -> Registry:
        """What a run of these agents can be resumed with."""
        named = {each.name: each for each in effects}
        for agent in self.agents.values():
            named |= {each.name: each for each in (*agent.tools, *agent.effects)}
        own = {each.name: each for agent in self.agents.values() for each in agent.resumables}
        return Registry(
            [*own.values(), *resumables],
            effects=_with_compensations(named.values()),
            types=self.types,
            classes=classes,
        )


def graph_of(entry: Agent) -> Graph:
    """Raises `Usage` for two agents, or two different tools or effects, of one name, and for a handoff to nobody."""
    agents: dict[str, Agent] = {}
    left = [entry]
    while left:
        agent = left.pop(0)
        known = agents.setdefault(agent.name, agent)
        if known is not agent:
            raise Usage(
                f"two agents are named {agent.name!r}",
                next="give each its own name: it is all that a savepoint keeps of the agent",
            )
        left += [each for each in _neighbours(agent) if agents.get(each.name) is not each]
    graph = Graph(entry=entry, agents=agents)
    _check_effects(agents.values())
    for agent in agents.values():
        _check_handoffs(graph, agent)
        for each in _inside(agent):
            graph_of(each)  # it is the entry of its own run, whose handoffs reach nobody outside of it
    return graph


def _neighbours(agent: Agent) -> list[Agent]:
    return [*(each for each in agent.handoffs if isinstance(each, Agent)), *_inside(agent)]


def _inside(agent: Agent) -> list[Agent]:
    return [each.agent for each in (*agent.tools, *agent.effects) if isinstance(each, AgentTool)]


def _check_effects(agents: Iterable[Agent]) -> None:
    known: dict[str, tuple[Effect[..., Any], str]] = {}
    for agent in agents:
        for each in (*agent.tools, *agent.effects):
            other, owner = known.setdefault(each.name, (each, agent.name))
            if other is not each and not _alike(other, each):
                raise Usage(
                    f"two different effects are named {each.name!r}, of the agents {owner!r} and {agent.name!r}",
                    next="give each its own name: it is all that a receipt keeps of the call",
                )


def _alike(one: Effect[..., Any], other: Effect[..., Any]) -> bool:
    """Whether both are the same agent as a tool, made twice."""
    return isinstance(one, AgentTool) and isinstance(other, AgentTool) and one.agent is other.agent


def _check_handoffs(graph: Graph, agent: Agent) -> None:
    taken = {each.name: f"the tool {each.name!r}" for each in agent.tools}
    for each in agent.handoffs:
        name = each if isinstance(each, str) else each.name
        graph.agent(name, f"a handoff of {agent.name!r}")
        if name == agent.name:
            raise Usage(f"the agent {name!r} hands over to itself", next="leave it out of its handoffs")
        tool = transfer_name(name)
        if tool in taken:
            raise Usage(
                f"the handoff of {agent.name!r} to {name!r} is called {tool!r}, like {taken[tool]}",
                next="rename one of them",
            )
        taken[tool] = f"the handoff to {name!r}"


def _with_compensations(effects: Iterable[Effect[..., Any]]) -> list[Effect[..., Any]]:
    listed = list(effects)
    return [*listed, *(each.compensation for each in listed if each.compensation is not None)]
