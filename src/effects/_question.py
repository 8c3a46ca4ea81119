"""Questions and decisions: why a run waits, and what each answer means. Pure."""

from enum import StrEnum

from attrs import field, frozen


class QuestionKind(StrEnum):
    IN_DOUBT = "in_doubt"
    """nobody knows whether a ONCE or KEYED call happened"""
    PERFORMED = "performed"
    """recovery="strict": the call happened; may the run count it and go on?"""
    DIVERGED = "diverged"
    """the redone program no longer asks for a call that has a receipt"""
    APPROVAL = "approval"
    """a call that a person must allow first"""
    INPUT = "input"
    BUDGET = "budget"
    POISON = "poison"
    """the same savepoint failed too often"""
    DAMAGED = "damaged"
    """a receipt is missing or is not what was written"""


class Choice(StrEnum):
    """The verdicts that a decision can give."""

    PERFORMED = "performed"
    REDO = "redo"
    COMPENSATE = "compensate"
    FAIL = "fail"
    APPROVE = "approve"
    EDIT = "edit"
    DENY = "deny"
    ANSWER = "answer"
    GRANT = "grant"


CHOICES: dict[QuestionKind, tuple[Choice, ...]] = {
    QuestionKind.IN_DOUBT: (Choice.PERFORMED, Choice.REDO, Choice.COMPENSATE, Choice.FAIL),
    QuestionKind.PERFORMED: (Choice.PERFORMED, Choice.REDO, Choice.COMPENSATE, Choice.FAIL),
    QuestionKind.DIVERGED: (Choice.PERFORMED, Choice.COMPENSATE, Choice.FAIL),
    QuestionKind.APPROVAL: (Choice.APPROVE, Choice.EDIT, Choice.DENY),
    QuestionKind.INPUT: (Choice.ANSWER,),
    QuestionKind.BUDGET: (Choice.GRANT, Choice.FAIL),
    QuestionKind.POISON: (Choice.REDO, Choice.FAIL),
    QuestionKind.DAMAGED: (Choice.REDO, Choice.FAIL),
}

VALUED = frozenset({Choice.PERFORMED, Choice.EDIT, Choice.ANSWER, Choice.GRANT})
"""Choices that carry a value: the result that the call had, the edited arguments, the answer, the new limit."""


def choices(kind: QuestionKind, *, compensation: bool) -> tuple[Choice, ...]:
    """What may be answered. `compensate` only where the effect declares a compensation."""
    return tuple(choice for choice in CHOICES[kind] if compensation or choice is not Choice.COMPENSATE)


@frozen(kw_only=True)
class Question:
    """Why a run waits, as a person sees it."""

    id: str
    kind: QuestionKind
    verdicts: tuple[Choice, ...]
    effect: str = ""
    arguments: object = None
    """the call's arguments by parameter name"""
    lineage: bytes = field(default=b"", repr=False)
    """of the run that asks: the one that waits, or one nested in it"""
    key: bytes = field(default=b"", repr=False)
    step: int = 0
    tried: int = 0
    why: str = ""
    """one sentence: what is known and what is not"""
    evidence: dict[str, object] = field(factory=dict[str, object])
    at: float = 0.0
    """wall clock, seconds since 1970"""


@frozen(kw_only=True)
class Decision:
    """The durable answer to one question. The first one wins; equal repeats change nothing."""

    question: str
    choice: Choice
    value: object = None
    note: str = ""
    by: str = "person"
    at: float = 0.0
