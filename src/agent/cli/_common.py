"""What every command takes, and the store that it works on."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated

from attrs import field, frozen
from cyclopts import Parameter

from savepoint import open_store
from savepoint._place import find_place
from savepoint._sqlite import SqliteStore

from ._output import Output
from ._report import Report


@Parameter(name="*")
@frozen(kw_only=True)
class Common:
    """The options of all commands."""

    store: Annotated[
        Path | None, Parameter(help="The store's directory (default: .savepoint/ here, above, or in the project).")
    ] = None
    json: Annotated[bool, Parameter(negative="", help="JSON alone on stdout; messages go to stderr.")] = False
    debug: Annotated[bool, Parameter(negative="", help="Show the traceback of an unexpected error.")] = False


VOICE: ContextVar[Output] = ContextVar("cli_voice")
"""This command's, set where its words are parsed."""


@frozen(kw_only=True)
class Desk:
    """One command at work: its options, its voice."""

    common: Common
    output: Output = field(factory=VOICE.get)

    @property
    def report(self) -> Report:
        return Report(output=self.output, store=self.common.store)

    @property
    def place(self) -> Path:
        return find_place(Path.cwd()) if self.common.store is None else self.common.store.absolute()

    @asynccontextmanager
    async def opened(self, *, create: bool = False, read_only: bool = False) -> AsyncGenerator[SqliteStore]:
        """The store, announced. Only `create` ever makes one. Raises what `open_store` raises."""
        place = self.place
        self.output.note(f"store {place}")
        async with open_store(place, create=create, read_only=read_only) as store:
            yield store
