"""The portable form of a savepoint: what its identity covers, and nothing else.

Not the run, lineage, attempt, time, host or usage: equal prefixes of two runs have one identity.
"""

from collections.abc import Mapping
from typing import cast

from attrs import field, frozen

from ._codec import Encoded, encode
from ._digest import SIZE
from ._errors import Foreign, Newer, NotPortable, Usage
from ._portable import portable
from ._resumable import Bound, Registry
from ._store import Store
from ._stored import get_value
from ._types import Types
from ._world import SnapshotId

FORMAT = 1


@portable("savepoint/form")
@frozen(kw_only=True)
class Form:
    """A savepoint as a portable value; its digest is the savepoint's id."""

    format: int
    name: str
    key: object
    resume: tuple[str, int]
    """name and version of the resumable"""
    arguments: dict[str, object]
    state: dict[str, object]
    """cell name -> value"""
    world: dict[str, tuple[str, int, bytes]]
    """system name -> kind, format, snapshot id"""


def form_of(
    name: str, key: object, resume: Bound, state: Mapping[str, object], world: Mapping[str, SnapshotId]
) -> Encoded:
    """The portable form, encoded. Raises `NotPortable` with the path of the offender, such as `state.transcript[3]`."""
    form = Form(
        format=FORMAT,
        name=name,
        key=key,
        resume=(resume.resumable.name, resume.resumable.version),
        arguments=dict(resume.arguments),
        state=dict(state),
        world={system: (it.kind, it.format, it.id) for system, it in world.items()},
    )
    try:
        return encode(form, "")
    except NotPortable as error:
        # The path starts at the savepoint, whose parts people know by name.
        raise NotPortable(error.path[1:], error.message.removeprefix(f"{error.path}: "), next=error.next) from None


@frozen(kw_only=True)
class Savepoint:
    """A savepoint read back: ready to fork a world at its snapshots and to be resumed."""

    id: bytes
    name: str
    key: object
    resume: Bound
    state: Mapping[str, object] = field(factory=dict[str, object])
    world: Mapping[str, SnapshotId] = field(factory=dict[str, SnapshotId])


async def read_form(store: Store, point: bytes, registry: Registry) -> Savepoint:
    """Loads and verifies a savepoint, its logs included. The resume function is found in the registry or refused.

    Raises `Usage` (not an id), `Missing`, `Corrupt`, `Foreign`, `Newer`.
    """
    if type(point) is not bytes or len(point) != SIZE:
        raise Usage(
            f"{str(point)[:80]!r} is not the id of a savepoint", next=f"pass the {SIZE} bytes that persist() gave"
        )
    value = await get_value(store, point, Types([Form]) | registry.types)
    if not isinstance(value, Form):
        raise Foreign(f"{point.hex()} is not a savepoint", next="pass the id that persist() returned")
    return savepoint_of(point, value, registry)


def savepoint_of(point: bytes, form: Form, registry: Registry) -> Savepoint:
    """A form whose resume function is found in the registry. Raises `Foreign`, `Newer`."""
    if type(form.format) is int and form.format > FORMAT:
        raise Newer(f"savepoint {point.hex()} has format {form.format}", next="upgrade portable-savepoints")
    if not _well_formed(form):
        raise Foreign(
            f"{point.hex()} is shaped like a savepoint and is none", next="pass the id that persist() returned"
        )
    name, version = form.resume
    found = registry.resumable(name)
    return Savepoint(
        id=point,
        name=form.name,
        key=form.key,
        resume=Bound(resumable=found, arguments=found.upgraded(version, form.arguments)),
        state=form.state,
        world=snapshot_ids(form.world),
    )


def _well_formed(form: Form) -> bool:
    """Whether the fields are what `form_of` makes: whoever can write to a store can write other ones."""
    fields: list[object] = [form.format, form.name, form.resume, form.arguments, form.state, form.world]
    match fields:
        case [int(), str(), (str(), int()), dict(), dict(), dict()]:
            names = (*form.arguments, *form.state, *form.world)
            return all(type(name) is str for name in names) and all(map(_is_snapshot, form.world.values()))
        case _:
            return False


def _is_snapshot(part: object) -> bool:
    match part:
        case (str(), int(), bytes()):
            return True
        case _:
            return False


def snapshot_ids(plain: Mapping[str, object]) -> dict[str, SnapshotId]:
    """Snapshot ids by system name, from their stored form."""
    parts = cast("Mapping[str, tuple[str, int, bytes]]", plain)
    return {name: SnapshotId(kind=kind, format=format_, id=id_) for name, (kind, format_, id_) in parts.items()}


def plain_ids(world: Mapping[str, SnapshotId]) -> dict[str, object]:
    """Snapshot ids as a portable value."""
    return {name: (it.kind, it.format, it.id) for name, it in world.items()}
