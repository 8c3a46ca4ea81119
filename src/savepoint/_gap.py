"""A run's own savepoint handler: outcomes, savepoint, step and chain in one commit.

A savepoint that cannot be persisted costs resumability, never progress, and says so.
"""

import asyncio
from typing import Any

from attrs import frozen

from effects._question import QuestionKind

from ._codec import Encoded, encode
from ._errors import Halted, NotWritable, SavepointError, Usage
from ._events import Event, Gap, Head, Mark, Snapshotted, write_mark
from ._form import form_of, plain_ids
from ._journal import Journal
from ._point import Point
from ._store import Space, Transaction
from ._world import QUIET_TIMEOUT_S, Snapshot
from ._writer import GAP


@frozen(kw_only=True)
class Prepared:
    """What a gap has to store."""

    form: Encoded | None
    base: Snapshot
    """the world's snapshot ids"""
    world: Encoded | None
    """the world's snapshot ids, where the savepoint itself is not stored"""
    why: str
    """why there is no savepoint to resume from; empty where there is one"""


def point_key(lineage: bytes, step: int) -> bytes:
    """The row key of a persisted savepoint; keys of one lineage sort by step."""
    return lineage + step.to_bytes(8, "big")


async def pass_gap(journal: Journal, point: Point) -> str:
    """Publishes `point` as the start of the next step. Returns why it was not persisted, or nothing.

    Raises `Usage` inside an effect's body, `Parked` where a receipt of this step was not asked for again.
    """
    if journal.frame() is not journal.root:
        raise Usage(
            f"the savepoint {point.name!r} was published inside an effect's body",
            next="publish it between the steps of the program",
        )
    journal.must_go_on()
    await journal.close_step()
    quiet = await journal.guard.quiet(QUIET_TIMEOUT_S)
    journal.closing = asyncio.Event()
    try:
        if doubts := journal.doubts():
            await journal.park([journal.asking(QuestionKind.IN_DOUBT, receipt) for receipt in doubts])
        why = f"calls are still running after {QUIET_TIMEOUT_S:g} s"
        return await _pass(journal, point, await _prepare(journal, point) if quiet else _skipped(journal, why))
    finally:
        journal.closing.set()
        journal.closing = None


async def _pass(journal: Journal, point: Point, prepared: Prepared) -> str:
    journal.must_go_on()
    step = journal.step + 1
    try:
        await _commit(journal, point.name, step, prepared)
    except NotWritable as error:
        # What landed waits for a better moment. The step counts all the same: it is the number of *published* gaps.
        journal.writer.hold(Gap(step=step, point=None, why=error.message), step=step)
        prepared = _skipped(journal, error.message)
    except SavepointError as error:
        raise Halted(error) from error
    except asyncio.CancelledError:
        if journal.writer.head.step == step:  # it was committed: what comes now belongs to the next step
            _passed(journal, prepared)
        raise
    _passed(journal, prepared)
    return prepared.why


def _passed(journal: Journal, prepared: Prepared) -> None:
    journal.base = prepared.base
    journal.next_step(persisted=prepared.form is not None)
    if prepared.form is not None:
        journal.forked = journal.writer.head.count - 1


async def _prepare(journal: Journal, point: Point) -> Prepared:
    try:
        resume = point.require_resume()
        if journal.world.read_only:
            await journal.put_back()  # what was written past every body that is looked at
        ids = await journal.world.snapshot(journal.store.contents)
    except SavepointError as error:
        return _skipped(journal, error.message)
    world = encode(plain_ids(ids)) if ids else None
    if any(step > journal.step for step, _ in journal.receipts):
        # A savepoint never lies behind receipts: a later recovery would not find them "after" it.
        return Prepared(form=None, base=ids, world=world, why="receipts of a later step exist already")
    try:
        form = form_of(point.name, point.key, resume, point.declared(), ids)
    except SavepointError as error:
        return Prepared(form=None, base=ids, world=world, why=error.message)
    return Prepared(form=form, base=ids, world=None, why="")


def _skipped(journal: Journal, why: str) -> Prepared:
    return Prepared(form=None, base=journal.base, world=None, why=why)


async def _commit(journal: Journal, name: str, step: int, prepared: Prepared) -> None:
    events: list[Event] = []
    values = [value for value in (prepared.world, prepared.form) if value is not None]
    head: dict[str, Any] = {"step": step}
    if prepared.world is not None:
        events.append(Snapshotted(world=prepared.world.digest))
    form = prepared.form
    events.append(Gap(step=step, point=None if form is None else form.digest, why=prepared.why))

    def mark(tx: Transaction, head: Head) -> None:
        if form is not None:
            body = write_mark(Mark(point=form.digest, name=name, count=head.count, chain=head.chain))
            tx.write(Space.POINT, point_key(journal.writer.lineage, step), body)

    if form is not None:
        head["point_step"] = step
    await journal.writer.commit(GAP, events, values=values, also=mark, **head)
