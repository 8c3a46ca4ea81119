"""Progress for readers that are no terminal: plain lines on stderr, or JSON lines on stdout."""

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from agent._progress import (
    CallBegan,
    CallEnded,
    Ended,
    HandedOver,
    Progress,
    Replied,
    Saved,
    Started,
    TextDelta,
    Within,
)

from ._output import Output, one_line, plain

WIDTH = 200
"""Characters of a line about a call."""

Watch = Callable[[Progress], None]


def arguments_of(arguments: Mapping[str, object], width: int) -> str:
    """`amount=3, to="a"`, at most `width` characters."""
    pairs = (f"{name}={json.dumps(plain(value), ensure_ascii=False)}" for name, value in arguments.items())
    return one_line(", ".join(pairs), width)


@contextmanager
def json_lines(output: Output) -> Generator[Watch]:
    """One object an event. The first holds the run id and is out before the first effect."""

    def watch(event: Progress) -> None:
        if (document := as_json(event)) is not None:
            output.emit(document)

    yield watch


def as_json(event: Progress) -> dict[str, object] | None:
    """None for pieces of text (the whole reply follows) and for the end, which the command tells itself."""
    match event:
        case Started():
            repeat = {"may_repeat": list(event.may_repeat)} if event.may_repeat else {}
            return {"event": "started", "run_id": event.run_id, "resumed_from": event.resumed_from, **repeat}
        case Replied():
            return {"event": "reply", "step": event.step, "text": event.text, "calls": list(event.calls)}
        case CallBegan():
            arguments = plain(event.arguments)
            return {"event": "call", "call": event.call_id, "tool": event.tool, "arguments": arguments}
        case CallEnded():
            outcome: dict[str, object] = {"failed": event.failed, "known": event.known, "text": event.text}
            return {"event": "outcome", "call": event.call_id, "tool": event.tool, **outcome}
        case Saved():
            return {"event": "savepoint", "step": event.step}
        case HandedOver():
            return {"event": "handoff", "agent": event.agent}
        case Within():
            inner = as_json(event.event)
            return None if inner is None else {**inner, "within": event.call_id, "agent": event.agent}
        case TextDelta() | Ended():
            return None


@contextmanager
def plain_lines(output: Output) -> Generator[Watch]:
    """One line an event."""

    def watch(event: Progress) -> None:
        if line := as_line(event):
            output.note(line)

    yield watch


def as_line(event: Progress) -> str:
    match event:
        case Started(resumed_from=None):
            again = f"; it may do again what its origin did: {', '.join(event.may_repeat)}" if event.may_repeat else ""
            return f"run {event.run_id} started{again}"
        case Started():
            return f"run {event.run_id} resumed from step {event.resumed_from}"
        case Replied(calls=()) | TextDelta() | Ended():
            return ""
        case Replied():
            return one_line(event.text, WIDTH)
        case CallBegan():
            return f"  call {event.call_id} {event.tool}({arguments_of(event.arguments, WIDTH)})"
        case CallEnded():
            how = "known" if event.known else "failed" if event.failed else "done"
            return f"  {how} {event.call_id} {event.tool}: {one_line(event.text, WIDTH)}"
        case Saved():
            return f"savepoint at step {event.step}"
        case HandedOver():
            return f"handed over to {event.agent}"
        case Within():
            inner = as_line(event.event)
            return f"    {event.agent}: {inner.lstrip()}" if inner else ""
