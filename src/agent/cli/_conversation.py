"""A conversation as a person reads it: what was said, asked for, and what came of it, each entry with its place."""

import json
from collections.abc import Iterator, Mapping, Sequence

from agent._entries import Reply, ToolCall, Trimmed, User, render

from ._output import one_line, plain, printable

SHOWN = 400
"""Characters of an outcome, and of a call's arguments; what was said is shown whole."""
_INDENTED = "\n" + " " * 15


def entry_lines(entries: Sequence[object], runs: Mapping[int, str | None]) -> Iterator[str]:
    """`place  word  text`. `runs`: the run whose part begins at a place, None for a part without one."""
    for place, entry, call in _paired(entries):
        if place in runs:
            yield f"run {printable(runs[place] or '-')}"
        match entry:
            case User():
                yield _line(place, "user", entry.content)
            case Reply():
                if entry.text or not entry.calls:
                    yield _line(place, "reply", entry.text)
                for number, asked in enumerate(entry.calls):
                    first = number == 0 and not entry.text
                    yield _line(place if first else None, "call", f"{asked.tool} {one_line(asked.arguments, SHOWN)}")
            case _:
                yield _line(place, "outcome", f"{'' if call is None else f'{call.tool}: '}{_outcome(entry)}")


def entry_documents(entries: Sequence[object], runs: Mapping[int, str | None]) -> Iterator[dict[str, object]]:
    """One object an entry, whole."""
    run_id: str | None = None
    for place, entry, call in _paired(entries):
        run_id = runs.get(place, run_id)
        yield {"place": place, "run_id": run_id, **_document(entry, call)}


def _outcome(entry: object) -> str:
    if not isinstance(entry, Trimmed):
        return render(entry, SHOWN)
    kept = entry.text[:SHOWN]
    return (
        f"{kept}\n[{len(kept)} of {entry.length} characters; {f'archived as {entry.ref}' if entry.ref else 'trimmed'}]"
    )


def _document(entry: object, call: ToolCall | None) -> dict[str, object]:
    match entry:
        case User():
            return {"kind": "user", "text": entry.content}
        case Reply():
            calls = [
                {"call": each.id, "tool": each.tool, "arguments": _arguments(each.arguments)} for each in entry.calls
            ]
            return {"kind": "reply", "text": entry.text, "calls": calls}
        case _:
            whose = {} if call is None else {"call": call.id, "tool": call.tool}
            return {"kind": "outcome", **whose, "outcome": plain(entry)}


def _paired(entries: Sequence[object]) -> Iterator[tuple[int, object, ToolCall | None]]:
    """Each entry with its place; an outcome with its call."""
    calls: list[ToolCall] = []
    for place, entry in enumerate(entries):
        if isinstance(entry, Reply):
            calls = list(entry.calls)
        yield place, entry, None if isinstance(entry, User | Reply) or not calls else calls.pop(0)


def _arguments(text: str) -> object:
    """As JSON where they are; a model may have written anything."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _line(place: int | None, word: str, text: str) -> str:
    shown = printable(text).rstrip("\n").replace("\n", _INDENTED)
    return f"{'' if place is None else place:>5}  {word:<7} {shown}"
