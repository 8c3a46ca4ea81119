"""The agents that the crash suite kills: tasks with the model's script."""

from collections.abc import Callable, Mapping
from typing import Any

import outside
from agent_task import Task, first_said

from agent import ModelError
from agent._model import Request
from agent._scripted import Turn, call, calls, say


def _one(turn: Turn, **more: Any) -> Task:
    return Task(turns=[turn, say("done")], **more)


def _last(request: Request) -> Turn:
    """A reply that depends on what was said before."""
    return call("post", what=f"after {getattr(request.messages[-1], 'text', '')}")


ONE_CALL: Mapping[str, Task] = {
    "READ": _one(call("look", what="x")),
    "CONTAINED, map": _one(call("bump", key="n")),
    "CONTAINED, file": _one(call("note", text="one")),
    "COMPOSITE": _one(call("orchestrate", what="x"), fresh=True),
    "COMPOSITE with branches": _one(call("team", what="x")),
    "IDEMPOTENT": _one(call("put", what="x")),
    "KEYED": _one(call("pay", what="x")),
    "ONCE": _one(call("post", what="x")),
    "ONCE in a thread": _one(call("post_in_a_thread", what="x")),
    "ONCE that fails": _one(call("broken", what="x")),
    "ONCE, ambiguous": _one(call("gone", what="x")),
    "ONCE with a final probe": _one(call("sure", what="x"), no_questions=True),
    "ONCE with a probe that is not final": _one(call("unsure", what="x")),
    "ONCE, approved": _one(call("approved_post", what="x")),
    "ONCE, denied": _one(call("approved_post", what="x"), approval="deny"),
    "ONCE, edited": _one(call("approved_post", what="x"), approval="edit"),
    "CONTAINED, approved": _one(call("approved_note", text="x")),
    "ONCE, handled": _one(call("post", what="x"), handled=True),
    "undeclared": _one(call("loose", text="x"), loses_world=True),
}

THREE_CALLS: Mapping[str, Task] = {
    "ONCE x 3": _one(calls(call("post", what="a"), call("post", what="a"), call("post", what="b"))),
    "READ, ONCE, CONTAINED": _one(calls(call("look", what="a"), call("post", what="b"), call("bump", key="n"))),
    "KEYED, IDEMPOTENT, CONTAINED file": _one(
        calls(call("pay", what="a"), call("put", what="b"), call("note", text="c"))
    ),
    "approvals first": _one(
        calls(call("post", what="a"), call("approved_post", what="b"), call("approved_post", what="c"))
    ),
    "what the model did wrong": _one(
        calls(call("post", what="a"), call("nothing", x=1), call("post", _raw='{"what": '), call("bump", key="n"))
    ),
    "barrier": _one(
        calls(call("note", text="a"), call("loose", text="b"), call("note", text="c"), call("post", what="d")),
        loses_world=True,
    ),
    "COMPOSITE x 2, ONCE": _one(
        calls(call("orchestrate", what="x"), call("orchestrate", what="y"), call("post", what="z")), fresh=True
    ),
    "ambiguous beside ONCE": _one(calls(call("gone", what="a"), call("post", what="b"), call("look", what="c"))),
    "handled beside": _one(calls(call("post", what="a"), call("look", what="b"), call("post", what="c")), handled=True),
}

LONGER: Mapping[str, Task] = {
    "savepoint refused": Task(
        turns=[
            calls(call("bump", key="n"), call("post", what="a")),
            call("sulk", on=True),
            calls(call("bump", key="n"), call("post", what="b")),
            _last,
            call("sulk", on=False),
            say("done"),
        ]
    ),
    "replies that depend": Task(turns=[call("bump", key="n"), _last, call("put", what="x"), _last, say("done")]),
    "each class in turn": Task(
        turns=[
            *(call("look", what="1"), call("bump", key="n"), call("note", text="3"), call("put", what="4")),
            *(call("pay", what="5"), call("post", what="6"), call("sure", what="7"), call("team", what="8")),
            say("done"),
        ],
    ),
}

MANY_TURNS: Mapping[str, Task] = {
    "many turns": Task(turns=[*(call("put", what=str(turn)) for turn in range(14)), say("done")], max_turns=10),
    "two approvals": _one(calls(call("approved_post", what="A"), call("approved_post", what="B"))),
    "three puts": _one(calls(call("put", what="a"), call("put", what="b"), call("put", what="c"))),
    "work": _one(call("work")),
    "publish": _one(call("publish", path="draft.txt")),
}


def _keyed(request: Request) -> Turn:
    """A change of the world that no run beside this one makes too."""
    return calls(call("post", what="a"), call("bump", key=first_said(request)))


def _written(request: Request) -> Turn:
    """A change that the run beside this one makes too, in other words."""
    return call("note", text=first_said(request))


def _longer_first(request: Request) -> Turn:
    """Who was called first ends last."""
    return call("look", what="l") if first_said(request) == "x" else say("helped")


def _silent_once(request: Request) -> Turn:
    if outside.first_time(f"silence of {first_said(request)}"):
        raise ModelError("the script has ended", next="write more of it")
    return call("post", what="b")


def _helped(*turns: Turn | Callable[[Request], Turn]) -> Mapping[str, Task]:
    return {"helper": Task(turns=[*turns, say("helped")])}


NESTED: Mapping[str, Task] = {
    "nested": Task(
        turns=[call("helper", input="x"), call("post", what="z"), say("done")],
        helpers=_helped(calls(call("post", what="a"), call("pay", what="b")), call("note", text="c")),
    ),
    "nested beside others": Task(
        turns=[calls(call("helper", input="x"), call("post", what="y"), call("bump", key="n")), say("done")],
        helpers=_helped(calls(call("note", text="a"), call("post", what="b"))),
    ),
    "nested x 2": Task(
        turns=[calls(call("helper", input="x"), call("helper", input="y")), say("done")], helpers=_helped(_keyed)
    ),
    "nested x 2, one file": Task(
        turns=[calls(call("helper", input="x"), call("helper", input="y")), say("done")],
        helpers=_helped(_written, _longer_first),
    ),
    "nested in nested": Task(
        turns=[call("middle", input="x"), say("done")],
        helpers={
            "middle": Task(
                turns=[calls(call("helper", input="y"), call("post", what="a")), call("note", text="b"), say("asked")],
                helpers=_helped(calls(call("post", what="c"), call("note", text="d"))),
            )
        },
    ),
    "nested, approved": Task(
        turns=[calls(call("helper", input="x"), call("post", what="y")), say("done")],
        helpers=_helped(call("approved_post", what="a")),
    ),
    "nested, ambiguous": Task(
        turns=[calls(call("helper", input="x"), call("post", what="y")), say("done")],
        helpers=_helped(calls(call("gone", what="a"), call("note", text="b"))),
    ),
    "nested, strict": Task(
        turns=[calls(call("helper", input="x"), call("bump", key="n")), say("done")],
        helpers=_helped(calls(call("post", what="a"), call("note", text="b")), call("look", what="c")),
        strict=True,
    ),
    "nested, interrupted": Task(
        turns=[calls(call("helper", input="x"), call("look", what="y")), say("done")],
        helpers=_helped(calls(call("post", what="a"), call("note", text="b")), _silent_once),
        interrupted=True,
    ),
}

SESSIONS: Mapping[str, Task] = {
    "session": _one(calls(call("post", what="a"), call("look", what="b")), session=True),
    "handoffs": Task(
        turns=[
            calls(call("put", what="a"), call("transfer_to_partner")),
            calls(call("transfer_to_crash"), call("post", what="b")),
            say("done"),
        ],
        partner="partner",
    ),
    "all in one": Task(
        turns=[
            calls(call("transfer_to_partner"), call("approved_post", what="a"), call("helper", input="x")),
            calls(call("post", what="b"), call("transfer_to_crash")),
            say("done"),
        ],
        session=True,
        partner="partner",
        helpers=_helped(calls(call("post", what="c"), call("note", text="d"))),
    ),
}

KILLED: Mapping[str, Task] = {**ONE_CALL, **THREE_CALLS, **LONGER, **NESTED, **SESSIONS}
"""whose processes die at every point"""
LIMITED = Task(turns=[call("put", what="1"), call("put", what="2"), say("helped")], max_turns=2)
TASKS: Mapping[str, Task] = {
    **KILLED,
    **MANY_TURNS,
    "nested, limited": Task(turns=[call("helper", input="x"), say("done")], helpers={"helper": LIMITED}),
}
