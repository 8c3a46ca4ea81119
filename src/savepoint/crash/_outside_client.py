"""How a program under test talks to its outside: one round trip over a Unix socket, awaited or blocking."""

import asyncio
import json
import socket
from hashlib import sha256
from pathlib import Path
from typing import Any, Never

from attrs import asdict, field, frozen

from effects import NotPerformed, Performed, Unknown
from savepoint._errors import Usage

LIMIT = 1 << 24
"""Bytes of one request or answer."""


class OutsideRefused(Exception):
    """The outside refused a request: nothing was performed, for certain. No error of ours: it is the outside's word."""


def digest_of(arguments: object) -> str:
    """SHA-256 of the arguments as JSON with sorted keys, in hexadecimal."""
    return sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()


@frozen(kw_only=True)
class OutsideRequest:
    """What an outside is asked."""

    operation: str
    """`act`, `probe`, `read` or `count`"""
    place: str
    """the ledger directory"""
    tag: str = ""
    key: str = ""
    kind: str = "once"
    """the idempotency class; a `keyed` key that was acted on within the window is answered, not acted on again"""
    arguments: list[object] = field(factory=list[object])
    """anything that JSON can say"""
    digest: str = ""
    epoch: int = 0
    now_s: float = 0.0
    """the harness's clock"""
    window_s: float = 0.0
    """how long a `keyed` key is remembered"""


@frozen(kw_only=True)
class OutsideClient:
    """Asks the outside at `socket` about one ledger directory. Holds no connection: any thread and any fork may use it.

    Every call raises `ConnectionError` where the answer was lost and `TimeoutError` where it did not come in time (in
    both cases nobody knows what was performed), `OutsideRefused` where the outside refused, and `Usage` for a request
    that makes no sense.
    """

    socket: Path
    place: Path
    timeout_s: float = 30.0

    # -- awaited ----------------------------------------------------------------------------------------------------

    async def act(self, *arguments: object, tag: str, key: str, **more: Any) -> str:
        """Changes the outside; what it says of it. `more`: `kind`, `digest`, `epoch`, `now_s`, `window_s`."""
        return await self.ask(self._act(arguments, tag, key, more))

    async def probe(
        self, *arguments: object, tag: str, key: str, final: bool = False, **more: Any
    ) -> Performed[str] | NotPerformed | Unknown:
        """Asks whether the call with this key was performed. `final`: that it was not means that it never will be."""
        return _finding(await self.ask(self._request("probe", arguments, tag, key, more)), final=final)

    async def read(self, *, tag: str = "", **more: Any) -> str:
        """Observes the outside: every observation is another one."""
        return await self.ask(self._request("read", (), tag, "", more))

    async def count(self, *, tag: str = "") -> int:
        """How many acts the ledger has, of this tag or of all."""
        return await self.ask(self._request("count", (), tag, "", {}))

    async def ask(self, request: OutsideRequest) -> Any:
        """One round trip."""
        try:
            async with asyncio.timeout(self.timeout_s):
                return _understood(await self._exchanged(_line(request)))
        except FileNotFoundError as error:
            self._gone(error)

    async def _exchanged(self, line: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(self.socket, limit=LIMIT)
        try:
            writer.write(line)
            await writer.drain()
            return await reader.readline()
        finally:
            writer.close()

    # -- blocking ---------------------------------------------------------------------------------------------------

    def act_blocking(self, *arguments: object, tag: str, key: str, **more: Any) -> str:
        """`act` for a thread without an event loop, as a sync tool has."""
        return self.ask_blocking(self._act(arguments, tag, key, more))

    def ask_blocking(self, request: OutsideRequest) -> Any:
        """One round trip; `timeout_s` counts for each part of it."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(self.timeout_s)
                connection.connect(str(self.socket))
                connection.sendall(_line(request))
                with connection.makefile("rb") as answers:
                    return _understood(answers.readline(LIMIT))
        except FileNotFoundError as error:
            self._gone(error)

    # -- requests ---------------------------------------------------------------------------------------------------

    def _act(self, arguments: tuple[object, ...], tag: str, key: str, more: dict[str, Any]) -> OutsideRequest:
        return self._request("act", arguments, tag, key, more)

    def _request(
        self, operation: str, arguments: tuple[object, ...], tag: str, key: str, more: dict[str, Any]
    ) -> OutsideRequest:
        given = list(arguments)
        more.setdefault("digest", digest_of(given))
        return OutsideRequest(operation=operation, place=str(self.place), tag=tag, key=key, arguments=given, **more)

    def _gone(self, error: FileNotFoundError) -> Never:
        raise ConnectionRefusedError(f"no outside listens at {self.socket}: its `with` has ended") from error


def _line(request: OutsideRequest) -> bytes:
    return json.dumps(asdict(request)).encode() + b"\n"


def _understood(line: bytes) -> Any:
    """The answer's value. The first answer counts; a second one is never read."""
    if not line.endswith(b"\n"):
        raise ConnectionResetError("the outside closed the connection before it answered")
    answer: dict[str, Any] = json.loads(line)
    if "refused" in answer:
        raise OutsideRefused(answer["refused"])
    if "error" in answer:
        raise Usage(f"the outside: {answer['error']}", next="see `OutsideRequest` for what can be asked")
    return answer["value"]


def _finding(found: dict[str, Any], *, final: bool) -> Performed[str] | NotPerformed | Unknown:
    match found["performed"]:
        case True:
            return Performed(found["value"])
        case False:
            return NotPerformed(final=final)
        case _:
            return Unknown()
