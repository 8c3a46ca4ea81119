"""Where tool results go that a transcript keeps the beginning of only, and the tool that brings them back."""

from typing import Protocol

from effects._idempotency import Idempotency
from savepoint._digest import SIZE
from savepoint._errors import Missing, Usage
from savepoint._portable import encode
from savepoint._resumable import OURS
from savepoint._store import Store
from savepoint._stored import get_value, put_value
from savepoint._types import Types

from ._entries import TYPES
from ._render import whole_text
from ._tool import Tool, tool


class ResultStore(Protocol):
    """An archive of outcomes."""

    async def save(self, outcome: object) -> str:
        """Durable when it returns. The reference is printable text that a model can repeat."""
        ...

    async def load(self, ref: str) -> object:
        """Raises `Usage` for what is no reference, `Missing` where nothing is archived under it."""
        ...


class StoredResults:
    """Results in a store, by the digest of their content: what is saved twice is kept once."""

    def __init__(self, store: Store, types: Types = TYPES) -> None:
        self._store = store
        self._types = types | OURS

    async def save(self, outcome: object) -> str:
        """Raises `NotPortable`."""
        encoded = encode(outcome, "outcome")
        async with self._store.commit() as tx:
            durable = put_value(tx, encoded, self._store)
        durable()
        return encoded.digest.hex()

    async def load(self, ref: str) -> object:
        """Raises `Usage`, `Missing`, `Corrupt`, `Foreign`, `Newer`."""
        name = _name(ref)
        try:
            return await get_value(self._store, name, self._types)
        except Missing as error:
            raise Missing(f"no result is archived as {ref}: {error.message}", next=error.next) from None


def _name(ref: str) -> bytes:
    try:
        name = bytes.fromhex(ref)
    except (TypeError, ValueError):
        name = b""
    if len(name) != SIZE or name.hex() != ref:
        raise Usage(
            f"{str(ref)[:80]!r} is not the ref of a result",
            next=f"pass the {2 * SIZE} hexadecimal digits that the line about the cut shows",
        )
    return name


def recall_tool_result(results: ResultStore) -> Tool[[str], str]:
    """A tool that gives a model the whole text of a result that `trim_tool_results` cut short and archived."""

    @tool(name="recall_tool_result", idempotency=Idempotency.READ)
    async def recall(ref: str) -> str:
        """The whole text of a tool result that was cut short. `ref` stands in the line that says so."""
        return whole_text(await results.load(ref))

    return recall
