"""What a run is tied to: its session, the run around it and those inside it, and what it is held to since when."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from attrs import frozen

from agent._held import META
from agent._link import stake_of
from savepoint._inspect import RunView
from savepoint._nested import nested_in
from savepoint._poison import failures_at
from savepoint._run import RunRecord, RunStatus
from savepoint._run_result import find_run
from savepoint._store import Store

from ._output import printable


@frozen(kw_only=True)
class Ties:
    """Of one run."""

    record: RunRecord
    nested: Sequence[tuple[str, str]]
    """the runs begun directly inside it, the oldest first, and their statuses"""
    failures: int
    """attempts in a row that died or failed from the savepoint where it goes on"""

    def facts(self) -> Iterator[tuple[str, str]]:
        """What there is to say, by name."""
        record, stake = self.record, stake_of(self.record)
        if stake is not None:
            own = "" if stake.own else ", kept by the program"
            entries = "1 entry" if stake.history == 1 else f"{stake.history} entries"
            yield "session", f"{printable(stake.session_id)}, after {entries}{own}"
        if record.parent is not None:
            yield "nested in", printable(record.caused_by or record.parent)
        for run_id, status in self.nested:
            yield "nested", f"{printable(run_id)} ({status})"
        if limits := ", ".join(_limits(record)):
            yield "held to", limits
        for each in _widened(record):
            for name, (before, after) in each["changes"].items():
                yield "held to", f"{_words(name)} {_value(before)} -> {_value(after)}, since attempt {each['attempt']}"
        if self.failures:
            yield "failures", f"{self.failures} in a row from this savepoint"

    def document(self) -> dict[str, object]:
        """The same for scripts."""
        record = self.record
        held = _held(record)
        return {
            "nested": [{"run_id": run_id, "status": status} for run_id, status in self.nested],
            "held": {
                "max_turns": record.meta.get("max_turns"),
                "allowed_tools": held.get("allowed_tools"),
                "read_only": bool(held.get("read_only")),
                "classes": held.get("classes", {}),
            },
            "widened": _widened(record),
            "failures": self.failures,
        }


async def ties_of(store: Store, view: RunView) -> Ties:
    """Raises `Corrupt`."""
    record = view.summary.record
    found: list[tuple[float, str, str]] = []
    for each in await nested_in(store, record.lineage):
        inner = await find_run(store, each.run_id)
        found.append((0.0, each.run_id, "gone") if inner is None else (inner.created_at, inner.run_id, inner.status))
    nested = [(run_id, status) for _, run_id, status in sorted(found)]
    return Ties(record=record, nested=nested, failures=_failures(view))


def _failures(view: RunView) -> int:
    record = view.summary.record
    if view.resumable_from is None:
        return 0
    if record.status is RunStatus.RUNNING and not view.summary.orphaned:
        return record.failures  # how the newest attempt ends is not known
    return failures_at(record, view.resumable_from)


def session_of(record: RunRecord) -> str | None:
    stake = stake_of(record)
    return None if stake is None else stake.session_id


def _held(record: RunRecord) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", record.meta.get(META, {}))


def _widened(record: RunRecord) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", record.meta.get("widened", []))


def _limits(record: RunRecord) -> Iterator[str]:
    held, turns = _held(record), record.meta.get("max_turns")
    if (allowed := held.get("allowed_tools")) is not None:
        yield f"the tools {_value(allowed)}"
    if held.get("read_only"):
        yield "a read-only world"
    for name, idempotency in sorted(held.get("classes", {}).items()):
        yield f"{printable(name)} as {idempotency}"
    if turns is not None:
        yield f"{turns} turns"


def _words(name: str) -> str:
    return {"max_turns": "turns", "allowed_tools": "tools", "read_only": "read-only"}.get(name, name)


def _value(value: object) -> str:
    match value:
        case None:
            return "all"
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(printable(str(each)) for each in cast("list[object]", value)) or "none"
        case Mapping():
            pairs = cast("Mapping[str, object]", value).items()
            return ", ".join(f"{printable(name)} as {each}" for name, each in pairs) or "their own"
        case _:
            return str(value)
