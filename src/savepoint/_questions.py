"""Stored questions and decisions. The first decision wins by compare-and-set, whoever gives it."""

from collections.abc import Mapping
from typing import cast

from effects._question import VALUED, Choice, Decision, Question, QuestionKind, choices
from effects._receipt import Receipt

from ._ambient import wall_clock_s
from ._codec import dumps, encode, loads
from ._digest import Domain, seal
from ._errors import Conflict, Corrupt, Missing, Stale, Usage
from ._events import LINEAGE_SIZE, read_head
from ._nested import Nested, nested_in
from ._portable import same
from ._run import ENDED, read_run, run_key
from ._store import Row, Space, Store, Transaction
from ._stored import get_value, put_value, read_value
from ._types import Types


def question_id(lineage: bytes, kind: QuestionKind, receipt: Receipt) -> str:
    """The same question has the same id in every attempt; another try of the call asks a new one."""
    parts = dumps([lineage, kind.value, receipt.step, receipt.key, receipt.tried])
    return seal(Domain.QUESTION, parts).hex()[:12]


def question_about(
    lineage: bytes,
    kind: QuestionKind,
    receipt: Receipt,
    *,
    compensation: bool = False,
    why: str = "",
    evidence: Mapping[str, object] | None = None,
) -> Question:
    """A question about the call of `receipt`."""
    return Question(
        id=question_id(lineage, kind, receipt),
        lineage=lineage,
        kind=kind,
        verdicts=choices(kind, compensation=compensation),
        effect=receipt.effect,
        key=receipt.key,
        step=receipt.step,
        tried=receipt.tried,
        why=why or WHY[kind],
        evidence=dict(evidence or {}),
        at=wall_clock_s(),
    )


WHY = {
    QuestionKind.IN_DOUBT: "the process ended between the intent and the outcome: the call may have happened or not",
    QuestionKind.PERFORMED: "the call happened after the savepoint, and the run is resumed strictly",
    QuestionKind.DIVERGED: "this call has a receipt, but the redone program does not ask for it any more",
    QuestionKind.APPROVAL: "this call needs an approval",
    QuestionKind.INPUT: "the run needs an answer",
    QuestionKind.BUDGET: "a limit of the run was reached",
    QuestionKind.POISON: "every attempt from this savepoint failed",
    QuestionKind.DAMAGED: "a receipt of this run is missing or damaged",
}


def question_key(lineage: bytes, question: str) -> bytes:
    return lineage + question.encode()


def write_question(question: Question, receipt: Receipt) -> bytes:
    return dumps(
        {
            "id": question.id,
            "kind": question.kind.value,
            "verdicts": [verdict.value for verdict in question.verdicts],
            "effect": question.effect,
            "arguments": receipt.arguments,
            "arguments_object": receipt.arguments_object,
            "key": question.key,
            "step": question.step,
            "tried": question.tried,
            "why": question.why,
            "evidence": question.evidence,
            "at": question.at,
        }
    )


def ask(tx: Transaction, lineage: bytes, question: Question, receipt: Receipt) -> None:
    """Adds a question about the call of `receipt` to a unit of work."""
    tx.write(Space.QUESTION, question_key(lineage, question.id), write_question(question, receipt))


def _write_decision(decision: Decision, value: bytes | None) -> bytes:
    return dumps(
        {
            "choice": decision.choice.value,
            "value": value,
            "note": decision.note,
            "by": decision.by,
            "at": wall_clock_s(),
        }
    )


def decide_by_probe(tx: Transaction, lineage: bytes, asking: tuple[Question, Receipt], decision: Decision) -> None:
    """Adds a question that a probe has answered already; refused where a person was first."""
    key = question_key(lineage, decision.question)
    tx.expect(Space.DECISION, key, None)
    ask(tx, lineage, *asking)
    tx.write(Space.DECISION, key, _write_decision(decision, None))


def _read_question(row: Row, arguments: object) -> Question:
    plain = _plain(row)
    return Question(
        id=cast("str", plain["id"]),
        lineage=row.key[:LINEAGE_SIZE],
        kind=QuestionKind(cast("str", plain["kind"])),
        verdicts=tuple(Choice(verdict) for verdict in cast("list[str]", plain["verdicts"])),
        effect=cast("str", plain["effect"]),
        arguments=arguments,
        key=cast("bytes", plain["key"]),
        step=cast("int", plain["step"]),
        tried=cast("int", plain["tried"]),
        why=cast("str", plain["why"]),
        evidence=cast("dict[str, object]", plain["evidence"]),
        at=cast("float", plain["at"]),
    )


def _plain(row: Row) -> dict[str, object]:
    try:
        return cast("dict[str, object]", loads(row.body))
    except (TypeError, ValueError) as error:
        raise Corrupt(f"the row {row.key.hex()}: {error}") from error


async def read_questions(store: Store, lineage: bytes, types: Types) -> list[Question]:
    """All questions of a lineage, oldest first."""
    found: list[Question] = []
    for row in await store.scan(Space.QUESTION, lineage):
        plain = _plain(row)
        inline, name = cast("bytes | None", plain["arguments"]), cast("bytes | None", plain["arguments_object"])
        found.append(_read_question(row, await arguments_of(store, inline, name, types)))
    return sorted(found, key=lambda question: (question.step, question.at, question.id))


async def read_decisions(store: Store, lineage: bytes, types: Types) -> dict[str, Decision]:
    """Question id -> decision."""
    found: dict[str, Decision] = {}
    for row in await store.scan(Space.DECISION, lineage):
        plain = _plain(row)
        name = cast("bytes | None", plain["value"])
        question = row.key[LINEAGE_SIZE:].decode()
        found[question] = Decision(
            question=question,
            choice=Choice(cast("str", plain["choice"])),
            value=None if name is None else await get_value(store, name, types),
            note=cast("str", plain["note"]),
            by=cast("str", plain["by"]),
            at=cast("float", plain["at"]),
        )
    return found


async def arguments_of(store: Store, inline: bytes | None, name: bytes | None, types: Types) -> dict[str, object]:
    """A receipt's arguments by parameter name: short ones are in the row, long ones are an object."""
    if inline is not None:
        return await read_value(store, inline, types)
    return {} if name is None else await get_value(store, name, types)


async def kept_evidence(store: Store, lineage: bytes, question: str) -> tuple[bytes | None, bool]:
    """The object of the world changes that a question showed, and whether all of them are in it."""
    row = await store.read(Space.QUESTION, question_key(lineage, question))
    kept = {} if row is None else cast("dict[str, object]", _plain(row)["evidence"])
    found = kept.get("object")
    return (found, not kept.get("lost")) if isinstance(found, bytes) else (None, False)


async def open_questions(store: Store, lineage: bytes, types: Types) -> list[Question]:
    """The questions without a decision, oldest first; then those of the runs nested in the step that goes on."""
    decisions = await read_decisions(store, lineage, types)
    found = [question for question in await read_questions(store, lineage, types) if question.id not in decisions]
    return [*found, *await questions_inside(store, lineage, types)]


async def every_question(store: Store, lineage: bytes, types: Types) -> list[Question]:
    """All questions that were ever asked by a run and by those nested in it."""
    found = await read_questions(store, lineage, types)
    for nested in await nested_in(store, lineage):
        found += await every_question(store, nested.lineage, types)
    return found


async def questions_inside(store: Store, lineage: bytes, types: Types) -> list[Question]:
    """The open questions of the runs nested in a run: only of those that its newest savepoint is not past."""
    row = await store.read(Space.HEAD, lineage)
    if row is None:
        return []
    found: list[Question] = []
    for nested in await nested_in(store, lineage, since=read_head(row).point_step):
        if await _ended(store, nested):
            continue  # nobody goes on with it, so nobody needs an answer
        inner = await store.read(Space.HEAD, nested.lineage)
        step = 0 if inner is None else read_head(inner).point_step
        asked = await open_questions(store, nested.lineage, types)
        found += [each for each in asked if each.lineage != nested.lineage or each.step >= step]
    return found


async def _ended(store: Store, nested: Nested) -> bool:
    row = await store.read(Space.RUN, run_key(nested.run_id))
    record = None if row is None else read_run(row)
    return record is not None and record.lineage == nested.lineage and record.status in ENDED


async def record_decision(
    store: Store, lineage: bytes, question: Question, decision: Decision, types: Types
) -> Decision:
    """Makes a decision durable. An equal repeat changes nothing and returns the first one.

    `lineage` is that of the run that waits; a question of a run nested in it is answered in its own.

    Raises `Usage` (a verdict that the question does not offer), `Conflict` (another one stands), `NotPortable`.
    """
    if decision.choice not in question.verdicts:
        offered = ", ".join(question.verdicts)
        raise Usage(f"question {question.id} cannot be answered with {decision.choice}", next=f"one of: {offered}")
    if decision.value is not None and decision.choice not in VALUED:
        raise Usage(f"{decision.choice} takes no value", next="say it in the note, or give another verdict")
    value = None if decision.value is None else encode(decision.value, f"the value of {decision.choice}")
    body = _write_decision(decision, None if value is None else value.digest)
    lineage = question.lineage or lineage
    key = question_key(lineage, question.id)
    try:
        async with store.commit() as tx:
            tx.expect(Space.DECISION, key, None)
            tx.expect(Space.QUESTION, key, await _question_digest(store, key, question.id))
            if value is not None:
                put_value(tx, value, store)
            tx.write(Space.DECISION, key, body)
    except Stale:
        first = (await read_decisions(store, lineage, types)).get(question.id)
        if first is None:  # the question itself was asked anew meanwhile
            return await record_decision(store, lineage, question, decision, types)
        return _agreed(first, decision)
    return decision


async def _question_digest(store: Store, key: bytes, question: str) -> bytes:
    row = await store.read(Space.QUESTION, key)
    if row is None:
        raise Missing(f"there is no question {question}", next="savepoint show RUN lists the open ones")
    return row.digest


def _agreed(first: Decision, repeat: Decision) -> Decision:
    """The first decision, if the later one says the same (who gave it, when and why do not matter)."""
    if first.choice is not repeat.choice or not same(first.value, repeat.value):
        raise Conflict(
            f"question {first.question} was answered {first.choice} by {first.by} already",
            next="the first answer stands; savepoint show RUN tells what came of it",
        )
    return first
