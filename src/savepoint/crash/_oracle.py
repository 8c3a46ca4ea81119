"""What must hold of every history of a run of ours: pure functions from what was seen to violations.

The laws are those of `design/laws.md`. Nothing here shares code with the recovery that it judges.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import cast

from ._history import Asked, Ended, History, Lived, Performed, Promise
from ._verdict import Verdict, Violation

DOUBTFUL = frozenset({"keyed", "once"})
"""The classes whose repeat is a second charge."""


def violations(history: History, references: Sequence[History], promise: Promise) -> list[Violation]:
    """Everything that is wrong with `history`; empty where all laws hold. `references` are unkilled runs."""
    found = [*_once(history, promise), *_lives(history.lives, promise), *_left_open(history.lives), *_host(history)]
    found += asked_again(history.requests)
    wholes = [each.ended for each in references if each.ended is not None]
    if history.ended is None or not wholes:
        return [*found, Violation(Verdict.STUCK, f"{len(history.lives)} processes and not completed")]
    found += [Violation(Verdict.CORRUPT, each) for each in history.ended.unpaired]
    found += _forgotten(history.ledger, history.ended.receipts)
    if promise.perturbed:
        return found
    found += [*_effects(history, references), *_requested(history, references)]
    return [*found, *_equal(history.ended, wholes, promise)]


# -- once -------------------------------------------------------------------------------------------------------------


def _once(history: History, promise: Promise) -> Iterator[Violation]:
    """Law 7: at most once a tag; an IDEMPOTENT repeat is the same call with the same key."""
    first: dict[str, Performed] = {}
    for act in history.ledger:
        former = first.setdefault(act.tag, act)
        if former is act:
            continue
        if act.kind in DOUBTFUL:
            what = f"{act.kind} {act.tag} was performed twice, with {former.arguments} and {act.arguments}"
            yield Violation(Verdict.DUPLICATE, what)
        elif (former.key, former.arguments) != (act.key, act.arguments):
            what = f"{act.kind} {act.tag} was repeated as another call: {former.arguments}, then {act.arguments}"
            yield Violation(Verdict.DIVERGED, what)
    once = [act for act in history.ledger if act.kind == "once"]
    if promise.perturbed and len(once) > 1 and not _was_asked(history.ended, "diverged"):
        yield Violation(Verdict.DUPLICATE, "the redone program performed another ONCE call and nobody was asked")


def _was_asked(ended: Ended | None, kind: str) -> bool:
    return ended is not None and any(each == kind for each, *_ in ended.decided)


def _forgotten(ledger: Sequence[Performed], receipts: Mapping[str, str]) -> Iterator[Violation]:
    for act in ledger:
        if act.kind in DOUBTFUL and receipts.get(act.key) != "performed":
            what = f"{act.kind} {act.tag} was performed, its receipt says {receipts.get(act.key)}"
            yield Violation(Verdict.LOST, what)


def _effects(history: History, references: Sequence[History]) -> Iterator[Violation]:
    tags = {act.tag for act in history.ledger}
    right = [{act.tag for act in each.ledger} for each in references]
    if tags in right:
        return
    if missing := sorted(min((each - tags for each in right), key=len)):
        yield Violation(Verdict.LOST, f"the outside never saw {missing}")
    if more := sorted(min((tags - each for each in right), key=len)):
        yield Violation(Verdict.DIVERGED, f"the outside saw {more}, which no unkilled run performs")


def _requested(history: History, references: Sequence[History]) -> Iterator[Violation]:
    """Each reply is asked for, of the same agent as in an unkilled run."""
    asked, *right = [
        {str(each) for each in one.requests if not isinstance(each, list)} for one in (history, *references)
    ]
    if asked not in right:
        yield Violation(Verdict.DIVERGED, f"the model was asked for {sorted(asked)}; unkilled: {sorted(right[0])}")


# -- questions --------------------------------------------------------------------------------------------------------


def _lives(lives: Sequence[Lived], promise: Promise) -> Iterator[Violation]:
    for life in lives:
        if life.open_before and (life.entered or life.status not in ("", "waiting")):
            what = f"with {life.open_before} open questions it entered {list(life.entered)}: {life.status}"
            yield Violation(Verdict.DIVERGED, what)
        if life.status not in ("", "waiting", "completed", "interrupted" if promise.interrupted else ""):
            yield Violation(Verdict.CORRUPT, f"the run ended as {life.status}")
        for each in () if life.open_before else life.questions:
            if what := _needless(each, life, promise):
                yield Violation(Verdict.DIVERGED, what)


def _needless(asked: Asked, life: Lived, promise: Promise) -> str:
    """Why the question should not have been asked; empty where it is right."""
    match asked.kind:
        case "approval":
            return ""
        case "diverged":
            return "" if promise.perturbed else f"{asked.effect} is said to have diverged, but it is deterministic"
        case "performed" if not promise.strict:
            return f"{asked.effect} is asked about although it was performed"
        case "performed" if life.entered:
            return f"{list(life.entered)} were entered before the question about {asked.effect} was asked"
        case "performed":
            return ""
        case "in_doubt" if promise.no_questions:
            return f"{asked.effect} is asked about although its probe is final and true"
        case "in_doubt" if asked.key in life.undecided and life.entered:
            return f"{list(life.entered)} were entered before the question about {asked.effect} was asked"
        case "in_doubt" if asked.key not in life.undecided and not life.entered:
            return f"{asked.effect} is asked about without an intent that has no outcome"
        case "in_doubt":
            return ""
        case other:
            return f"a question of kind {other} about {asked.effect}"


def _left_open(lives: Sequence[Lived]) -> Iterator[Violation]:
    """A process that came to its end leaves no intent of its own without an outcome, except those it asks about."""
    for life, after in pairwise(lives):
        if life.status != "waiting":
            continue
        for key in sorted(set(after.unsettled) - set(life.unsettled) - {each.key for each in life.questions}):
            what = f"{key} has an intent without an outcome, and its process was not killed"
            yield Violation(Verdict.LOST, what)


def asked_again(requests: Sequence[object]) -> Iterator[Violation]:
    """Replies that were durable when a process began, and that it asked the model for all the same."""
    durable: set[str] = set()
    for each in requests:
        if isinstance(each, list):
            durable = {str(one) for one in cast("list[object]", each)}
        elif str(each).partition(" ")[0] in durable:
            yield Violation(Verdict.DUPLICATE, f"the model was asked for reply {each} again, which is durable")


# -- equivalence ------------------------------------------------------------------------------------------------------


def _equal(ended: Ended, wholes: Sequence[Ended], promise: Promise) -> Iterator[Violation]:
    """Laws 8 and 9: it ends as an unkilled run, through the same savepoints."""
    if promise.lost_world:
        return
    if not any((ended.value, ended.world) == (each.value, each.world) for each in wholes):
        what = f"it ended with {ended.value}, {ended.world}; unkilled: {wholes[0].value}, {wholes[0].world}"
        yield Violation(Verdict.DIVERGED, what)
    if not promise.skips and not any(ended.points.keys() == each.points.keys() for each in wholes):
        what = f"it has savepoints {sorted(ended.points)}; unkilled: {sorted(wholes[0].points)}"
        yield Violation(Verdict.DIVERGED, what)
    if not any(ended.inside == each.inside for each in wholes):
        what = f"the runs nested in it are {list(ended.inside)}; unkilled: {list(wholes[0].inside)}"
        yield Violation(Verdict.DIVERGED, what)
    for step, point in ended.points.items():
        if not any(each.points.get(step) == point for each in wholes):
            yield Violation(Verdict.DIVERGED, f"savepoint {step} is {point}; unkilled: {wholes[0].points.get(step)}")
    for step, name in () if promise.fresh else ended.ids.items():
        if not any(each.ids.get(step) == name for each in wholes):
            what = f"savepoint {step} has another identity than in an unkilled run"
            yield Violation(Verdict.HASH_DRIFT, what)


def _host(history: History) -> Iterator[Violation]:
    """Law 13."""
    if history.host not in ("", "untouched"):
        yield Violation(Verdict.LEAK, f"the host world changed: {history.host}")
