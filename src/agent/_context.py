"""What a tool may know of the run that calls it, delivered beside its arguments so that those stay portable."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Generic, TypeVar

from attrs import frozen

from savepoint._errors import Usage

if TYPE_CHECKING:
    from savepoint._world import World

DepsT = TypeVar("DepsT")


@frozen(kw_only=True)
class Context(Generic[DepsT]):
    """A parameter annotated `Context` (or `Context[Deps]`) receives this; it is in neither schema, arguments nor key."""

    world: "World"
    """the run's own fork"""
    deps: DepsT
    """what the program gave at the start of this process; never stored"""
    run_id: str
    step: int
    """savepoints published before this call, 0-based"""
    call_id: str
    """`step.index` of the tool call"""


_CONTEXT: ContextVar[Context[object] | None] = ContextVar("agent_context", default=None)


def current_context() -> Context[object]:
    """The context of the tool call being performed. Raises `Usage` outside of one."""
    context = _CONTEXT.get()
    if context is None:
        raise Usage(
            "a tool that wants a Context was called outside of an agent's run",
            next="call it from a run, or give it one with `with in_context(Context(...)):`",
        )
    return context


@contextmanager
def in_context(context: Context[object]) -> Generator[None]:
    """Tools performed in the block, their tasks and threads included, receive `context`."""
    token = _CONTEXT.set(context)
    try:
        yield
    finally:
        _CONTEXT.reset(token)
