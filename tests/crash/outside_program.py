"""Programs whose effects act on an outside that is a process of its own; one life of one of them for each request.

Every performance is told its tag, the logical place in the program, and passes it on. What it does is in the outside's
ledger alone; what this process reports is what the run's store knows.
"""

import asyncio
import contextlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from effects import Call, Effect, Idempotency, NotPerformed, Performed, Unknown, current_call, effect
from effects._call import CURRENT
from effects._question import Choice, Decision, Question
from savepoint import Cell, Log, Registry, World, _doubt, open_store, resumable, run_program, savepoint
from savepoint._codec import dumps
from savepoint._digest import Domain, seal
from savepoint._events import Called, event_key, read_events
from savepoint._past import read_lineage
from savepoint._questions import open_questions, read_decisions, read_questions, record_decision
from savepoint._run import RunRecord, RunStatus
from savepoint._run_result import find_run
from savepoint._sqlite import SqliteStore
from savepoint._store import Space
from savepoint.crash import Outside, OutsideClient, OutsideRefused
from savepoint.crash._outside_ledger import held, ledger

RUN = "run"
WINDOW_S = 10.0
RUSHED_S = 0.1
TRANSCRIPT: Cell[Log[Any]] = Cell("transcript", Log, default=Log())
Json = dict[str, Any]
CLIENT: ContextVar[OutsideClient] = ContextVar("outside_client")
PROBING: ContextVar[OutsideClient] = ContextVar("outside_probing")
"""The same outside, asked by somebody who waits less long."""


# -- effects ----------------------------------------------------------------------------------------------------------


def _known() -> Json:
    """What the outside is told of the call whose body runs."""
    call = current_call()
    kind = call.call.effect.idempotency.value
    return {"key": call.idempotency_key, "kind": kind, "epoch": call.attempt, "now_s": time.time()}


def _once(name: str) -> Any:
    return effect(name, idempotency=Idempotency.ONCE, raises=(OutsideRefused,))


@_once("send")
async def send(tag: str, x: object) -> str:
    return await CLIENT.get().act(x, tag=tag, **_known())


@_once("tell")
async def tell(tag: str, x: object) -> str:
    """Blocks a thread, as a sync tool does."""
    client, known = CLIENT.get(), _known()
    return await asyncio.to_thread(lambda: client.act_blocking(x, tag=tag, **known))


@_once("sure")
async def sure(tag: str, x: object) -> str:
    return await CLIENT.get().act(x, tag=tag, **_known())


@_once("weak")
async def weak(tag: str, x: object) -> str:
    return await CLIENT.get().act(x, tag=tag, **_known())


async def _found(call: Call, *, final: bool) -> Performed[str] | NotPerformed | Unknown:
    current = CURRENT.get()
    assert current is not None
    tag, x = call.arguments["tag"], call.arguments["x"]
    return await PROBING.get().probe(x, tag=str(tag), key=current.idempotency_key, final=final)


@sure.probe
async def _sure(call: Call) -> Performed[str] | NotPerformed | Unknown:
    return await _found(call, final=True)


@weak.probe
async def _weak(call: Call) -> Performed[str] | NotPerformed | Unknown:
    return await _found(call, final=False)


@effect("pay", idempotency=Idempotency.KEYED, window_s=WINDOW_S, raises=(OutsideRefused,))
async def pay(tag: str, x: object) -> str:
    return await CLIENT.get().act(x, tag=tag, window_s=WINDOW_S, **_known())


@effect("rush", idempotency=Idempotency.KEYED, window_s=RUSHED_S)
async def rush(tag: str, x: object) -> str:
    """Its remote forgets keys sooner than it gives up waiting for an answer."""
    return await PROBING.get().act(x, tag=tag, window_s=RUSHED_S, **_known())


@effect("put", idempotency=Idempotency.IDEMPOTENT, raises=(OutsideRefused,))
async def put(tag: str, x: object) -> str:
    return await CLIENT.get().act(x, tag=tag, **_known())


@effect("look", idempotency=Idempotency.READ, raises=(OutsideRefused,))
async def look(tag: str, x: object) -> str:
    return await CLIENT.get().read(tag=tag, epoch=current_call().attempt)


async def tried(performed: Effect[..., Any], tag: str, x: object) -> str:
    """The result, or in a word why there is none."""
    try:
        return await performed(tag, x)
    except OutsideRefused:
        return f"{tag} refused"
    except ConnectionError:
        return f"{tag} lost"


@effect("errand", idempotency=Idempotency.COMPOSITE)
async def errand(tag: str, x: object) -> list[str]:
    seen = await tried(look, f"{tag}.look", x)
    return [seen, await tried(put, f"{tag}.put", seen), await tried(sure, f"{tag}.sure", seen)]


EFFECTS: Sequence[Effect[..., Any]] = (send, tell, sure, weak, pay, rush, put, look, errand)


# -- programs ---------------------------------------------------------------------------------------------------------

PROGRAMS: dict[str, Sequence[Effect[..., Any]]] = {
    "READ, ONCE, IDEMPOTENT": (look, send, put),
    "ONCE with probes": (sure, weak),
    "KEYED, ONCE from a thread": (pay, tell),
    "COMPOSITE of READ, IDEMPOTENT, ONCE": (errand,),
    "KEYED with a short window": (rush,),
}


@resumable("crash/outside")
async def program(world: World, name: str, step: int) -> list[Any]:
    """Each call gets what the one before it returned."""
    while step < len(PROGRAMS[name]):
        performed, said = PROGRAMS[name][step], list(world[TRANSCRIPT])
        tag, x = f"{step}.{performed.name}", said[-1] if said else 0
        out = await performed(tag, x) if performed is errand else await tried(performed, tag, x)
        world[TRANSCRIPT] = world[TRANSCRIPT].append(out)
        step += 1
        await savepoint("turn", key={"step": step}, resume=program.at(name, step), state=[TRANSCRIPT])
    return list(world[TRANSCRIPT])


REGISTRY = Registry([program], effects=EFFECTS)


# -- one life ---------------------------------------------------------------------------------------------------------


def warm_up() -> None:
    with tempfile.TemporaryDirectory() as place, Outside() as outside:
        live({"program": "COMPOSITE of READ, IDEMPOTENT, ONCE", "place": place, "socket": str(outside.socket)})


def live(request: Json) -> Json:
    """One attempt. `held`: it is killed once the outside holds its answer back; `clock_s`: its clock is off by that."""
    if shift := request.get("clock_s", 0):
        real = time.time
        time.time = lambda: real() + shift  # type: ignore[assignment]  # this process's wall clock was moved
    place = Path(request["place"])
    client = OutsideClient(socket=Path(request["socket"]), place=place / "outside")
    CLIENT.set(client)
    PROBING.set(OutsideClient(socket=client.socket, place=client.place, timeout_s=request.get("probe_s", 30.0)))
    _doubt.PROBE_S = request.get("limit_s", _doubt.PROBE_S)
    if request.get("held"):
        threading.Thread(target=_die_when_held, args=(client.place,), daemon=True).start()
    return asyncio.run(_attempt(request, place))


def _die_when_held(place: Path) -> None:
    """The caller's death while it waits: the outside has it performed and says nothing."""
    before, pause = len(held(place)), threading.Event()
    while len(held(place)) == before:
        pause.wait(0.001)
    os.kill(os.getpid(), signal.SIGKILL)


async def _attempt(request: Json, place: Path) -> Json:
    async with open_store(place / "store", durability="process") as store:
        if request.get("answer"):
            await _answer(store, place, lying=request.get("lying", False))
        result = await run_program(
            program.at(request["program"], 0), store=store, run_id=RUN, world=World({}), registry=REGISTRY
        )
        record = await find_run(store, RUN)
        assert record is not None
        return {
            "status": result.status.value,
            "error": None if result.error is None else f"{result.error.kind}: {result.error.message}",
            "value": result.value if result.status is RunStatus.COMPLETED else None,
            "questions": [(each.kind.value, each.effect, key_of(record, each)) for each in result.questions],
            "receipts": await _receipts(store, record),
            "decided": await _decided(store, record),
        }


def key_of(record: RunRecord, question: Question) -> str:
    return idempotency_key(record, question.step, question.key)


def idempotency_key(record: RunRecord, step: int, key: bytes) -> str:
    """As the journal makes it, stated again."""
    return seal(Domain.IDEMPOTENCY, dumps([record.lineage, step, key])).hex()


async def _answer(store: SqliteStore, place: Path, *, lying: bool) -> None:
    """Answers with the truth, which the outside's ledger has; or with its contrary."""
    record = await find_run(store, RUN)
    if record is None:
        return
    for question in await open_questions(store, record.lineage, REGISTRY.types):
        act = next((act for act in ledger(place / "outside") if act.key == key_of(record, question)), None)
        if (act is not None) is not lying:
            assert isinstance(question.arguments, dict)
            made_up = f"{question.arguments['tag']}!{[question.arguments['x']]}"
            value = made_up if act is None else act.value
            decision = Decision(question=question.id, choice=Choice.PERFORMED, value=value)
        else:
            decision = Decision(question=question.id, choice=Choice.REDO)
        await record_decision(store, record.lineage, question, decision, REGISTRY.types)


async def _receipts(store: SqliteStore, record: RunRecord) -> dict[str, tuple[str, str]]:
    """Idempotency key -> effect, newest status, of the whole lineage, by a naive replay."""
    found: dict[str, tuple[str, str]] = {}
    for number in range((await read_lineage(store, record.lineage))[0].count):
        row = await store.read(Space.EVENT, event_key(record.lineage, number))
        for event in read_events(row) if row is not None else ():
            if isinstance(event, Called):
                receipt = event.receipt
                found[idempotency_key(record, receipt.step, receipt.key)] = (receipt.effect, receipt.status.value)
    return found


async def _decided(store: SqliteStore, record: RunRecord) -> list[tuple[str, str, str]]:
    """Idempotency key, verdict and author of each decision on record."""
    decisions = await read_decisions(store, record.lineage, REGISTRY.types)
    found: list[tuple[str, str, str]] = []
    for question in await read_questions(store, record.lineage, REGISTRY.types):
        with contextlib.suppress(KeyError):
            decision = decisions[question.id]
            found.append((key_of(record, question), decision.choice.value, decision.by))
    return found
