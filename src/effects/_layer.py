"""The one fixed layer around every body, reached after every handler.

Effects know no storage: whoever runs a program with receipts (the journal) installs a layer; without one a body is
simply entered. How a performed call meets it (a `PURE` one never does):

* no handler handles it: `settle(call, body)`;
* a handler does: `answer(call, ask)` once, whatever happens inside; each pass that a handler forwards to the body is a
  `settle` within it, with the arguments of that pass.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Protocol

from ._call import Call


class Layer(Protocol):
    """What stands between the last handler and the body."""

    async def settle(self, call: Call, body: Callable[[], Awaitable[object]]) -> object:
        """A call that reached its body: enters it, or returns or raises what is already known of it.

        `body` enters the real implementation under the handlers of the perform point; it may run in another task.
        """
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


def branch(name: str) -> AbstractContextManager[None]:
    """Gives the calls of the block a parent of their own, so that concurrent branches of a body stay apart.

    The same program must use the same names again; without a layer it does nothing.
    """
    layer = LAYER.get()
    return nullcontext() if layer is None else layer.branch(name)
