"""Mending a transcript that was cut off: calls without an outcome and outcomes without a call go, texts stay."""

from collections.abc import Sequence

from attrs import evolve

from ._entries import Reply, User, outcomes_of


def drop_dangling_tool_calls(entries: Sequence[object]) -> list[object]:
    """The entries without the calls that have no outcome and without the outcomes that have no call.

    A reply keeps its first calls, those that have outcomes; one that is left with neither call nor text goes. Nothing
    is numbered anew: ids that are wrong stay wrong, and `append` refuses them by name. Idempotent.
    """
    kept: list[object] = []
    place = 0
    while place < len(entries):
        entry = entries[place]
        place += 1
        if isinstance(entry, User):
            kept.append(entry)
        elif isinstance(entry, Reply):
            outcomes = outcomes_of(entries, place, len(entry.calls))
            place += len(outcomes)
            if outcomes or entry.text or not entry.calls:
                kept += [evolve(entry, calls=entry.calls[: len(outcomes)]), *outcomes]
    return kept
