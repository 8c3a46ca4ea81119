"""What a store says of its runs, for people and scripts: reading only, without the program that a run belongs to."""

from collections.abc import Mapping, Sequence

from attrs import field, frozen

from effects._question import Question
from effects._receipt import Receipt

from ._claim import alive, owner_of
from ._errors import Corrupt, Missing, Usage
from ._events import Called, Claimed, Event, Gap, read_events, read_head, read_mark
from ._form import Form, snapshot_ids
from ._past import read_marks, whole_events
from ._questions import arguments_of, open_questions
from ._run import ENDED, RunRecord, RunStatus, read_run, run_key
from ._run_result import find_run, get_run
from ._store import Space, Store
from ._stored import get_value
from ._types import Types
from ._world import Snapshot

SHOWN = 10
"""Runs that an ambiguous prefix lists."""


@frozen(kw_only=True)
class RunSummary:
    """One line about a run."""

    record: RunRecord
    step: int
    """savepoints published so far"""
    orphaned: bool
    """running by its record, but nobody is behind it: its process died"""


@frozen(kw_only=True)
class StepView:
    """One gap of a run."""

    step: int
    savepoint: bytes | None
    """None: it could not be persisted, and `why` says so"""
    why: str
    attempt: int


@frozen(kw_only=True)
class RunView:
    """All about one run but its receipts."""

    summary: RunSummary
    steps: Sequence[StepView]
    savepoint: bytes | None
    """the newest good one"""
    resumable_from: int | None
    """its step; None where no attempt can follow"""
    questions: Sequence[Question]
    """what it waits for, or will when it is resumed"""
    base: Snapshot
    """the host's snapshots at the start, by system; empty without a world"""
    now: Snapshot
    """the run's own: at its end, or at the newest good savepoint"""
    damage: Sequence[str] = field(factory=tuple[str, ...])
    """newer savepoints that cannot be used, and why"""


@frozen(kw_only=True)
class ReceiptView:
    """One receipt with what a person wants to see of it."""

    receipt: Receipt
    arguments: object
    attempt: int
    """the one that wrote what the receipt says now"""


async def find_run_id(store: Store, prefix: str) -> str:
    """The one run whose id is `prefix`, or starts with it. Raises `Missing`, `Usage` (several do; it lists them).

    The ids of nested runs begin with that of the outer one, so they only count where no other run's does.
    """
    if await find_run(store, prefix) is not None:
        return prefix
    records = await _records(store, prefix)
    found = [record.run_id for record in [each for each in records if each.parent is None] or records]
    if not found:
        raise Missing(f"there is no run {prefix}", next="savepoint runs lists the known ones")
    if len(found) > 1:
        rest = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        listed = ", ".join(sorted(found)[:SHOWN]) + rest
        raise Usage(f"{prefix} is the beginning of {len(found)} runs: {listed}", next="write more of the id")
    return found[0]


async def list_runs(store: Store) -> list[RunSummary]:
    """All runs, the newest first. Restarted ones are their successor's past and not listed."""
    records = sorted(await _records(store), key=lambda record: (record.created_at, record.run_id), reverse=True)
    return [await _summary(store, record) for record in records]


async def inspect_run(store: Store, run_id: str, types: Types) -> RunView:
    """Raises `Missing`, `Corrupt`, and `Foreign` where the state holds classes that are not in `types`."""
    record = await get_run(store, run_id)
    step, point, form, damage = await _newest(store, record, Types([Form]) | types)
    final = await _ids(store, record.final, types)
    return RunView(
        summary=await _summary(store, record),
        steps=await _steps(store, record),
        savepoint=point,
        resumable_from=None if record.status in ENDED else step,
        questions=() if record.status in ENDED else await open_questions(store, record.lineage, types),
        base=await _ids(store, record.base, types),
        now=final or ({} if form is None else snapshot_ids(form.world)),
        damage=damage,
    )


async def read_receipts(store: Store, run_id: str, types: Types) -> list[ReceiptView]:
    """The receipts of a run as they stand, in the order in which their calls first appeared."""
    record = await get_run(store, run_id)
    found: dict[tuple[int, bytes], tuple[Receipt, int]] = {}
    for attempt, event in await _events(store, record):
        if isinstance(event, Called):
            found[event.receipt.step, event.receipt.key] = (event.receipt, attempt)
    return [
        ReceiptView(
            receipt=receipt,
            arguments=await arguments_of(store, receipt.arguments, receipt.arguments_object, types),
            attempt=attempt,
        )
        for receipt, attempt in found.values()
    ]


async def _records(store: Store, prefix: str = "") -> list[RunRecord]:
    rows = await store.scan(Space.RUN, run_key(prefix) if prefix else b"")
    return [read_run(row) for row in rows if b"\0" not in row.key]  # with one: a restarted run's former record


async def _summary(store: Store, record: RunRecord) -> RunSummary:
    head = await store.read(Space.HEAD, record.lineage)
    orphaned = False
    if record.status is RunStatus.RUNNING:
        lease = await owner_of(store, run_key(record.run_id))
        orphaned = lease is None or not alive(store, record.lineage, lease)
    return RunSummary(record=record, step=0 if head is None else read_head(head).step, orphaned=orphaned)


async def _newest(
    store: Store, record: RunRecord, types: Types
) -> tuple[int | None, bytes | None, Form | None, list[str]]:
    """Step, id and form of the newest savepoint whose every byte is as written; what is wrong with newer ones."""
    damage: list[str] = []
    for step, row in sorted((await read_marks(store, record.lineage)).items(), reverse=True):
        try:
            mark = read_mark(row)
            form = await get_value(store, mark.point, types)
        except (Corrupt, Missing) as error:
            damage.append(f"savepoint {step} cannot be used: {error.message}")
        else:
            return step, mark.point, form if isinstance(form, Form) else None, damage
    return None, None, None, damage


async def _ids(store: Store, name: bytes | None, types: Types) -> Snapshot:
    plain: Mapping[str, object] = {} if name is None else await get_value(store, name, types)
    return snapshot_ids(plain)


async def _steps(store: Store, record: RunRecord) -> list[StepView]:
    return [
        StepView(step=event.step, savepoint=event.point, why=event.why, attempt=attempt)
        for attempt, event in await _events(store, record)
        if isinstance(event, Gap)
    ]


async def _events(store: Store, record: RunRecord) -> list[tuple[int, Event]]:
    """Every event of the lineage with the attempt that wrote it; the first attempt made the run and claimed nothing.

    Raises `Corrupt`, also where one is missing: a receipt that is not found is never taken for none. Of a run that was
    removed there are none.
    """
    if record.removed:
        return []
    attempt = 1
    found: list[tuple[int, Event]] = []
    for row in await whole_events(store, record.lineage):
        for event in read_events(row):
            attempt = event.epoch if isinstance(event, Claimed) else attempt
            found.append((attempt, event))
    return found
