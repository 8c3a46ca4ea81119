"""The one fixed layer around every body, reached after every handler.

Effects know no storage: whoever runs a program with receipts (the journal) installs a layer; without one a body is
simply entered.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Protocol

from ._call import Call


class Layer(Protocol):
    """What stands between the last handler and the body."""

    async def settle(self, call: Call, body: Callable[[], Awaitable[object]]) -> object:
        """A call that reached its body: enters it, or returns or raises what is already known of it."""
        ...

    async def answer(self, call: Call, ask: Callable[[], Awaitable[object]]) -> object:
        """A call that at least one handler handles: `ask` walks the handlers (which may reach `settle`).

        An answer given without reaching any body is recorded as a READ of what was performed.
        """
        ...

    def branch(self, name: str) -> AbstractContextManager[None]:
        """The calls of the block get a parent of their own."""
        ...


LAYER: ContextVar[Layer | None] = ContextVar("effects_layer", default=None)
