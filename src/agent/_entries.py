"""What a transcript holds: user texts, replies, and after each reply exactly one outcome a call, in call order.

Pairing is by place, so an outcome is any portable value as it is: what the receipt names, the transcript names too.
"""

from collections.abc import Iterator, Sequence

from attrs import evolve, field, frozen

from savepoint._errors import Corrupt
from savepoint._types import Types, UnknownFields, portable

from ._answer import Answer, Usage, Wanted
from ._message import AssistantMessage, Message, Messages, ToolCall, ToolMessage, UserMessage
from ._render import Denied, Lost, Trimmed, render
from ._secret import Secret

__all__ = [
    "SHOWN",
    "TYPES",
    "Denied",
    "Lost",
    "Reply",
    "ToolCall",
    "Trimmed",
    "User",
    "messages",
    "outcomes_of",
    "paired",
    "recorded",
    "render",
    "whole_turns",
]

SHOWN = 40_000
"""Characters of one outcome that a model is shown; the transcript keeps it whole."""


@portable("agent/user", version=1, keeps="unknown")
@frozen(kw_only=True)
class User:
    """What a person or a program said."""

    content: str
    unknown: UnknownFields = field(default=(), repr=False)
    """fields that a newer version wrote: kept as they are, and ignored"""


@portable("agent/reply", version=1, keeps="unknown")
@frozen(kw_only=True)
class Reply:
    """What the model said; `len(calls)` outcomes follow."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    unknown: UnknownFields = field(default=(), repr=False)
    """fields that a newer version wrote: kept as they are, and ignored"""


TYPES = Types([User, Reply, ToolCall, Denied, Lost, Trimmed, Answer, Wanted, Usage, Secret])
"""What loading a transcript, or the receipt of a model's answer, may build, besides the outcomes' own classes."""


def recorded(answer: Answer, *, step: int) -> Reply:
    """The entry of `answer`: its calls numbered by us, without usage and provider ids, which are no identity."""
    calls = (
        ToolCall(id=f"{step}.{index}", tool=wanted.tool, arguments=wanted.arguments)
        for index, wanted in enumerate(answer.calls)
    )
    return Reply(text=answer.text, calls=tuple(calls))


def paired(entries: Sequence[object]) -> list[str]:
    """What breaks the pairing of calls and outcomes, in words; empty for a transcript that a model may be shown."""
    return [found for found in _walk(entries) if isinstance(found, str)]


def whole_turns(entries: Sequence[object]) -> int:
    """How many of the first entries a cut at their end may keep: a last reply with open calls goes, and its outcomes."""
    for place in range(len(entries) - 1, -1, -1):
        entry = entries[place]
        if isinstance(entry, Reply):
            return place if len(entries) - place - 1 < len(entry.calls) else len(entries)
    return len(entries)


def messages(entries: Sequence[object], *, shown: Messages | None = None, seen: int = 0) -> Messages:
    """What a model is shown of `entries`. Raises `Corrupt` where calls and outcomes do not pair.

    Calls are shown under the place of their reply, so that no two of a session have one id. `shown` is what it gave for
    the first `seen` entries of this same transcript: then only the rest is looked at.
    """
    shown = Messages() if shown is None else shown
    replies = shown.replies
    new: list[Message] = []
    for found in _walk(entries[seen:], seen):
        match found:
            case str():
                raise Corrupt(f"transcript: {found}", next="savepoint verify")
            case User():
                new.append(UserMessage(content=found.content))
            case reply, outcomes:
                calls = _placed(reply.calls, replies)
                replies += 1
                new.append(AssistantMessage(text=reply.text, calls=calls))
                new += [
                    ToolMessage(call_id=call.id, text=render(outcome, SHOWN))
                    for call, outcome in zip(calls, outcomes, strict=True)
                ]
    return shown.extended(new)


def _placed(calls: tuple[ToolCall, ...], reply: int) -> tuple[ToolCall, ...]:
    """Calls under the ids that a model is shown; in a run without a session they have them already."""
    if not calls or calls[0].id == f"{reply}.0":
        return calls
    return tuple(evolve(call, id=f"{reply}.{index}") for index, call in enumerate(calls))


def _walk(entries: Sequence[object], first: int = 0) -> Iterator[User | tuple[Reply, list[object]] | str]:
    """The turns of `entries`, or what is wrong in place of one; places count from `first`."""
    ids: set[str] = set()
    place = 0
    while place < len(entries):
        entry = entries[place]
        match entry:
            case User():
                ids = set()  # calls are numbered within a run, and a run begins with what somebody said
                yield entry
            case Reply():
                yield from _wrong_ids(entry, first + place, ids)
                outcomes = outcomes_of(entries, place + 1, len(entry.calls))
                yield from _open(entry, outcomes, first + place)
                if len(outcomes) == len(entry.calls):
                    yield entry, outcomes
                place += len(outcomes)
            case _:
                yield f"entry {first + place} ({type(entry).__name__}) is an outcome without a call"
        place += 1


def outcomes_of(entries: Sequence[object], start: int, count: int) -> list[object]:
    """The outcomes from `start`: a `User` or `Reply` in the place of one is the next turn, so one is missing."""
    found: list[object] = []
    for entry in entries[start : start + count]:
        if isinstance(entry, (User, Reply)):
            break
        found.append(entry)
    return found


def _open(reply: Reply, outcomes: Sequence[object], place: int) -> Iterator[str]:
    for call in reply.calls[len(outcomes) :]:
        yield f"call {call.id} ({call.tool}) of entry {place} has no outcome"


def _wrong_ids(reply: Reply, place: int, ids: set[str]) -> Iterator[str]:
    steps = {call.id.rpartition(".")[0] for call in reply.calls}
    if len(steps) > 1:
        yield f"the calls of entry {place} are of several steps: {', '.join(sorted(steps))}"
    for index, call in enumerate(reply.calls):
        if call.id.rpartition(".")[2] != str(index):
            yield f"call {call.id} of entry {place} stands at index {index}"
        if call.id in ids:
            yield f"call {call.id} of entry {place} has the id of an earlier call"
        ids.add(call.id)
