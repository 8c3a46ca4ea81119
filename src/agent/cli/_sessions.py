"""`sessions`, `rewind` and `trim`: the conversations of a store, and what a person cuts from them."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, cast

from attrs import frozen
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent import StoredResults, StoredSession
from agent._graph import graph_of
from agent._segments import head_of
from agent._stored_session import SegmentInfo, SessionSummary
from savepoint import Foreign, Log, Missing, Types, Usage
from savepoint._run_result import find_run
from savepoint._sqlite import SqliteStore

from ._common import Desk
from ._conversation import entry_documents, entry_lines
from ._exit import Exit
from ._local import read_local
from ._output import printable
from ._question import age
from ._show import KNOWN
from ._target import load_agent

T = TypeVar("T")


async def sessions(desk: Desk) -> Exit:
    """All sessions, the one that changed last first."""
    async with desk.opened(read_only=True) as store:
        found = await StoredSession(store).summaries()
    found.sort(key=lambda each: (-each.changed_at, each.session_id))
    if desk.output.json:
        for each in found:
            desk.output.emit(_summary(each))
        return Exit.DONE
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("SESSION", "RUNS", "ENTRIES", "PENDING", "CHANGED"):
        table.add_column(name, overflow="fold", justify="left" if name in {"SESSION", "CHANGED"} else "right")
    for each in found:
        table.add_row(
            Text(printable(each.session_id)), str(each.runs), str(each.entries), str(each.pending), age(each.changed_at)
        )
    if found:
        desk.output.table(table)
    else:
        desk.output.note("no sessions yet; begin one: savepoint run TARGET INPUT --session ID")
    return Exit.DONE


async def session(desk: Desk, session_id: str, target: str | None, *, entries: bool) -> Exit:
    """One session: its segments and the runs that have not landed, or the conversation itself."""
    async with desk.opened(read_only=True) as store:
        found = await _found(store, session_id)
        log = await _understood(store, found, target, lambda kept: kept.load(session_id)) if entries else None
    if log is not None:
        _tell_entries(desk, found, log)
    elif desk.output.json:
        for each in found.segments:
            desk.output.emit(_segment(session_id, each))
        for run_id, status in found.pending.items():
            desk.output.emit({"session": session_id, "run_id": run_id, "standing": "pending", "status": status})
    else:
        _tell_outline(desk, found)
    return Exit.DONE


async def rewind(
    desk: Desk, session_id: str, target: str | None, *, keep_entries: int | None, keep_runs: int | None
) -> Exit:
    """Drops the end of a session."""
    if (keep_entries is None) == (keep_runs is None):
        what = "neither --keep-entries nor --keep-runs" if keep_runs is None else "both --keep-entries and --keep-runs"
        raise Usage(f"savepoint rewind: {what}", next="write one of the two; 0 empties the session")
    for name, value in (("--keep-entries", keep_entries), ("--keep-runs", keep_runs)):
        _must_count(name, value or 0)
    async with desk.opened() as store:
        found = await _found(store, session_id)
        keep = found.entries_of(keep_runs) if keep_entries is None else keep_entries
        removed = await _understood(store, found, target, lambda kept: kept.rewind(session_id, keep_entries=keep))
        left = await StoredSession(store).outline(session_id)
    count = left[-1].start + left[-1].count if left else 0
    if desk.output.json:
        desk.output.emit({"session": session_id, "removed": removed, "entries": count, "runs": len(left)})
    desk.output.note(
        f"{_counted(removed, 'entry', 'entries')} removed from session {session_id}; "
        f"{_counted(count, 'entry', 'entries')} of {_counted(len(left), 'run', 'runs')} left"
    )
    return Exit.DONE


async def trim(
    desk: Desk, session_id: str, target: str | None, *, keep_chars: int, keep_runs: int, archive: bool
) -> Exit:
    """Cuts the texts of old tool results."""
    _must_count("--keep-chars", keep_chars)
    _must_count("--keep-runs", keep_runs)
    async with desk.opened() as store:
        found = await _found(store, session_id)
        results = StoredResults(store) if archive else None
        cut = await _understood(
            store,
            found,
            target,
            lambda kept: kept.trim_tool_results(
                session_id, keep_chars=keep_chars, keep_runs=keep_runs, results=results
            ),
        )
    if desk.output.json:
        desk.output.emit({"session": session_id, "trimmed": cut, "archived": archive})
    kept = "" if not cut else "; the whole texts are kept in the store" if archive else "; the rest is gone"
    desk.output.note(f"{_counted(cut, 'result', 'results')} cut in session {session_id}{kept}")
    return Exit.DONE


@frozen(kw_only=True)
class _Found:
    """A session that is there."""

    session_id: str
    segments: list[SegmentInfo]
    pending: Mapping[str, str | None]
    """runs that began in it and have not landed -> their status"""

    def entries_of(self, runs: int | None) -> int:
        """The entries of the first `runs` segments."""
        return sum(each.count for each in self.segments[:runs])


async def _found(store: SqliteStore, session_id: str) -> _Found:
    """Raises `Missing`, `Usage`, `Corrupt`, `Newer`."""
    kept = StoredSession(store)
    segments, pending = await kept.outline(session_id), await kept.pending_runs(session_id)
    if not segments and not pending and (await head_of(store, session_id)).digest is None:
        raise Missing(f"there is no session {session_id}", next="savepoint sessions lists the known ones")
    records = {run_id: await find_run(store, run_id) for run_id in pending}
    statuses = {run_id: None if record is None else record.status.value for run_id, record in records.items()}
    return _Found(session_id=session_id, segments=segments, pending=statuses)


async def _understood(
    store: SqliteStore, found: _Found, target: str | None, work: Callable[[StoredSession], Awaitable[T]]
) -> T:
    """What `work` does. Agents, those of the session's runs or `target`, are only loaded for classes of their own."""
    try:
        return await work(StoredSession(store, KNOWN))
    except Foreign:
        types: Types = KNOWN
        for name, project in await _targets(store, found) if target is None else [(target, Path.cwd())]:
            with suppress(*([Usage] if target is None else [])):  # the classes may be those of another one
                types |= graph_of(load_agent(name, project)).types
        try:
            return await work(StoredSession(store, types))
        except Foreign as error:
            move = "name an agent that knows it: --target module:attribute"
            raise Foreign(error.message, next=move) from error


async def _targets(store: SqliteStore, found: _Found) -> list[tuple[str, Path]]:
    runs = dict.fromkeys([*(each.run_id for each in found.segments), *found.pending])
    locals_ = [await read_local(store, run_id) for run_id in runs if run_id is not None]
    return list(dict.fromkeys((local.target, local.project) for local in locals_ if local is not None))


def _tell_outline(desk: Desk, found: _Found) -> None:
    entries = found.entries_of(None)
    desk.output.result(f"{'session':<10} {printable(found.session_id)}")
    desk.output.result(f"{'entries':<10} {entries}")
    for run_id, status in found.pending.items():
        desk.output.result(f"{'pending':<10} {printable(run_id)} ({status or 'gone'}), not landed")
    if not found.segments:
        return
    desk.output.result("")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("RUN", "START", "COUNT", "TOOK", "CHANGED"):
        table.add_column(name, overflow="fold", justify="left" if name in {"RUN", "CHANGED"} else "right")
    for each in found.segments:
        took = _took_s(each)
        table.add_row(
            Text("-" if each.run_id is None else printable(each.run_id)),
            str(each.start), str(each.count), "-" if took is None else f"{took:.1f} s", age(each.at),
        )  # fmt: skip
    desk.output.table(table)


def _tell_entries(desk: Desk, found: _Found, log: Log[object]) -> None:
    runs = {each.start: each.run_id for each in found.segments}
    if desk.output.json:
        for document in entry_documents(log, runs):
            desk.output.emit({"session": found.session_id, **document})
        return
    width = Console(file=desk.output.out).width if desk.output.out.isatty() else None
    for line in entry_lines(log, runs, width):
        desk.output.result(line)


def _summary(summary: SessionSummary) -> dict[str, object]:
    return {
        "session": summary.session_id,
        "runs": summary.runs,
        "entries": summary.entries,
        "changed_at": summary.changed_at,
        "pending": summary.pending,
    }


def _segment(session_id: str, segment: SegmentInfo) -> dict[str, object]:
    started, finished = _timing(segment)
    return {
        "session": session_id,
        "run_id": segment.run_id,
        "standing": "landed",
        "start": segment.start,
        "count": segment.count,
        "at": segment.at,
        "started_at": started,
        "finished_at": finished,
        "duration_s": _took_s(segment),
    }


def _timing(segment: SegmentInfo) -> tuple[float | None, float | None]:
    """What somebody else's session wrote there may be anything."""
    timing = segment.meta.get("timing")
    found: Mapping[object, object] = cast("Mapping[object, object]", timing) if isinstance(timing, Mapping) else {}
    started, finished = found.get("started_at"), found.get("finished_at")
    if isinstance(started, int | float) and isinstance(finished, int | float):
        return float(started), float(finished)
    return None, None


def _took_s(segment: SegmentInfo) -> float | None:
    started, finished = _timing(segment)
    return None if started is None or finished is None else finished - started


def _must_count(name: str, value: int) -> None:
    if value < 0:
        raise Usage(f"{name} {value}: not a number of them", next="write 0 or more")


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
