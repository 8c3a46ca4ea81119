"""All that can be read of a small store, part by part: what it is, or what reading it raised."""

import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import small_program as small
from attrs import frozen
from flips_store import Endless, opened
from small_program import REGISTRY, Json, said_of

from savepoint import Corrupt
from savepoint._events import read_mark
from savepoint._form import Form, read_form, snapshot_ids
from savepoint._inspect import inspect_run, list_runs, read_receipts
from savepoint._log import EMPTY_ROOT
from savepoint._past import read_marks, read_standing
from savepoint._questions import read_decisions, read_questions
from savepoint._run_result import find_run, get_run, stored_result
from savepoint._sqlite import SqliteStore
from savepoint._store import Kind, Space
from savepoint._stored import get_value
from savepoint._types import Types
from savepoint._verify import verify_store

PLANS = {"done": "note a;send 1", "open": "note b;send 2|read x;gone 3|send 4;note c|send 5"}
"""What the runs of the store do; the second one stands behind its first `send` after a decided question."""
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where copies lie."""
Content = dict[str, Any]
"""By what was read: what it is, or what reading it raised."""


@frozen
class Known:
    """What is read by name, whatever still lists it."""

    lineages: Mapping[str, bytes]
    steps: Mapping[str, Sequence[int]]
    objects: Mapping[str, bytes]
    rows: Sequence[tuple[Space, bytes]]
    names: Sequence[bytes]
    roots: Sequence[bytes]


async def known(store: SqliteStore) -> Known:
    lineages, steps, objects = {}, {}, {}
    for run in PLANS:
        record = await get_run(store, run)
        lineages[run] = record.lineage
        marks = await read_marks(store, record.lineage)
        steps[run] = sorted(marks)
        objects |= {f"{run} form {step}": read_mark(row).point for step, row in marks.items()}
        named = {"base": record.base, "final": record.final, "state": record.state, "result": record.result}
        objects |= {f"{run} {name}": digest for name, digest in named.items() if digest is not None}
        for view in await read_receipts(store, run, REGISTRY.types):
            if view.receipt.outcome is not None:
                objects[f"{run} outcome {view.receipt.number}"] = view.receipt.outcome
    rows = [(space, row.key) for space in Space for row in await store.scan(space)]
    listed = await store.look(lambda engine: engine.execute("select name, kind from object order by name").fetchall())
    roots = [name for name, kind in listed if kind == Kind.SEGMENT]
    return Known(lineages, steps, objects, rows, [name for name, _ in listed], roots)


async def raw(place: Path, it: Known, *, write: bool) -> Content:
    """Every answer that the database gives, before anybody makes sense of it: each row, each run of rows, each object,
    each chain of segments. What is equal here is equal in all that is read.
    """
    content: Content = {}

    async def part(name: str, read: Awaitable[object]) -> None:
        try:
            content[name] = await read
        except Endless:
            raise
        except Exception as error:
            content[name] = said_of(error)

    try:
        async with opened(place, write=write) as store:
            for space, key in it.rows:
                await part(f"{space} {key.hex()}", store.read(space, key))
            for space in Space:
                await part(f"all {space}", store.scan(space))
                for run, lineage in it.lineages.items():
                    await part(f"{space} of {run}", store.scan(space, run.encode() if space is Space.RUN else lineage))
            for name in it.names:
                await part(name.hex(), store.objects([name]))
            for root in it.roots:
                await part(f"log {root.hex()}", store.segments(root, until=EMPTY_ROOT))
    except Exception as error:
        return {"open": said_of(error)}
    return content


async def everything(place: Path, it: Known, *, write: bool, worlds: bool = True) -> Content:
    """All that can be read of a store, part by part; of `worlds` their content too, not only their names."""
    content: Content = {}

    async def part(name: str, read: Callable[[], Awaitable[object]]) -> None:
        try:
            content[name] = repr(await read())
        except Endless:
            raise
        except Exception as error:
            content[name] = said_of(error)

    try:
        async with opened(place, write=write) as store:
            await part("runs", lambda: list_runs(store))
            for run, lineage in it.lineages.items():
                await _run(store, run, lineage, part)
                for step in it.steps[run] if worlds else ():
                    point = it.objects[f"{run} form {step}"]
                    await part(f"{run} world {step}", lambda point=point: _world(store, point))
            for name, digest in it.objects.items():
                await part(name, lambda digest=digest: _value(store, digest))
    except Exception as error:
        return {"open": said_of(error)}
    return content


async def _run(
    store: SqliteStore,
    run: str,
    lineage: bytes,
    part: Callable[[str, Callable[[], Awaitable[object]]], Awaitable[None]],
) -> None:
    types = REGISTRY.types
    await part(f"{run} record", lambda: find_run(store, run))  # None would be a fresh start
    await part(f"{run} view", lambda: _view(store, run))
    await part(f"{run} receipts", lambda: read_receipts(store, run, types))
    await part(f"{run} questions", lambda: read_questions(store, lineage, types))
    await part(f"{run} decisions", lambda: read_decisions(store, lineage, types))
    await part(f"{run} standing", lambda: _standing(store, lineage))
    await part(f"{run} stored", lambda: _stored(store, run))


async def _standing(store: SqliteStore, lineage: bytes) -> object:
    standing = await read_standing(store, lineage, REGISTRY)
    if said := [*standing.warnings, *([standing.damage] if standing.damage else [])]:
        raise Corrupt(f"told: {said}", next="what was read says so itself")
    return standing


async def _view(store: SqliteStore, run: str) -> object:
    view = await inspect_run(store, run, REGISTRY.types)
    if view.damage:
        raise Corrupt(f"told: {view.damage}", next="what was read says so itself")
    return view


async def _stored(store: SqliteStore, run: str) -> object:
    return await stored_result(store, await get_run(store, run), REGISTRY)


async def _value(store: SqliteStore, digest: bytes) -> object:
    value = await get_value(store, digest, Types([Form]) | REGISTRY.types)
    if not isinstance(value, Form):
        return value
    state = {name: list(log) for name, log in value.state.items()}  # type: ignore[call-overload]
    return value.name, value.key, value.resume, value.arguments, value.world, state


async def _world(store: SqliteStore, point: bytes) -> object:
    """The content of a savepoint's world, copied out."""
    form = await read_form(store, point, REGISTRY)
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        (Path(place) / "host").mkdir()
        host = small.host(Path(place))
        fork = await host.fork(store.contents, at=snapshot_ids(plain(form.world)), place=Path(place) / "fork")
        return small.shown(fork)


def plain(world: Mapping[str, Any]) -> dict[str, Any]:
    return {name: (each.kind, each.format, each.id) if hasattr(each, "kind") else each for name, each in world.items()}


async def verified(place: Path, *, write: bool) -> list[str] | Json:
    """What `verify` finds; what it raises where the store does not even open."""
    try:
        async with opened(place, write=write) as store:
            return [f"{each.what} {each.name}: {each.cause}" for each in (await verify_store(store, OF_ALL)).damage]
    except Exception as error:
        return said_of(error)


OF_ALL = REGISTRY.types
