"""Reads a store into what the oracle judges, by a naive replay that shares no code with recovery.

A child process reports these as JSON; `lived` and `ended` make records of them on the other side of the pipe.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

from effects._receipt import UNSETTLED, Receipt
from savepoint._codec import dumps
from savepoint._digest import Domain, seal
from savepoint._errors import Corrupt
from savepoint._events import Called, event_key, read_events, read_mark
from savepoint._form import Savepoint, read_form, snapshot_ids
from savepoint._log import Log
from savepoint._nested import nested_in
from savepoint._past import read_lineage, read_marks
from savepoint._questions import open_questions, read_decisions, read_questions
from savepoint._resumable import Registry
from savepoint._run import RunRecord
from savepoint._run_result import find_run
from savepoint._sqlite import SqliteStore
from savepoint._store import Row, Space
from savepoint._stored import get_value

from ._history import Asked, Ended, Lived

Json = dict[str, Any]
Shown = Callable[[Mapping[str, Any]], Awaitable[object]]
"""The content of a world's snapshots, as a value whose `repr` two runs are compared by."""
Renamed = Callable[[str], str]
"""A text in which whatever differs from run to run by right (a clock's values) has the same name in all."""


def idempotency_key(lineage: bytes, step: int, key: bytes) -> str:
    """As the journal makes it, stated again."""
    return seal(Domain.IDEMPOTENCY, dumps([lineage, step, key])).hex()


async def lineages(store: SqliteStore, record: RunRecord) -> list[RunRecord]:
    """The run and all that are nested in it, at any depth."""
    found = [record]
    for nested in await nested_in(store, record.lineage):
        inner = await find_run(store, nested.run_id)
        found += [] if inner is None or inner.lineage != nested.lineage else await lineages(store, inner)
    return found


async def receipts(store: SqliteStore, record: RunRecord | None) -> dict[str, Receipt]:
    """Idempotency key -> newest receipt, of all steps of the run and of those nested in it."""
    found: dict[str, Receipt] = {}
    for each in [] if record is None else await lineages(store, record):
        found |= await receipts_of(store, each.lineage)
    return found


async def receipts_of(store: SqliteStore, lineage: bytes) -> dict[str, Receipt]:
    """The same of one lineage. What cannot be read is left out."""
    found: dict[str, Receipt] = {}
    for row in await _rows(store, lineage):
        with contextlib.suppress(Corrupt):
            for event in read_events(row):
                if isinstance(event, Called):
                    found[idempotency_key(lineage, event.receipt.step, event.receipt.key)] = event.receipt
    return found


async def _rows(store: SqliteStore, lineage: bytes) -> Iterable[Row]:
    """All event rows in one look; where one of them is damaged, those that can be read one by one."""
    try:
        return await store.scan(Space.EVENT, lineage)
    except Corrupt:
        rows: list[Row] = []
        for number in range((await read_lineage(store, lineage))[0].count):
            with contextlib.suppress(Corrupt):
                row = await store.read(Space.EVENT, event_key(lineage, number))
                rows += [] if row is None else [row]
        return rows


def _unsettled(found: Mapping[str, Receipt]) -> dict[str, Receipt]:
    return {key: each for key, each in found.items() if each.idempotency.doubtful and each.status in UNSETTLED}


async def at_start(store: SqliteStore, run_id: str) -> Json:
    """What a process finds: the run's status, and the outside calls with an intent and no outcome."""
    record = await find_run(store, run_id)
    found = await receipts(store, record)
    return {"was": None if record is None else record.status.value, "unsettled": list(_unsettled(found))}


async def once_answered(store: SqliteStore, run_id: str, registry: Registry) -> Json:
    """What is left to ask after the answers that a process was given."""
    record = await find_run(store, run_id)
    if record is None:
        return {"open_before": 0, "undecided": []}
    decided = {
        (idempotency_key(question.lineage, question.step, question.key), question.tried)
        for question, _ in await decided_questions(store, record, registry)
    }
    unsettled = _unsettled(await receipts(store, record))
    return {
        "open_before": len(await open_questions(store, record.lineage, registry.types)),
        "undecided": [key for key, each in unsettled.items() if (key, each.tried) not in decided],
    }


async def decided_questions(store: SqliteStore, record: RunRecord, registry: Registry) -> list[tuple[Any, Any]]:
    """Each answered question, those of nested runs too, with its decision."""
    found: list[tuple[Any, Any]] = []
    for run in await lineages(store, record):
        decisions = await read_decisions(store, run.lineage, registry.types)
        questions = await read_questions(store, run.lineage, registry.types)
        found += [(each, decisions[each.id]) for each in questions if each.id in decisions]
    return found


def asked(questions: Iterable[Any]) -> list[list[str]]:
    """Kind, effect and idempotency key of each question of a result."""
    return [[each.kind.value, each.effect, idempotency_key(each.lineage, each.step, each.key)] for each in questions]


async def at_end(
    store: SqliteStore,
    record: RunRecord,
    registry: Registry,
    *,
    value: object,
    shown: Shown,
    renamed: Callable[[], Renamed] = lambda: str,
    unpaired: Callable[[Savepoint], Iterable[str]] = lambda _: (),
) -> Json:
    """How a completed run stands. `renamed` gives a fresh renaming for each text that is compared alone."""
    points: Json = {}
    ids: Json = {}
    broken: list[str] = []
    inside: list[str] = []
    for run in await lineages(store, record):
        own: Json = {}
        for step, row in (await read_marks(store, run.lineage)).items():
            mark = read_mark(row)
            form = await read_form(store, mark.point, registry)
            state = {
                name: [*cast("Log[object]", each)] if isinstance(each, Log) else each
                for name, each in form.state.items()
            }
            own[str(step)] = renamed()(repr((form.name, form.key, state, await shown(form.world))))
            broken += unpaired(form)
            if run is record:
                ids[str(step)] = mark.point.hex()
        if run is record:
            points = own
        else:
            result = None if run.result is None else await get_value(store, run.result, registry.types)
            inside.append(renamed()(repr((run.status.value, result, own, await _at_last(store, run, registry, shown)))))
    world = await _at_last(store, record, registry, shown)
    same = renamed()
    return {
        "value": same(repr(value)),
        "world": same(repr(world)),
        "points": points,
        "ids": ids,
        "inside": sorted(inside),
        "receipts": {key: each.status.value for key, each in (await receipts(store, record)).items()},
        "decided": [
            [question.kind.value, question.effect, said.choice.value]
            for question, said in await decided_questions(store, record, registry)
        ],
        "unpaired": broken,
    }


async def _at_last(store: SqliteStore, record: RunRecord, registry: Registry, shown: Shown) -> object:
    """What the world holds at the end of a run."""
    final = {} if record.final is None else snapshot_ids(await get_value(store, record.final, registry.types))
    return await shown(final)


def lived(report: Mapping[str, Any], *, killed: bool, entered: Iterable[str] = ()) -> Lived:
    """A process's report (empty where it was killed) as a record."""
    return Lived(
        killed=killed,
        entered=tuple(entered),
        was=report.get("was"),
        unsettled=report.get("unsettled", ()),
        undecided=report.get("undecided", ()),
        open_before=report.get("open_before", 0),
        status=report.get("status", ""),
        questions=[Asked(kind=kind, effect=effect, key=key) for kind, effect, key in report.get("questions", ())],
    )


def ended(said: Mapping[str, Any] | None) -> Ended | None:
    """What `at_end` said, as a record."""
    if said is None:
        return None
    return Ended(
        value=said["value"],
        world=said["world"],
        points={int(step): text for step, text in said["points"].items()},
        ids={int(step): text for step, text in said["ids"].items()},
        inside=said.get("inside", ()),
        receipts=said["receipts"],
        decided=[(kind, effect, choice) for kind, effect, choice in said["decided"]],
        unpaired=said["unpaired"],
    )
