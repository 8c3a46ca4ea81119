"""What a run's loop works with in this process, given again on every resume and never stored."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from attrs import field, mutable

from effects._layer import LAYER
from savepoint import Cell, Log
from savepoint._codec import Encoded
from savepoint._errors import Usage
from savepoint._journal import Journal
from savepoint._store import Store

from ._agent import Agent
from ._entries import messages
from ._graph import Graph
from ._handoff import transfer_spec, transfers
from ._held import Held
from ._message import Messages
from ._model import Model, Request, ToolSpec
from ._progress import OnEvent, ignore

TRANSCRIPT: Cell[Log[Any]] = Cell("transcript", Log, default=Log())


@mutable(kw_only=True)
class Scene:
    """One run in one process. `activate` puts an agent on it."""

    graph: Graph
    given: Model | None
    """the model for all agents; None: each has its own, or the entry's"""
    fallback: Model | None = None
    """for an agent without a model whose entry has none either: that of the run that this one is nested in"""
    store: Store
    deps: object
    on_event: OnEvent
    held: Held
    run_id: str = ""
    max_turns: int = 0
    """what is held, and what was granted since"""
    history: int = 0
    """entries of the transcript that come from earlier runs of the session"""
    agent: Agent = field(init=False)
    model: Model = field(init=False)
    definition: Encoded | None = field(init=False, default=None)
    """of the agent on it"""
    specs: tuple[ToolSpec, ...] = field(init=False, default=())
    known_transfers: Mapping[str, str] = field(init=False, factory=dict[str, str])
    shown: Messages = field(factory=Messages, init=False)
    """the transcript as messages, as far as `seen` entries of it"""
    seen: int = field(default=0, init=False)

    @property
    def watched(self) -> bool:
        """Whether anybody listens: what is only for display is not made otherwise."""
        return self.on_event is not ignore

    @property
    def fingerprint(self) -> str:
        """Of the agent on it, as 64 hexadecimal digits."""
        return "" if self.definition is None else self.definition.digest.hex()

    def model_of(self, agent: Agent) -> Model:
        """Raises `Usage` where it has none."""
        model = self.given or agent.model or self.graph.entry.model or self.fallback
        if model is None:
            raise Usage(
                f"agent {agent.name} has no model",
                next="give it one (Agent(model=...)), or pass model= (openai:NAME, ...)",
            )
        return model

    def activate(self, name: str) -> None:
        """Puts the agent of this name on the scene. Raises `Usage`, and what its instructions raise; then it is not."""
        agent = self.graph.agent(name)
        model = self.model_of(agent)
        self.definition = agent.definition(model, self.deps, self.held.plain)
        self.agent, self.model = agent, model
        targets = self.graph.handoffs(agent)
        self.known_transfers = transfers(targets)
        self.specs = (
            *(each.spec for each in agent.tools if self.held.allows(each.name)),
            *(transfer_spec(each) for each in targets),
        )

    def is_on(self, name: str) -> bool:
        return self.definition is not None and self.agent.name == name

    def keep_definition(self) -> None:
        """The next commit holds the definition of the agent on the scene, so that a resume can say what changed."""
        layer, definition = LAYER.get(), self.definition
        if isinstance(layer, Journal) and definition is not None:
            layer.writer.add(lambda tx, _: tx.put(definition.digest, definition.body))

    def request(self, transcript: Log[Any]) -> Request:
        """What the model is asked next. Costs what the transcript gained since the last one."""
        self.shown = messages(transcript, shown=self.shown, seen=self.seen)
        self.seen = len(transcript)
        return Request(
            instructions=self.agent.instruct(self.deps),
            messages=self.shown,
            tools=self.specs,
            history=self.history,  # an entry is a message, one for one
        )


SCENE: ContextVar[Scene] = ContextVar("agent_scene")


class on_stage:  # noqa: N801  reads as the verb of a `with`
    """The scene of the block."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def __enter__(self) -> None:
        self._token = SCENE.set(self._scene)

    def __exit__(self, *_: object) -> None:
        SCENE.reset(self._token)
