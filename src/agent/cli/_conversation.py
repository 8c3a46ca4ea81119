"""A conversation as a person reads it: what was said, asked for, and what came of it, each entry with its place."""

import json
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO

from rich.console import Console
from rich.text import Text

from agent._entries import Reply, ToolCall, Trimmed, User, render

from ._output import one_line, plain, printable

SHOWN = 400
"""Characters of an outcome, and of a call's arguments; what was said is shown whole."""
_INDENTED = "\n" + " " * 15


def entry_lines(entries: Sequence[object], runs: Mapping[int, str | None], width: int | None) -> Iterator[str]:
    """`place  word  text`, wrapped to `width` columns, or not. `runs`: the run whose part begins at a place, None for a
    part without one.
    """
    for place, entry, call in _paired(entries):
        if place in runs:
            yield f"run {printable(runs[place] or '-')}"
        for number, (word, text) in enumerate(_words(entry, call)):
            shown = _INDENTED.join(_wrapped(printable(text).rstrip("\n"), width))
            yield f"{place if number == 0 else '':>5}  {word:<7} {shown}"


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


def _words(entry: object, call: ToolCall | None) -> Iterator[tuple[str, str]]:
    match entry:
        case User():
            yield "user", entry.content
        case Reply():
            if entry.text or not entry.calls:
                yield "reply", entry.text
            for asked in entry.calls:
                yield "call", f"{asked.tool} {one_line(asked.arguments, SHOWN)}"
        case _:
            yield "outcome", f"{'' if call is None else f'{call.tool}: '}{_outcome(entry)}"


def _wrapped(text: str, width: int | None) -> list[str]:
    """The lines of `text`; where a terminal is so wide, none is broken inside a word or under the places."""
    lines = text.split("\n")
    if width is None:
        return lines
    room = max(20, width - len(_INDENTED) + 1)
    console = Console(file=StringIO(), width=room)
    return [part.plain.rstrip() for line in lines for part in Text(line).wrap(console, room) or [Text("")]]
