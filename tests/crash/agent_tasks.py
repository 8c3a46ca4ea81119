"""The agents that the crash suite kills: their world, and tasks with the model's script."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import outside
from agents import EFFECTS, TOOLS, Setting
from attrs import frozen

from agent import Agent, Tool
from agent._model import Request
from agent._scripted import Script, ScriptedModel, Turn, call, calls, say
from savepoint import KeyValue, Missing, Workspace, World

# -- the world ------------------------------------------------------------------------------------------------------


class Moody(KeyValue):
    """A map that refuses its snapshot while it holds that it sulks."""

    async def snapshot(self, contents: Any) -> bytes:
        if Setting.refuse and self.get("sulks"):
            raise Missing("the map sulks", next="cheer it up")
        return await super().snapshot(contents)

    async def fork(self, contents: Any, *, at: bytes | None, place: Path) -> "Moody":
        child = await super().fork(contents, at=at, place=place)
        moody = Moody(dict(child.items()))
        moody._owned = True
        return moody


def host(place: Path) -> World:
    """The user's world."""
    place.mkdir(exist_ok=True)
    return World({"files": Workspace(place), "kv": Moody()})


# -- tasks ----------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Task:
    """One script of a model, and what may be asked of its run."""

    turns: Script
    approval: str = "approve"
    """the truth about approvals"""
    handled: bool = False
    """a handler stands around the run and forwards every post"""
    no_questions: bool = False
    loses_world: bool = False
    """a question about a call that writes the world, answered `performed`, loses what it wrote"""
    fresh: bool = False
    """observations differ from run to run, so identities do"""
    max_turns: int = 50


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

TASKS: Mapping[str, Task] = {**ONE_CALL, **THREE_CALLS, **LONGER, **MANY_TURNS}


class Counted(ScriptedModel):
    """A model whose every question is written down outside."""

    async def reply(self, request: Request, *, on_text: Callable[[str], None] | None = None) -> Any:
        outside._append("asked", request.turn)
        return await super().reply(request, on_text=on_text)


def agent_for(task: Task, *, tools: tuple[Tool[..., Any], ...] = TOOLS) -> Agent:
    return Agent(name="crash", model=Counted(task.turns), tools=tools, effects=EFFECTS, max_turns=task.max_turns)
