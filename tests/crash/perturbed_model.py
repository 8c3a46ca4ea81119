"""Almost the same: what a program or a model may ask for after a resume, and what must come of it. Pure.

`expected` walks the calls that a process makes and says, from what was durable when it began, what happens outside
and what it asks about. It shares nothing with recovery but the keys of calls, which a property test pins.
"""

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen
from perturbed_program import Json, arguments, inner, said

from effects._idempotency import Idempotency
from savepoint._codec import encode
from savepoint._frame import Frame

Turns = Sequence[Sequence[Json]]
CLASSES = ("look", "mark", "team", "put", "pay", "send", "sure", "loose")
OUTSIDE = frozenset({"put", "pay", "send", "sure", "loose"})
DOUBTFUL = OUTSIDE - {"put"}

# -- the program and its perturbations --------------------------------------------------------------------------------

ZOE = "Zo\N{LATIN SMALL LETTER E WITH DIAERESIS}"


def plan(target: str, *, nested: bool) -> Turns:
    """A ONCE call, a READ, a CONTAINED call, one of the class at hand that rests on the READ, a ONCE call that rests
    on both; then a step more. `nested`: the first step is one COMPOSITE body.
    """
    body = [
        {"effect": "send", "name": "first", "x": "first"},
        {"effect": "look", "name": "look", "x": "q"},
        {"effect": "mark", "name": "mark", "x": "m"},
        {"effect": target, "name": "target", "x": {"to": ZOE, "n": 1}, "y": {"result": "look"}},
        {"effect": "send", "name": "last", "x": {"result": "target"}, "y": {"result": "mark"}},
    ]
    return _with(body, nested=nested)


def _with(body: Sequence[Json], *, nested: bool) -> Turns:
    first = [{"effect": "team", "name": "all", "x": "all", "inner": body}] if nested else body
    return [first, [{"effect": "put", "name": "end", "x": "end"}]]


def _body(turns: Turns) -> tuple[list[Json], bool]:
    nested = any("inner" in call for call in turns[0])
    return list(turns[0][0]["inner"] if nested else turns[0]), nested


Change = Callable[[list[Json]], list[Json]]


def _replaced(name: str, **changes: object) -> Change:
    return lambda body: [{**call, **changes} if call["name"] == name else call for call in body]


def _index(body: Sequence[Json], name: str) -> int:
    return next(number for number, call in enumerate(body) if call["name"] == name)


def _dropped(name: str) -> Change:
    return lambda body: [call for call in body if call["name"] != name]


def _swapped(one: str, other: str) -> Change:
    def swap(body: list[Json]) -> list[Json]:
        here, there = _index(body, one), _index(body, other)
        body[here], body[there] = body[there], body[here]
        return body

    return swap


def _preceded(name: str, by: Callable[[Json], Json]) -> Change:
    def insert(body: list[Json]) -> list[Json]:
        at = _index(body, name)
        return [*body[:at], by(body[at]), *body[at:]]

    return insert


CHANGES: Mapping[str, Change] = {
    "nothing": lambda body: body,
    "keywords for positions": _replaced("target", keywords=True),
    "reordered keys": _replaced("target", x={"n": 1, "to": ZOE}),
    "other wording": _replaced("target", x={"to": f"dear {ZOE}", "n": 1}),
    "whitespace": _replaced("target", x={"to": f"{ZOE} ", "n": 1}),
    "another normal form": _replaced("target", x={"to": unicodedata.normalize("NFD", ZOE), "n": 1}),
    "1.0 for 1": _replaced("target", x={"to": ZOE, "n": 1.0}),
    "text for 1": _replaced("target", x={"to": ZOE, "n": "1"}),
    "True for 1": _replaced("target", x={"to": ZOE, "n": True}),
    "one more argument": _replaced("target", x={"to": ZOE, "n": 1, "cc": None}),
    "another READ": _replaced("look", x="q?"),
    "another CONTAINED": _replaced("mark", x="m?"),
    "another first call": _replaced("first", x="First"),
    "one ONCE more before": _preceded("target", lambda _: {"effect": "send", "name": "more", "x": "more"}),
    "one like it more before": _preceded("target", lambda call: {**call, "name": "more", "x": "more"}),
    "one READ more at the start": lambda body: [{"effect": "look", "name": "more", "x": "more"}, *body],
    "without it": _dropped("target"),
    "without the first": _dropped("first"),
    "without the last": _dropped("last"),
    "without all": lambda _: [],
    "it comes first": _swapped("first", "target"),
    "it comes last": _swapped("target", "last"),
    "twice": _preceded("target", lambda call: {**call, "name": "twin"}),
    "another class": lambda body: _replaced("target", effect="pay" if _is(body, "send") else "send")(body),
}
ANOTHER_VERSION = "another version"
PERTURBATIONS = (*CHANGES, ANOTHER_VERSION)


def _is(body: Sequence[Json], effect: str) -> bool:
    return body[_index(body, "target")]["effect"] == effect


def perturbed(turns: Turns, how: str) -> tuple[Turns, int]:
    """What the program asks for from now on, and the version of its effects."""
    if how == ANOTHER_VERSION:
        return turns, 2
    body, nested = _body(turns)
    return _with(CHANGES[how](body), nested=nested), 1


# -- what must come of it ----------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Expected:
    """Of one process."""

    status: str
    questions: Sequence[tuple[str, str]] = ()
    """kind and call of each one that is open then, sorted"""
    acts: Sequence[str] = ()
    """what it does outside, in order"""


class Waits(Exception):
    """The process asks; `args` are kind and call of each question."""


@define(kw_only=True)
class _Walk:
    """The calls of one process, against what is known of the calls of those before."""

    turns: Turns
    known: Mapping[tuple[int, str], Json]
    """step and key -> receipt, settled as far as decisions and probes do"""
    excused: frozenset[tuple[int, str]]
    remembered: frozenset[str]
    """idempotency keys that the outside has seen"""
    step: int
    acts: list[str] = field(factory=list[str])
    asked: set[str] = field(factory=set[str])
    reused: set[str] = field(factory=set[str])

    def all(self) -> None:
        while self.step < len(self.turns):
            self.body(Frame(), self.turns[self.step])
            self.none_missing("")
            self.asked, self.reused = set(), set()
            self.step += 1

    def body(self, frame: Frame, calls: Sequence[Json]) -> None:
        results: dict[str, str] = {}
        for call in calls:
            x, y = arguments(call, results)
            self.call(frame, call["effect"], x, y)
            results[call.get("name", "")] = said(call["effect"], x, y)

    def call(self, frame: Frame, name: str, x: Any, y: Any) -> None:
        raw = frame.next_key(name, encode({"x": x, "y": y}).digest)
        key, receipt = raw.hex(), self.known.get((self.step, raw.hex()))
        self.asked.add(key)
        if receipt is not None and receipt["status"] == "performed":
            self.reused.add(key)
            return
        if name in OUTSIDE and receipt is None:
            self.none_missing("")
        if name == "team":
            self.body(frame.inside(raw, Idempotency.COMPOSITE), inner(self.turns, said(name, x, y)))
            self.none_missing(key)
        elif name in OUTSIDE and not (name == "pay" and receipt is not None and receipt["key"] in self.remembered):
            self.acts.append(said(name, x, y))

    def none_missing(self, level: str) -> None:
        """Raises `Waits` where a doubtful call below `level` was known and not asked for again."""
        missing = [
            ("diverged", receipt["call"])
            for (step, key), receipt in self.known.items()
            if step == self.step
            and receipt["effect"] in DOUBTFUL
            and key.startswith(level)
            and key != level
            and key not in self.asked
            and (step, key) not in self.excused
            and not any(key.startswith(above) for above in self.reused)
        ]
        if missing:
            raise Waits(*missing)


def expected(before: Json, turns: Turns, version: int, remembered: frozenset[str]) -> Expected:
    """What a process does and asks that finds `before` and is not killed."""
    receipts = {
        (each["step"], each["path"]): each
        for each in before["receipts"]
        if each["step"] >= before["step"] and each["status"] != "withdrawn"
    }
    decided = {(kind, key, tried): choice for kind, choice, key, tried in before["decided"]}
    if ("diverged", "fail") in {(kind, choice) for kind, choice, *_ in before["decided"]}:
        return Expected(status="failed")
    known: dict[tuple[int, str], Json] = {}
    questions: list[tuple[str, str]] = []
    for place, each in receipts.items():
        settled, kind = _settled(each, decided, version, remembered)
        known[place] = {**each, "status": settled}
        questions += [(kind, each["call"])] if kind else []
    if questions:
        return Expected(status="waiting", questions=sorted(questions))
    excused = frozenset(
        place for place, each in receipts.items() if ("diverged", each["key"], each["tried"]) in decided
    )
    walk = _Walk(turns=turns, known=known, excused=excused, remembered=remembered, step=before["step"])
    try:
        walk.all()
    except Waits as waits:
        return Expected(status="waiting", questions=sorted(waits.args), acts=walk.acts)
    return Expected(status="completed", acts=walk.acts)


def _settled(
    each: Json, decided: Mapping[tuple[str, str, int], str], version: int, remembered: frozenset[str]
) -> tuple[str, str]:
    """The status of a call once what can be settled is, and the kind of the question about it, if there is one."""
    if each["effect"] not in DOUBTFUL or each["status"] == "performed":
        return each["status"], ""
    place = (each["key"], each["tried"])
    if each["version"] != version:
        said = decided.get(("diverged", *place))
        return ("performed", "") if said == "performed" else (each["status"], "diverged")
    if each["effect"] == "pay":
        return each["status"], ""
    if each["effect"] == "sure":
        return ("performed" if each["key"] in remembered else each["status"]), ""
    said = decided.get(("in_doubt", *place))
    if said is None:
        return each["status"], "in_doubt"
    return ("performed" if said == "performed" else each["status"]), ""


# -- laws that need no model -------------------------------------------------------------------------------------------


def laws(acts: Sequence[tuple[str, str, str]], ended: Json, turns: Turns) -> Iterator[str]:
    """What is wrong with a completed run. `acts`: effect, call and idempotency key of each act, in order."""
    doubtful = [(call, key) for effect, call, key in acts if effect in DOUBTFUL]
    for call, key in doubtful:
        if [each for _, each in doubtful].count(key) > 1:
            yield f"duplicate: {call} has the key {key} twice"
    receipts = {each["key"]: each for each in ended["receipts"]}
    diverged = {key for kind, _, key, _ in ended["decided"] if kind == "diverged"}
    for call, key in doubtful:
        # A KEYED call within its window is never in doubt: that it is left is all that is ever said of it.
        if key not in receipts or (receipts[key]["status"] != "performed" and key not in diverged):
            yield f"lost: {call} was performed and neither its receipt nor a decision says so"
    asked = {call for turn in turns for call in _calls(turns, turn)}
    for call, key in doubtful:
        if call not in asked and key not in diverged and receipts[key]["step"] >= ended["from"]:
            yield f"diverged: the program did not ask for {call} again, and nobody was asked"
    for call in sorted(asked):
        if call.split("(")[0] in OUTSIDE and call not in {each for _, each, _ in acts}:
            yield f"lost: the program asked for {call}, and the outside never saw it"


def _calls(turns: Turns, calls: Sequence[Json]) -> Iterator[str]:
    results: dict[str, str] = {}
    for call in calls:
        text = said(call["effect"], *arguments(call, results))
        results[call.get("name", "")] = text
        yield text
        if call["effect"] == "team":
            yield from _calls(turns, inner(turns, text))
