"""`runs`, `show`, `log` and `verify`: looking, without changing anything or needing the program."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from attrs import evolve
from rich.table import Table
from rich.text import Text

from agent._entries import TYPES
from agent._graph import graph_of
from agent._verify_sessions import verify_sessions
from savepoint import Corrupt, Foreign, RunStatus, SavepointError, Types
from savepoint._disk import Disk, disk_of
from savepoint._inspect import (
    ReceiptView,
    RunSummary,
    RunView,
    find_run_id,
    inspect_run,
    list_runs,
    read_receipts,
)
from savepoint._resumable import OURS
from savepoint._run_result import get_run
from savepoint._sqlite import SqliteStore
from savepoint._verify import verify_store
from savepoint._world import Snapshot

from ._changes import changes_between
from ._common import Desk
from ._exit import Exit
from ._lines import arguments_of
from ._local import Local, host_world, read_local
from ._output import plain, printable, size
from ._question import age, as_json, lines, named
from ._report import Changes, change_lines, changes_json
from ._target import load_agent
from ._ties import session_of, ties_of

T = TypeVar("T")
KNOWN = OURS | TYPES


async def runs(desk: Desk, *, every: bool) -> Exit:
    """The runs, the newest first; nested ones only where `every` run is asked for."""
    async with desk.opened(read_only=True) as store:
        found = await list_runs(store)
    summaries = [each for each in found if every or each.record.parent is None]
    hidden = len(found) - len(summaries)
    if hidden:
        which = "1 nested run is" if hidden == 1 else f"{hidden} nested runs are"
        desk.output.note(f"{which} not listed; {desk.report.command('runs', '--all')} lists all")
    if desk.output.json:
        for summary in summaries:
            desk.output.emit(_summary(summary))
        return Exit.DONE
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("RUN", "STATUS", "STEP", "AGENT", "CHANGED"):
        table.add_column(name, overflow="fold", justify="right" if name == "STEP" else "left")
    for summary in summaries:
        record = summary.record
        who = str(record.meta.get("agent", record.program))
        table.add_row(
            Text(printable(record.run_id)),
            _status(summary),
            str(summary.step),
            Text(printable(who)),
            age(record.changed_at),
        )
    if summaries:
        desk.output.table(table)
    else:
        desk.output.note("no runs yet; start one: savepoint run TARGET INPUT")
    return Exit.DONE


async def show(desk: Desk, run: str) -> Exit:
    """One run."""
    async with desk.opened(read_only=True) as store:
        run_id = await find_run_id(store, run)
        local = await read_local(store, run_id)
        view = await understood(lambda types: inspect_run(store, run_id, types), local)
        ties = await ties_of(store, view)
        changes, damage = await _changes(desk, store, view, local)
        disk, unread = await _disk_of(store, view)
    damaged = [*view.damage, *damage, *unread]
    if desk.output.json:
        document = {**_document(view, local, changes, damaged), "disk": disk and _disk(disk)}
        desk.output.emit(document | ties.document())
        return Exit.DONE
    taken = [("disk", _size_of(disk))] if disk else []
    for name, text in [*_facts(view, local), *ties.facts(), *taken]:
        desk.output.result(f"{name:<10} {text}")
    for line in (*(f"damaged    {text}" for text in damaged), *change_lines(changes)):
        desk.output.result(line)
    for question in view.questions:
        desk.output.result("")
        for line in lines(question, run_id, desk.common.store):
            desk.output.result(line)
    return Exit.DONE


async def log(desk: Desk, run: str) -> Exit:
    """The receipts of a run, in call order."""
    async with desk.opened(read_only=True) as store:
        run_id = await find_run_id(store, run)
        local = await read_local(store, run_id)
        receipts = await understood(lambda types: read_receipts(store, run_id, types), local)
        removed = (await get_run(store, run_id)).removed
    if removed:
        desk.output.note(f"run {run_id} was removed: its receipts are gone")
        return Exit.DONE
    if desk.output.json:
        for view in receipts:
            desk.output.emit(_receipt(view))
        return Exit.DONE
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("STEP", "ATTEMPT", "EFFECT", "CLASS", "STATUS", "ARGUMENTS"):
        table.add_column(name, justify="right" if name in {"STEP", "ATTEMPT"} else "left", overflow="fold")
    for view in receipts:
        receipt = view.receipt
        table.add_row(
            str(receipt.step), str(view.attempt), Text(printable(receipt.effect)), receipt.idempotency.value,
            receipt.status.value, Text(arguments_of(named(view.arguments), 120)),
        )  # fmt: skip
    desk.output.table(table)
    return Exit.DONE


async def verify(desk: Desk) -> Exit:
    """Every byte of the store, and whether all that is named is there."""
    try:
        async with desk.opened(read_only=True) as store:
            found = await verify_store(store, KNOWN)
            found = evolve(found, damage=(*found.damage, *await verify_sessions(store)))
    except Corrupt as error:  # it is its own next move wherever else damage is met
        raise Corrupt(error.message, next="move the store away, and put back a copy or start a new one") from error
    damage = [{"what": each.what, "name": each.name, "cause": each.cause} for each in found.damage]
    if desk.output.json:
        desk.output.emit({"objects": found.objects, "rows": found.rows, "damage": damage})
    else:
        for each in found.damage:
            desk.output.result(f"{each.what} {each.name}: {each.cause}")
        desk.output.result(f"{found.objects} objects and {found.rows} rows read, {_counted(len(damage))}")
    return Exit.DAMAGED if damage else Exit.DONE


def _counted(damage: int) -> str:
    return f"{damage} damaged or missing" if damage else "no damage found"


async def understood(work: Callable[[Types], Awaitable[T]], local: Local | None) -> T:
    """What `work` reads. The run's agent is only loaded where it has classes of its own."""
    try:
        return await work(KNOWN)
    except Foreign:
        if local is None:
            raise
        return await work(OURS | graph_of(load_agent(local.target, local.project)).types)


async def _changes(
    desk: Desk, store: SqliteStore, view: RunView, local: Local | None
) -> tuple[Changes, tuple[str, ...]]:
    """What the run changed so far, or why that cannot be told."""
    if local is None or local.workspace is None or not local.workspace.is_dir():
        return {}, ()
    try:
        return await changes_between(store, view.base, view.now, host_world(local.workspace, desk.place)), ()
    except SavepointError as error:
        return {}, (error.message,)


async def _disk_of(store: SqliteStore, view: RunView) -> tuple[Disk | None, tuple[str, ...]]:
    """What the run takes, or why that cannot be told."""
    try:
        return await disk_of(store, view.summary.record), ()
    except SavepointError as error:
        return None, (error.message,)


def _status(summary: RunSummary) -> Text:
    colours = {
        RunStatus.COMPLETED: "green", RunStatus.WAITING: "yellow", RunStatus.FAILED: "red", RunStatus.RUNNING: "cyan",
    }  # fmt: skip
    if summary.orphaned:
        return Text("running (orphaned)", style="magenta")
    if summary.record.removed:
        return Text(f"{summary.record.status.value} (removed)", style="dim")
    return Text(summary.record.status.value, style=colours.get(summary.record.status, ""))


def _summary(summary: RunSummary) -> dict[str, object]:
    record = summary.record
    return {
        "run_id": record.run_id,
        "status": record.status.value,
        "orphaned": summary.orphaned,
        "removed": record.removed,
        "step": summary.step,
        "program": record.program,
        "agent": plain(record.meta.get("agent")),
        "attempts": record.attempts,
        "resumed_from": record.resumed_from,
        "caused_by": record.caused_by,
        "parent": record.parent,
        "session": session_of(record),
        "created_at": record.created_at,
        "changed_at": record.changed_at,
    }


def _document(view: RunView, local: Local | None, changes: Changes, damage: list[str]) -> dict[str, object]:
    record = view.summary.record
    error = record.error
    return {
        **_summary(view.summary),
        "savepoint": _hex(view.savepoint),
        "resumable_from": view.resumable_from,
        "steps": [
            {"step": step.step, "savepoint": _hex(step.savepoint), "attempt": step.attempt, "why": step.why}
            for step in view.steps
        ],
        "questions": [as_json(question) for question in view.questions],
        "world": _world(view, local, changes) if view.base else None,
        "failure": None if error is None else {"kind": error.kind, "message": error.message},
        "damage": damage,
        "target": None if local is None else local.target,
        "model": None if local is None else local.model,
    }


def _world(view: RunView, local: Local | None, changes: Changes) -> dict[str, object]:
    workspace = None if local is None else local.workspace
    return {
        "workspace": None if workspace is None else str(workspace),
        "base": _ids(view.base),
        "now": _ids(view.now),
        "settled": view.summary.record.settled,
        "changes": changes_json(changes),
    }


def _disk(disk: Disk) -> dict[str, object]:
    return {
        "bytes": disk.bytes,
        "rows": disk.rows,
        "row_bytes": disk.row_bytes,
        "objects": disk.objects,
        "object_bytes": disk.object_bytes,
    }


def _size_of(disk: Disk) -> str:
    rows = f"{disk.rows} row{'s' * (disk.rows != 1)}: {size(disk.row_bytes)}"
    objects = f"{disk.objects} object{'s' * (disk.objects != 1)}: {size(disk.object_bytes)}"
    return f"{size(disk.bytes)} ({rows}, {objects})"


def _ids(snapshot: Snapshot) -> dict[str, str]:
    return {name: found.id.hex() for name, found in snapshot.items()}


def _hex(name: bytes | None) -> str | None:
    return None if name is None else name.hex()


def _receipt(view: ReceiptView) -> dict[str, object]:
    receipt = view.receipt
    return {
        "step": receipt.step,
        "effect": receipt.effect,
        "arguments": plain(view.arguments),
        "idempotency": receipt.idempotency.value,
        "status": receipt.status.value,
        "attempt": view.attempt,
        "tried": receipt.tried,
        "at": receipt.at,
    }


def _facts(view: RunView, local: Local | None) -> list[tuple[str, str]]:
    record = view.summary.record
    resumable = "no" if view.resumable_from is None else f"step {view.resumable_from}"
    standing = [
        ("step", f"{view.summary.step}, resumable from: {resumable}"),
        ("attempts", str(record.attempts)),
        ("savepoint", _hex(view.savepoint) or "none"),
    ]
    left = "its result" if record.result is not None else "its record"
    found = [
        ("run", printable(record.run_id)),
        ("status", _status(view.summary).plain),
        ("agent", printable(str(record.meta.get("agent", record.program)))),
        *([("left", f"{left} alone; all else was removed")] if record.removed else standing),
        ("created", f"{age(record.created_at)} ago, changed {age(record.changed_at)} ago"),
    ]
    if record.caused_by and record.parent is None:
        found.append(("fork of", printable(record.caused_by)))
    if record.error is not None:
        found.append(("failure", printable(f"{record.error.kind}: {record.error.message}")))
    if local is not None:
        found.append(("target", printable(f"{local.target} in {local.project}")))
    if view.base:
        place = "not known here" if local is None or local.workspace is None else str(local.workspace)
        found.append(("world", f"{printable(place)} ({record.settled or 'not merged'})"))
    return found
