"""After a resume the model asks for almost the same: a recorded reply is not asked for again, one that was not is
another one.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

import outside
import pytest
from rig import HERE

from savepoint.crash import ForkServer, Kill
from savepoint.crash._oracle import asked_again
from savepoint.crash._room import Room

EXHAUSTIVE = bool(os.environ.get("CRASH_EXHAUSTIVE"))
LIVES = 6
Json = dict[str, Any]
Wanted = list[str]
"""A tool, the text of its arguments, the provider's id."""
Script = list[list[Wanted]]

TARGETS: Mapping[str, str] = {
    "look": "what",
    "bump": "key",
    "note": "text",
    "orchestrate": "what",
    "team": "what",
    "put": "what",
    "pay": "what",
    "post": "what",
    "sure": "what",
    "loose": "text",
    "ticket": "what",
}
"""A tool of each class, and its parameter."""


def script(target: str) -> Script:
    """A reply of two calls, one of one call, the end."""
    return [
        [["post", '{"what": "first"}', "id-1"], [target, f'{{"{TARGETS[target]}": "Zo\u00eb 1"}}', "id-2"]],
        [["post", '{"what": "second"}', "id-3"]],
        [],
    ]


def _each(change: Callable[[Wanted], Wanted]) -> Callable[[list[Wanted]], list[Wanted]]:
    return lambda turn: [change(wanted) for wanted in turn]


def _text(old: str, new: str) -> Callable[[list[Wanted]], list[Wanted]]:
    return _each(lambda wanted: [wanted[0], wanted[1].replace(old, new), wanted[2]])


CHANGES: Mapping[str, Callable[[list[Wanted]], list[Wanted]]] = {
    "a new id": _each(lambda wanted: [wanted[0], wanted[1], f"{wanted[2]}-new"]),
    "whitespace between": _text(": ", " :\n "),
    "whitespace within": _text('"}', ' "}'),
    "escapes": _text("\u00eb", "\\u00eb"),
    "another normal form": _text("\u00eb", "e\u0308"),
    "other wording": _text('": "', '": "dear '),
    "a number": _text('"Zo\u00eb 1"', "1"),
    "one more before": lambda turn: [["post", '{"what": "more"}', "id-0"], *turn],
    "one READ more before": lambda turn: [["look", '{"what": "more"}', "id-0"], *turn],
    "one fewer": lambda turn: turn[1:] or [["look", '{"what": "instead"}', "id-0"]],
    "swapped": lambda turn: turn[::-1],
    "twice": lambda turn: [*turn, turn[-1]],
}


def perturbed(script: Script, how: str) -> Script:
    return [CHANGES[how](turn) if turn else turn for turn in script]


class Story:
    """One agent, killed once, whose rest is told with other models."""

    def __init__(self, server: ForkServer, room: Room) -> None:
        self.server = server
        self.room = room
        self.references: dict[str, Json] = {}

    def life(self, script: Script, kill: Kill | None = None, **more: Any) -> Any:
        return self.server.attempt({"place": str(self.room.live), "script": script, "first": True, **more}, kill)

    def kills(self, script: Script) -> list[Kill]:
        self.room.empty()
        reply = self.life(script, lasting=str(self.room.live))
        assert reply.report["status"] == "completed", reply.report
        if EXHAUSTIVE:
            return list(reply.arrivals)
        same = groupby(zip(reply.arrivals, reply.lasting, strict=True), key=lambda each: each[1])
        return [next(iter(group))[0] for _, group in same]

    def until(self, script: Script, kill: Kill) -> None:
        self.room.empty(keep_from=1)
        self.life(script, kill)
        self.room.before(1)

    def reference(self, server_room: Room, script: Script) -> Json:
        """What an unkilled run of this very script comes to."""
        if (name := repr(script)) not in self.references:
            server_room.empty()
            report = self.server.attempt({"place": str(server_room.live), "script": script, "first": True}).report
            self.references[name] = {"report": report, "acts": acts(server_room.live)}
        return self.references[name]

    def rest(self, first: Script, then: Script) -> Iterator[str]:
        self.room.restore(1)
        before = acts(self.room.live)
        durable, kinds, report = None, [], {}
        for _ in range(LIVES):
            report = self.life(then, first=False, answer="all").report
            if durable is None:
                durable = max(next(each for each in reversed(self.asked()) if isinstance(each, list)), default=-1) + 1
            kinds += [kind for kind, *_ in report["questions"]]
            if report["status"] == "completed":
                break
        yield from map(str, asked_again(self.asked()))
        if report["status"] != "completed":
            yield f"it is {report['status']} ({report['error']}), questions {report['questions']}"
            return
        if "diverged" in kinds:
            yield "the calls of a recorded reply cannot diverge"
        if durable == 0 and before:
            yield f"{before} were done before the reply was durable"
        reference = self.reference(Room(self.room.place / "reference"), [*first[:durable], *then[durable:]])
        if (found := acts(self.room.live)) != reference["acts"]:
            yield f"with {durable} durable replies the outside saw {found}, and should have seen {reference['acts']}"
        for what in ("value", "world"):
            if not lost(report) and (found := report["ended"][what]) != reference["report"]["ended"][what]:
                yield f"{what} is {found}, and should be {reference['report']['ended'][what]}"

    def asked(self) -> list[Any]:
        return outside.asked(self.room.live / "outside")


def lost(report: Json) -> bool:
    """Whether a decision lost what a call wrote to the world, as it says itself."""
    return ["in_doubt", "loose", "performed"] in report["ended"]["decided"]


def acts(place: Path) -> list[str]:
    """What was done outside, in no order: of IDEMPOTENT calls each once, of all others as often as it was."""
    found = outside.ledger(place / "outside")
    often = [(each.tag, outside.renamed(repr(each.arguments)), each.kind, each.key) for each in found]
    once = dict.fromkeys(each for each in often if each[2] == "idempotent")
    rest = [each for each in often if each[2] != "idempotent"]
    return sorted(f"{kind} {tag} {arguments}" for tag, arguments, kind, _ in [*once, *rest])


@pytest.fixture(scope="module")
def forks() -> Iterator[list[ForkServer]]:
    with (
        ForkServer("perturbed_agent:live", path=[HERE]) as one,
        ForkServer("perturbed_agent:live", path=[HERE]) as other,
    ):
        yield [one, other]


@pytest.mark.timeout(3000)
def test_a_model_that_asks_for_almost_the_same(forks: list[ForkServer], memory: Path) -> None:
    def told(server: ForkServer, targets: Sequence[str]) -> list[str]:
        wrong: list[str] = []
        for target in targets:
            story, first = Story(server, Room(memory / target)), script(target)
            kills = story.kills(first)
            for number, kill in enumerate(kills if EXHAUSTIVE else kills[[*TARGETS].index(target) % 4 :: 4]):
                story.until(first, kill)
                for how in some([*CHANGES], number + 5 * [*TARGETS].index(target)):
                    found = story.rest(first, perturbed(first, how))
                    wrong += [f"{target}, 0@{kill}, then {how}: {each}" for each in found]
        return wrong

    with ThreadPoolExecutor(len(forks)) as pool:
        wrong = [each for some in pool.map(told, forks, [[*TARGETS][::2], [*TARGETS][1::2]]) for each in some]
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong[:20])


def some(every: Sequence[str], number: int) -> Sequence[str]:
    """One of them, another one for each number; all where everything is tried."""
    return every if EXHAUSTIVE else every[number % len(every) :][:1]


# -- another version of a tool ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [*TARGETS])
@pytest.mark.parametrize("known", [False, True], ids=["unsettled", "settled"])
def test_another_version_of_a_tool_gets_the_settled_calls_and_asks_about_the_others(
    known: bool, target: str, forks: list[ForkServer], memory: Path
) -> None:
    """The unsettled one died inside its body; the settled one's outcome is durable, its turn's savepoint is not."""
    story, wanted = Story(forks[0], Room(memory)), [script(target)[0][1:], []]
    inner = target in ("orchestrate", "team")  # COMPOSITE: what stands for it is the first ONCE call inside
    kill = Kill("gap.before", 1) if known and not inner else Kill("body.after", 3 if target == "orchestrate" else 2)
    if known and not inner:
        beside = "ticket" if target == "post" else "post"
        wanted[0].append([beside, '{"what": "beside"}', ""])  # its outcome lands later, so the first one is saved
        kill = Kill("outcome.after", 1)
    story.until(wanted, kill)
    newer = {"changed": {target: {"version": 2}}}
    before = acts(story.room.live)
    report = story.life(wanted, first=False, **newer).report
    kinds = [kind for kind, name, _ in report["questions"] if name == target]
    doubtful = target in ("pay", "post", "sure", "loose", "ticket")
    # An undeclared tool runs alone, so its outcome is durable before the one beside it begins.
    assert kinds == (["diverged"] if doubtful and not known else [])
    if kinds:
        assert acts(story.room.live) == before
    done = report if report["status"] == "completed" else story.life(wanted, first=False, answer="all", **newer).report
    assert done["status"] == "completed"
    assert not doubtful or sum(" 0.0 " in each for each in acts(story.room.live)) == 1


# -- a world that was not saved -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mood", ["fine", "sad"])
def test_a_contained_call_whose_redo_says_something_else_asks_about_what_came_after_it(
    mood: str, forks: list[ForkServer], memory: Path
) -> None:
    """The world cannot be saved, so the CONTAINED call is done again; the post was made after its first answer."""
    story = Story(forks[0], Room(memory))
    calls = [("sulk", '{"on": true}'), ("mood", '{"what": "x"}'), ("post", '{"what": "y"}'), ("sulk", '{"on": false}')]
    wanted = [*([[*each, ""]] for each in calls), []]
    story.room.empty(keep_from=1)
    story.life(wanted, Kill("reply.after", 4))
    assert len(acts(story.room.live)) == 1
    report = story.life(wanted, first=False, mood=mood).report
    assert [each[:2] for each in report["questions"]] == ([] if mood == "fine" else [["diverged", "post"]])
    done = story.life(wanted, first=False, mood=mood, answer="all").report
    assert done["status"] == "completed"
    assert len(acts(story.room.live)) == 1
