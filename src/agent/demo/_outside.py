"""The outside: a process that no run owns. It takes posts on a Unix socket and keeps them in a synced ledger.

Standard library only, run as a file: it shares nothing with what it is the witness of. A post is in the ledger before
it is answered; `hold` on its input makes it stop at one place of the next connection.
"""

import asyncio
import contextlib
import json
import os
import sys
from asyncio import StreamReader, StreamWriter
from collections import Counter
from pathlib import Path

SOCKET = "outside.sock"
LEDGER = "ledger.jsonl"
GREETING = b"ready\n"
"""Sent to whoever connects. A client that dies before it has read this has sent nothing."""


class Outside:
    """One post a connection: greeting, the client's line, a line in the ledger, the answer."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._counts = Counter[str]()
        self._hold = ""

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        hold, self._hold = self._hold, ""
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            if hold == "greeting":
                await self._held(hold, reader)
                return
            writer.write(GREETING)
            line = await reader.readline()
            if not line.endswith(b"\n"):
                return
            answer = self._record(json.loads(line))
            if hold == "answer":
                await self._held(hold, reader)
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()

    async def commands(self) -> None:
        """Reads `hold greeting` and `hold answer`, each confirmed, until the input ends: so does the outside, then."""
        reader = StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            self._hold = line.decode().split()[1]
            tell(will_hold=self._hold)

    async def _held(self, place: str, reader: StreamReader) -> None:
        """Says where it stops, and goes on when the client is gone."""
        tell(held=place)
        await reader.read()

    def _record(self, post: dict[str, str]) -> dict[str, str]:
        """Counts a post of its channel; on the disk when this returns."""
        channel = post["channel"]
        self._counts[channel] += 1
        answer = {"receipt": f"report {self._counts[channel]}"}
        with self._ledger.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**post, "answer": answer}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        return answer


def tell(**event: str) -> None:
    """One event as a JSON line, for whoever started us."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def posts(ledger: Path, channel: str) -> list[dict[str, str]]:
    """The outside's own count: the answers that it has given, or had ready to give, to `channel`."""
    if not ledger.exists():
        return []
    lines = ledger.read_text(encoding="utf-8").splitlines()
    return [entry["answer"] for entry in map(json.loads, lines) if entry["channel"] == channel]


async def main() -> None:
    """Serves in the present directory: a socket's path there is short, wherever that is."""
    outside = Outside(Path(LEDGER))
    await asyncio.start_unix_server(outside.serve, SOCKET)
    tell(listening=SOCKET)
    await outside.commands()


if __name__ == "__main__":
    asyncio.run(main())
