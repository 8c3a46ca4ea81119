"""The process of an outside: it appends what it received, syncs, then answers; or does what the plan says instead.

`python -m savepoint.crash._outside_server FD`: the listening socket is handed over. A keeper forks the one that serves
and puts another one in its place when that was killed; what it knew is in the ledger directories, all of it. Both end
when standard input does, which is when whoever started them closes it or dies.
"""

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Never

from attrs import asdict, frozen

from savepoint._errors import SavepointError

from ._outside_client import LIMIT, OutsideRequest
from ._outside_fault import OPERATIONS, OutsideFault, OutsidePlan
from ._outside_ledger import HELD, LEDGER, RECEIVED, Act, Received, append, append_bytes, ledger, mend, received

Answer = Mapping[str, object]
BEFORE = frozenset({OutsideFault.LOST, OutsideFault.REFUSED, OutsideFault.DIES_BEFORE})
"""Faults of requests that are not performed."""


def main() -> None:
    """Keeps one process serving."""
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        while True:
            serving = os.fork()
            if serving == 0:
                _serve(listening)
            _, status = os.waitpid(serving, 0)
            code = os.waitstatus_to_exitcode(status)
            if code != -signal.SIGKILL or _abandoned():
                _clear(Path(listening.getsockname()))
                sys.exit(max(code, 0))


def _clear(path: Path) -> None:
    """Who started this may be dead, and can then not remove the socket."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        path.parent.rmdir()


def _abandoned() -> bool:
    """Nothing is ever written to standard input: what can be read there is its end."""
    return bool(select.select([0], [], [], 0)[0])


def _serve(listening: socket.socket) -> Never:
    asyncio.run(_serving(listening))
    os._exit(0)


async def _serving(listening: socket.socket) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, ended.set)
    # Connections that are still open end with the process: an answer that is held is never given then.
    await asyncio.start_unix_server(_connected, sock=listening, limit=LIMIT)
    await ended.wait()
    os._exit(0)


async def _connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request. A caller that is gone is no error: what it asked for is done."""
    try:
        if line := await reader.readline():
            await _answered(line, reader, writer)
    except (ConnectionError, ValueError):
        pass
    finally:
        writer.close()


async def _answered(line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        # Nothing is awaited in there: requests are performed one after the other, however many callers there are.
        performed = perform(line)
    except (SavepointError, TypeError, ValueError, OSError) as error:
        writer.write(_line({"error": f"{type(error).__name__}: {error}"}))
        return
    match performed.fault:
        case OutsideFault.DROPPED | OutsideFault.LOST:
            return
        case OutsideFault.SLOW:
            await asyncio.sleep(performed.delay_s)
        case OutsideFault.HELD:
            append(performed.place / HELD, {"number": performed.number})
            await reader.read()
        case OutsideFault.TWICE:
            writer.write(_line(performed.answer))
        case _:
            pass
    writer.write(_line(performed.answer))
    await writer.drain()


def _line(answer: Answer) -> bytes:
    return json.dumps(answer).encode() + b"\n"


@frozen(kw_only=True)
class _Performed:
    place: Path
    number: int
    answer: Answer
    fault: OutsideFault | None
    delay_s: float


def perform(line: bytes) -> _Performed:
    """Notes a request and does what it asks for; all of it lasts when this returns. Some faults never return."""
    request = OutsideRequest(**json.loads(line))
    if request.operation not in OPERATIONS:
        raise ValueError(f"{request.operation!r} is none of {', '.join(OPERATIONS)}")
    place = Path(request.place)
    place.mkdir(parents=True, exist_ok=True)
    mend(place)
    plan, noted = _note(place, request)
    fault = None if noted.fault is None else OutsideFault(noted.fault)
    if fault is OutsideFault.DIES_BEFORE:
        _die()
    answer = {} if fault in BEFORE else {"value": _done(place, request, fault)}
    if fault is OutsideFault.DIES_AFTER:
        _die()
    if fault is OutsideFault.REFUSED:
        answer = {"refused": f"the outside refuses {request.operation} {request.tag}"}
    return _Performed(place=place, number=noted.number, answer=answer, fault=fault, delay_s=plan.delay_s)


def _note(place: Path, request: OutsideRequest) -> tuple[OutsidePlan, Received]:
    plan, past = OutsidePlan.read(place), received(place)
    nth = sum((each.operation, each.tag) == (request.operation, request.tag) for each in past) + 1
    number = len(past) + 1
    noted = Received(
        number=number,
        operation=request.operation,
        kind=request.kind,
        tag=request.tag,
        key=request.key,
        digest=request.digest,
        epoch=request.epoch,
        fault=plan.fault(number=number, operation=request.operation, tag=request.tag, nth=nth),
    )
    append(place / RECEIVED, asdict(noted))
    return plan, noted


def _done(place: Path, request: OutsideRequest, fault: OutsideFault | None) -> object:
    match request.operation:
        case "act":
            return _acted(place, request, tear=fault is OutsideFault.DIES_APPENDING)
        case "probe":
            return _probed(place, request, fault)
        case "read":
            return f"r{sum(each.operation == 'read' for each in received(place))}"
        case _:
            return sum(request.tag in ("", each.tag) for each in ledger(place))


def _acted(place: Path, request: OutsideRequest, *, tear: bool) -> str:
    """A key that is still remembered is answered as it was then."""
    if request.kind == "keyed":
        for act in ledger(place):
            if act.key == request.key and request.now_s - act.at_s < request.window_s:
                return act.value
    act = Act(
        kind=request.kind,
        tag=request.tag,
        arguments=request.arguments,
        key=request.key,
        value=_value(request),
        epoch=request.epoch,
        digest=request.digest,
        at_s=request.now_s,
    )
    line = _line(asdict(act))
    if tear:
        append_bytes(place / LEDGER, line[: len(line) // 2])
        _die()
    append_bytes(place / LEDGER, line)
    return act.value


def _value(request: OutsideRequest) -> str:
    return f"{request.tag}!{request.arguments}"


def _probed(place: Path, request: OutsideRequest, fault: OutsideFault | None) -> Answer:
    if fault is OutsideFault.UNSURE:
        return {"performed": None, "value": ""}
    if fault is OutsideFault.AFFIRMS:
        return {"performed": True, "value": _value(request)}
    act = next((act for act in ledger(place) if act.key == request.key), None)
    if act is None or fault is OutsideFault.DENIES:
        return {"performed": False, "value": ""}
    return {"performed": True, "value": act.value}


def _die() -> Never:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL cannot be survived")


if __name__ == "__main__":
    main()
