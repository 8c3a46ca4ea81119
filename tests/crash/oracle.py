"""What must hold of one history of a run, killed or not: a pure function from what was seen to complaints."""

import re
from collections.abc import Mapping, Sequence

from attrs import field, frozen
from outside import Act

DOUBTFUL = frozenset({"keyed", "once"})


@frozen(kw_only=True)
class Ended:
    """How a completed run stands, as text: fresh READ values are renamed by first appearance."""

    value: str
    world: str
    points: Mapping[int, str] = field(factory=dict[int, str])
    """step -> what is persisted there"""
    ids: Mapping[int, str] = field(factory=dict[int, str])
    """step -> the savepoint's identity"""
    receipts: Mapping[str, str] = field(factory=dict[str, str])
    """idempotency key -> newest status of the call"""
    answered: Sequence[tuple[str, str, str]] = ()
    """kind, effect, verdict of each question"""


@frozen(kw_only=True)
class Lived:
    """One process's life."""

    killed: bool
    status: str = ""
    questions: Sequence[tuple[str, str, str]] = ()
    """kind, effect, idempotency key of what the run waits for when this process ended by itself"""
    entered: Sequence[str] = ()
    """tags of the bodies that it entered"""
    open_before: int = 0
    """questions that were open, and not answered, when it began"""
    unsettled: Sequence[str] = ()
    """idempotency keys of the ONCE and KEYED calls whose intent was durable when it began, but neither their outcome
    nor a decision on that try"""


@frozen(kw_only=True)
class History:
    """A run from its start to its end."""

    lives: Sequence[Lived]
    ledger: Sequence[Act]
    ended: Ended | None


@frozen(kw_only=True)
class Allowed:
    """What a scenario does not promise."""

    perturbed: bool = False
    strict: bool = False
    no_questions: bool = False
    lost_world: bool = False
    fresh: bool = False
    """READ values are in its savepoints, so identities differ"""


def renamed(text: str, names: dict[str, str] | None = None) -> str:
    """`text` with fresh READ values renamed by first appearance."""
    known: dict[str, str] = {} if names is None else names
    return re.sub(r"\br\d+\b", lambda found: known.setdefault(found[0], f"R{len(known)}"), text)


def complaints(history: History, references: Sequence[History], allowed: Allowed) -> list[str]:
    """Everything that is wrong; empty where all laws hold."""
    found = [*_outside(history, allowed), *_parks(history, allowed)]
    if history.ended is None:
        return [*found, f"no progress: {len(history.lives)} processes and not completed"]
    found += _forgotten(history)
    if not allowed.perturbed:
        found += _equivalence(history, references, allowed)
    return found


def _outside(history: History, allowed: Allowed) -> list[str]:
    """Law 7: at most once a tag; IDEMPOTENT calls always with the same arguments."""
    found: list[str] = []
    seen: dict[str, Act] = {}
    for act in history.ledger:
        former = seen.setdefault(act.tag, act)
        if former is not act and act.kind in DOUBTFUL:
            found.append(f"{act.kind} {act.tag} was performed twice, with {former.arguments} and {act.arguments}")
        if act.kind == "idempotent" and former.arguments != act.arguments:
            found.append(f"idempotent {act.tag} was performed as {former.arguments} and as {act.arguments}")
    once = [act for act in history.ledger if act.kind == "once"]
    asked = any(kind == "diverged" for kind, *_ in (history.ended.answered if history.ended else ()))
    if allowed.perturbed and len(once) > 1 and not asked:
        found.append("the redone program performed another ONCE call and nobody was asked")
    return found


def _forgotten(history: History) -> list[str]:
    assert history.ended is not None
    return [
        f"{act.kind} {act.tag} was performed, its receipt says {history.ended.receipts.get(act.key)}"
        for act in history.ledger
        if act.kind in DOUBTFUL and history.ended.receipts.get(act.key) != "performed"
    ]


def _parks(history: History, allowed: Allowed) -> list[str]:
    found: list[str] = []
    for life in history.lives:
        if life.open_before and (life.entered or life.status != "waiting"):
            found.append(f"with {life.open_before} open questions it entered {list(life.entered)}: {life.status}")
        if life.status not in ("", "waiting", "completed"):
            found.append(f"the run ended as {life.status}")
        for kind, effect, key in () if life.open_before else life.questions:
            found += _needless(kind, effect, key, life, allowed)
    return found


def _needless(kind: str, effect: str, key: str, life: Lived, allowed: Allowed) -> list[str]:
    if kind == "diverged" and not allowed.perturbed:
        return [f"{effect} is said to have diverged, but the program is deterministic"]
    if kind == "performed" and not allowed.strict:
        return [f"{effect} is asked about although it was performed"]
    if kind != "in_doubt":
        return []
    if allowed.no_questions:
        return [f"{effect} is asked about although its probe is final and true"]
    if key in life.unsettled and life.entered:
        return [f"{list(life.entered)} were entered before the question about {effect} was asked"]
    if key not in life.unsettled and not life.entered:
        return [f"{effect} is asked about without an intent that has no outcome"]
    return []


def _equivalence(history: History, references: Sequence[History], allowed: Allowed) -> list[str]:
    """Laws 8 and 9: it ends as an unkilled run, through the same savepoints."""
    ended = history.ended
    assert ended is not None
    wholes = [reference.ended for reference in references if reference.ended is not None]
    found: list[str] = []
    if not allowed.lost_world:
        if not any((ended.value, ended.world) == (each.value, each.world) for each in wholes):
            found.append(f"it ended with {ended.value}, {ended.world}; unkilled: {wholes[0].value}, {wholes[0].world}")
        for step, point in ended.points.items():
            if not any(each.points.get(step) == point for each in wholes):
                found.append(f"savepoint {step} is {point}; unkilled: {wholes[0].points.get(step)}")
        for step, name in () if allowed.fresh else ended.ids.items():
            if not any(each.ids.get(step) == name for each in wholes):
                found.append(f"savepoint {step} has another identity than in an unkilled run")
    tags = {act.tag for act in history.ledger}
    if not any(tags == {act.tag for act in reference.ledger} for reference in references):
        found.append(f"the outside has {sorted(tags)}, unkilled: {sorted({a.tag for a in references[0].ledger})}")
    return found
