"""What a new run is created from: a program at its beginning, or a savepoint of whatever origin."""

from collections.abc import Mapping

from attrs import evolve, frozen

from ._codec import Encoded, encode
from ._form import Savepoint, form_of, plain_ids, read_form, savepoint_of
from ._frame import FRAME
from ._nested import Within
from ._resumable import Bound, Registry
from ._review import Review
from ._run import RunRecord
from ._store import Store
from ._world import Snapshot, World


@frozen(kw_only=True)
class Fresh:
    """A run that is about to be created."""

    record: RunRecord
    savepoint: Savepoint
    values: tuple[Encoded, ...] = ()
    """what the savepoint needs and the store may lack"""
    warnings: tuple[str, ...] = ()


async def begun(
    store: Store,
    record: RunRecord,
    program: Bound,
    *,
    host: World,
    registry: Registry,
    state: Mapping[str, object],
    within: Within | None,
) -> Fresh:
    """A run of `program` from its beginning, on the host as it is now."""
    ids = await _host_snapshot(store, host, within)
    form = form_of("start", None, program, {**host.cells, **state}, ids)
    base = encode(plain_ids(ids)) if ids else None
    return Fresh(
        record=evolve(record, program=program.resumable.name, base=None if base is None else base.digest),
        savepoint=savepoint_of(form.digest, form.value, registry),
        values=(form,) if base is None else (form, base),
    )


async def adopted(store: Store, record: RunRecord, point: bytes, *, registry: Registry, review: Review) -> Fresh:
    """A run that goes on from the savepoint `point`, whole. What it changes is what it changes from there on."""
    savepoint = await read_form(store, point, registry)
    record = evolve(record, program=savepoint.resume.resumable.name)
    reviewed = await review(record, savepoint)
    base = encode(plain_ids(savepoint.world)) if savepoint.world else None
    meta = record.meta if reviewed.meta is None else dict(reviewed.meta)
    return Fresh(
        record=evolve(record, base=None if base is None else base.digest, meta=meta),
        savepoint=savepoint,
        values=() if base is None else (base,),
        warnings=reviewed.warnings,
    )


async def _host_snapshot(store: Store, host: World, within: Within | None) -> Snapshot:
    """The host as it is; where that is the world of another run, at a moment when no body of that run changes it."""
    frame = FRAME.get()
    if within is None or frame is None or not host.systems:
        return await host.snapshot(store.contents)
    async with within.journal.gate.running(frame.key, alone=True):
        return await host.snapshot(store.contents)
