"""What must hold of one history of an agent's run: a pure function from what was seen to complaints."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from attrs import field, frozen
from outside import Act

Question = tuple[str, str, str]
"""kind, effect, idempotency key"""


@frozen(kw_only=True)
class Life:
    """What one process did, and found when it began. Of one that was killed, only what it did is known."""

    killed: bool
    entered: Sequence[str] = ()
    """tags of the bodies that it entered"""
    was: str | None = None
    """the run's status when it began"""
    unsettled: Sequence[str] = ()
    """idempotency keys of the ONCE and KEYED calls that then had an intent and no outcome"""
    open_before: int = 0
    """questions that stayed open, after the answers that it was given"""
    answered: Sequence[Sequence[str]] = ()
    """effect, verdict"""
    status: str = ""
    questions: Sequence[Question] = ()
    """what the run waits for at its end"""


@frozen(kw_only=True)
class Ended:
    """How a completed run stands, as text: fresh observations are renamed by first appearance."""

    value: str
    world: str
    points: Mapping[str, str]
    """step -> what its savepoint holds"""
    ids: Mapping[str, str]
    """step -> the savepoint's identity"""
    receipts: Mapping[str, str]
    """idempotency key -> newest status of the call"""
    unpaired: Sequence[str] = ()
    """what breaks the pairing of calls and outcomes, in any stored transcript"""


@frozen(kw_only=True)
class History:
    """A run from its start to its end."""

    lives: Sequence[Life]
    ledger: Sequence[Act]
    asked: Sequence[object] = field(factory=list[object])
    """per process the steps whose reply was durable when it began, then those that it asked the model for"""
    ended: Ended | None = None


@frozen(kw_only=True)
class Allowed:
    """What a task does not promise."""

    no_questions: bool = False
    """on the contrary: a truthful and final probe settles every doubt"""
    lost_world: bool = False
    """a decision `performed` lost what a call wrote to the world"""
    fresh: bool = False
    """observations are in its savepoints, so identities differ"""


def renamed(text: str, names: dict[str, str] | None = None) -> str:
    """`text` with fresh observations renamed by first appearance."""
    known: dict[str, str] = {} if names is None else names
    return re.sub(r"\br\d+\b", lambda found: known.setdefault(found[0], f"R{len(known)}"), text)


def complaints(history: History, reference: History, allowed: Allowed) -> list[str]:
    """Everything that is wrong; empty where all laws hold."""
    found = [*_outside(history.ledger), *_questions(history.lives, allowed), *_left_open(history.lives)]
    found += asked_again(history.asked)
    if history.ended is None or reference.ended is None:
        return [*found, f"no progress: {len(history.lives)} processes and not completed"]
    found += history.ended.unpaired
    found += _forgotten(history.ledger, history.ended.receipts)
    return found + _equivalence(history, reference, history.ended, reference.ended, allowed)


def _outside(ledger: Sequence[Act]) -> list[str]:
    """ONCE and KEYED at most once a call; a repeat of an IDEMPOTENT one is the same, with the same key."""
    found: list[str] = []
    first: dict[str, Act] = {}
    for act in ledger:
        former = first.setdefault(act.tag, act)
        if former is not act and act.kind != "idempotent":
            found.append(f"{act.kind} {act.tag} was performed twice, with {former.arguments} and {act.arguments}")
        if (former.key, former.arguments) != (act.key, act.arguments):
            found.append(f"{act.tag} was repeated as another call")
    return found


def _questions(lives: Sequence[Life], allowed: Allowed) -> list[str]:
    found: list[str] = []
    for life in lives:
        if life.open_before and (life.entered or life.status != "waiting"):
            found.append(f"with {life.open_before} open questions it entered {list(life.entered)}: {life.status}")
        if life.status not in ("", "waiting", "completed"):
            found.append(f"the run ended as {life.status}")
        for kind, effect, key in life.questions:
            found += [f"{what} about {effect}" for what in _needless(kind, key, life, allowed)]
    return found


def _needless(kind: str, key: str, life: Life, allowed: Allowed) -> list[str]:
    if kind not in ("in_doubt", "approval"):
        return [f"a question of kind {kind}"]
    if kind == "approval":
        return []
    if allowed.no_questions:
        return ["a question, although its probe is final and true"]
    if key in life.unsettled and life.entered and not life.answered:
        return [f"{list(life.entered)} were entered before a question"]
    return [] if key in life.unsettled or life.entered else ["a question without an open intent"]


def _left_open(lives: Sequence[Life]) -> list[str]:
    """A process that came to its end leaves no intent of its own without an outcome, except those it asks about."""
    return [
        f"{key} has an intent without an outcome, and its process was not killed"
        for life, after in pairwise(lives)
        if life.status == "waiting"
        for key in set(after.unsettled) - set(life.unsettled) - {key for *_, key in life.questions}
    ]


def asked_again(asked: Sequence[object]) -> list[str]:
    """Replies that were durable when a process began, and that it asked the model for all the same."""
    durable: Sequence[int] = ()
    found: list[str] = []
    for each in asked:
        if isinstance(each, list):
            durable = each
        elif each in durable:
            found.append(f"the model was asked for reply {each} again, which is durable")
    return found


def _forgotten(ledger: Sequence[Act], receipts: Mapping[str, str]) -> list[str]:
    return [
        f"{act.kind} {act.tag} was performed, its receipt says {receipts.get(act.key)}"
        for act in ledger
        if act.kind != "idempotent" and receipts.get(act.key) != "performed"
    ]


def _equivalence(history: History, reference: History, ended: Ended, whole: Ended, allowed: Allowed) -> list[str]:
    """It ends as an unkilled run, through the same savepoints."""
    found: list[str] = []
    if {act.tag for act in history.ledger} != {act.tag for act in reference.ledger}:
        found.append(f"the outside has {[act.tag for act in history.ledger]}")
    if allowed.lost_world:
        return found
    if (ended.value, ended.world) != (whole.value, whole.world):
        found.append(f"it ended with {ended.value}, {ended.world}; unkilled: {whole.value}, {whole.world}")
    if ended.points != whole.points:
        found.append(f"its savepoints are {dict(ended.points)}; unkilled: {dict(whole.points)}")
    if not allowed.fresh and ended.ids != whole.ids:
        found.append("its savepoints have other identities than in an unkilled run")
    return found
