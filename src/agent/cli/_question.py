"""A question as a person must see it: what is asked, what is known, and the command line of each answer."""

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from effects._question import Choice, Question, QuestionKind
from savepoint._ambient import wall_clock_s

from ._output import plain, printable

LINE, INDENTED = "\n", "\n" + " " * 13
SHOWN = 2000
"""Characters of one argument."""

_MEANING: dict[tuple[QuestionKind | None, Choice], str] = {
    (None, Choice.PERFORMED): "it happened, and this was its result:",
    (None, Choice.REDO): "it did not happen, or may happen twice: do it (with the same key)",
    (None, Choice.COMPENSATE): "undo it; the call then fails with Compensated",
    (None, Choice.FAIL): "count it as failed; the caller is told",
    (None, Choice.APPROVE): "do it, exactly as shown",
    (None, Choice.EDIT): "do it with other arguments:",
    (None, Choice.DENY): "do not do it; the model is told (and reads the note)",
    (None, Choice.ANSWER): "the answer:",
    (None, Choice.GRANT): "go on; so many more:",
    (QuestionKind.DIVERGED, Choice.PERFORMED): "let it stand, and go on",
    (QuestionKind.DIVERGED, Choice.COMPENSATE): "undo it, and go on",
    (QuestionKind.DIVERGED, Choice.FAIL): "the run fails",
    (QuestionKind.PERFORMED, Choice.PERFORMED): "it counts: reuse its recorded result",
    (QuestionKind.BUDGET, Choice.FAIL): "the run fails",
    (QuestionKind.POISON, Choice.REDO): "try again from this savepoint",
    (QuestionKind.POISON, Choice.FAIL): "the run fails",
    (QuestionKind.DAMAGED, Choice.REDO): "go on from this savepoint with what can be read",
    (QuestionKind.DAMAGED, Choice.FAIL): "the run fails",
}


def as_json(question: Question) -> dict[str, object]:
    """For scripts."""
    return {
        "id": question.id,
        "kind": question.kind.value,
        "effect": question.effect,
        "arguments": plain(question.arguments),
        "verdicts": [verdict.value for verdict in question.verdicts],
        "step": question.step,
        "why": question.why,
        "evidence": plain(question.evidence),
        "at": question.at,
    }


def title(question: Question) -> str:
    return f"question {question.id}: {question.kind.value.replace('_', ' ')}, step {question.step}"


def facts(question: Question) -> Iterator[tuple[str, str]]:
    """What is known, by name."""
    if question.effect:
        yield "effect", printable(question.effect)
    for name, value in named(question.arguments).items():
        yield f"  {printable(name)}", _shown(value)
    yield "known", printable(question.why)
    for name, value in question.evidence.items():
        if not isinstance(value, bytes):  # the name of an object, for the machine
            yield printable(name), _shown(value)
    if question.at:
        yield "asked", f"{age(question.at)} ago"


def answers(question: Question, run_id: str, store: Path | None) -> Iterator[tuple[str, str]]:
    """Each verdict: what it means, and the command line that gives it."""
    for verdict in question.verdicts:
        meaning = _MEANING.get((question.kind, verdict)) or _MEANING[None, verdict]
        value = _value(question, verdict)
        yield meaning, command("decide", run_id, question.id, verdict.value, *value, store=store)


def command(*words: str, store: Path | None) -> str:
    """A command line that can be pasted into a shell."""
    place = [] if store is None else ["--store", str(store)]
    return " ".join(["savepoint", *(shlex.quote(word) for word in (*words, *place))])


def lines(question: Question, run_id: str, store: Path | None) -> Iterator[str]:
    """The question as plain text."""
    yield title(question)
    for name, text in facts(question):
        yield f"  {name:<10} {text.replace(LINE, INDENTED)}"
    yield "  answer with one of:"
    for meaning, line in answers(question, run_id, store):
        yield f"    {meaning}"
        yield f"      {line}"


def age(at: float) -> str:
    """How long ago a wall clock time was, in the largest unit that fits."""
    seconds = max(0.0, wall_clock_s() - at)
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def named(arguments: object) -> dict[str, object]:
    """A call's arguments by parameter name; empty where there are none."""
    return dict(cast("Mapping[str, object]", arguments)) if isinstance(arguments, Mapping) else {}


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
    cut = f"… ({len(text)} characters; savepoint show --json has them all)" if len(text) > SHOWN else ""
    return printable(text[:SHOWN] + cut)


def _value(question: Question, verdict: Choice) -> tuple[str, ...]:
    match verdict:
        case Choice.EDIT:
            return "--value", json.dumps(plain(question.arguments), ensure_ascii=False)
        case Choice.PERFORMED if question.kind is QuestionKind.IN_DOUBT:
            return "--value", "JSON"
        case Choice.ANSWER:
            return "--value", "JSON"
        case Choice.GRANT:
            return "--value", "10"
        case _:
            return ()
