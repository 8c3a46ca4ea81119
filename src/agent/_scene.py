"""What a run's loop works with in this process, given again on every resume and never stored."""

from contextvars import ContextVar
from typing import Any

from attrs import field, mutable

from savepoint import Cell, Log

from ._agent import Agent
from ._entries import messages
from ._message import Messages
from ._model import Model, Request, ToolSpec
from ._progress import OnEvent, ignore

TRANSCRIPT: Cell[Log[Any]] = Cell("transcript", Log, default=Log())


@mutable(kw_only=True)
class Scene:
    """One run in one process."""

    agent: Agent
    model: Model
    deps: object
    run_id: str
    on_event: OnEvent
    max_turns: int
    specs: tuple[ToolSpec, ...] = ()
    shown: Messages = field(factory=Messages)
    """the transcript as messages, as far as `seen` entries of it"""
    seen: int = 0

    @property
    def watched(self) -> bool:
        """Whether anybody listens: what is only for display is not made otherwise."""
        return self.on_event is not ignore

    def request(self, transcript: Log[Any]) -> Request:
        """What the model is asked next. Costs what the transcript gained since the last one."""
        self.shown = messages(transcript, shown=self.shown, seen=self.seen)
        self.seen = len(transcript)
        return Request(instructions=self.agent.instruct(self.deps), messages=self.shown, tools=self.specs)


SCENE: ContextVar[Scene] = ContextVar("agent_scene")
