"""What is in doubt is settled before the program is entered: by a decision, a probe, or a question.

All questions are asked at once, and nothing of the step runs until all are answered.
"""

from typing import Any

from attrs import evolve

from effects import Compensated, Effect, Idempotency, NotPerformed, Performed, Unknown
from effects._call import CurrentCall
from effects._failure import Failure, failure_of
from effects._key import WIDTH
from effects._layer import LAYER
from effects._question import Choice, Decision, QuestionKind
from effects._receipt import UNSETTLED, Receipt, Status
from effects._recovery import Verdict

from ._ambient import wall_clock_s
from ._attempt import Attempt
from ._codec import Encoded, dumps, encode
from ._digest import Domain, seal
from ._doubt import ask_outside, by_probe
from ._errors import NotPortable, Usage
from ._events import Called
from ._evidence import NONE, Evidence, left_behind
from ._frame import COMPENSATING, Frame, component, in_frame
from ._journal import Asking, Journal
from ._poison import must_ask, poison_marker, poison_reason
from ._questions import arguments_of, ask, kept_evidence, question_id, read_questions
from ._recall import LOST_NOTE
from ._store import Transaction
from ._stored import get_value
from ._writer import PARK, SETTLE, Also


class Failing(Exception):
    """A decision says that the run fails."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


async def settle_doubts(attempt: Attempt) -> list[str]:
    """Settles what can be settled; returns the ids of the questions that are open. Raises `Failing`."""
    journal = attempt.journal
    known = await read_questions(attempt.store, attempt.lineage, attempt.registry.types)
    asking: list[Asking] = _about_damage(attempt)
    evidence = await _evidence(attempt)
    for receipt in sorted(journal.receipts.values(), key=lambda receipt: receipt.number):
        if receipt.idempotency.doubtful:
            asking += await _settle(attempt, receipt, evidence)
    await _excuse(attempt)
    new = [each for each in asking if each[0].id not in {question.id for question in known}]
    if new:
        await _ask(journal, new, [] if evidence.changes is None else [evidence.changes])
    now = [question for question, _ in asking]
    return [
        question.id
        for question in (*(q for q in known if q.id not in {n.id for n in now}), *now)
        if question.step >= journal.step and question.id not in journal.decisions
    ]


async def settle_poison(attempt: Attempt) -> list[str]:
    """The ids of what is open about the savepoint itself. Raises `Failing`.

    Asked alone and before all else, nested runs too: a probe or a compensation may be what kills.
    """
    journal, former, failures = attempt.journal, attempt.former, attempt.record.failures
    if former is None:
        return []
    known = await read_questions(attempt.store, attempt.lineage, attempt.registry.types)
    asked = [each for each in known if each.kind is QuestionKind.POISON and each.step == journal.step]
    for question in asked:
        decision = journal.decisions.get(question.id)
        if decision is not None and decision.choice is Choice.FAIL:
            raise Failing(Failure(kind="Poison", message=decision.note or question.why))
    found = [question.id for question in asked if question.id not in journal.decisions]
    if found or not must_ask(failures, attempt.poison_after, [each.tried for each in asked]):
        return found
    why = f"{poison_reason(failures, journal.step, former)}; `redo` allows {attempt.poison_after} more"
    asking = journal.asking(QuestionKind.POISON, poison_marker(journal.step, failures), None, why)
    await _ask(journal, [asking], [])
    return [asking[0].id]


def _about_damage(attempt: Attempt) -> list[Asking]:
    """A gap in the receipts is never "no receipt": somebody must say that the step may be done again."""
    if not attempt.damage:
        return []
    place = seal(Domain.QUESTION, attempt.damage.encode())[:WIDTH]
    receipt = Receipt(
        key=place,
        step=attempt.journal.step,
        effect="",
        version=0,
        idempotency=Idempotency.ONCE,
        status=Status.IN_DOUBT,
    )
    why = f"{attempt.damage}; `redo` goes on from savepoint {attempt.journal.step} with the receipts that can be read"
    asking = attempt.journal.asking(QuestionKind.DAMAGED, receipt, None, why)
    decision = attempt.journal.decisions.get(asking[0].id)
    if decision is None:
        return [asking]
    if decision.choice is Choice.FAIL:
        raise Failing(Failure(kind="Damaged", message=attempt.damage))
    return []


async def _evidence(attempt: Attempt) -> Evidence:
    """What is left of the world of a dead attempt, where a call in doubt may have changed it."""
    doubts = (r for r in attempt.journal.receipts.values() if r.writes_world and r.status in UNSETTLED)
    if not attempt.host.systems or not any(doubts):
        return NONE
    before = await attempt.snapshot()
    return await left_behind(attempt.store, attempt.host, before, lineage=attempt.lineage, epoch=attempt.claim.epoch)


async def _ask(journal: Journal, asking: list[Asking], values: list[Encoded]) -> None:
    def rows(tx: Transaction, _: object) -> None:
        for question, receipt in asking:
            ask(tx, journal.writer.lineage, question, receipt)

    await journal.durable(PARK, also=rows, values=values)


async def _settle(attempt: Attempt, receipt: Receipt, evidence: Evidence) -> list[Asking]:
    """What must be asked about this receipt; nothing where it is settled, or may be done."""
    journal = attempt.journal
    effect = attempt.registry.effect(receipt.effect)
    verdict = journal.verdict(effect, receipt)
    if verdict not in (Verdict.PROBE, Verdict.WAIT, Verdict.DIVERGED):
        return []
    kind = _kind(receipt, verdict)
    decision = journal.decisions.get(question_id(attempt.lineage, kind, receipt))
    if decision is not None:
        await _apply(attempt, effect, receipt, decision)
        return []
    if verdict is Verdict.PROBE and effect is not None and await _probe(attempt, effect, receipt, evidence):
        return []
    shown = evidence.stored if receipt.writes_world and receipt.status in UNSETTLED else {}
    return [journal.asking(kind, receipt, effect, _why(attempt, effect, receipt), shown)]


def _kind(receipt: Receipt, verdict: Verdict) -> QuestionKind:
    if verdict is Verdict.DIVERGED:
        return QuestionKind.DIVERGED
    return QuestionKind.IN_DOUBT if receipt.status in UNSETTLED else QuestionKind.PERFORMED


def _why(attempt: Attempt, effect: Effect[..., Any] | None, receipt: Receipt) -> str:
    """The default sentence, except where something more can be said."""
    if effect is None and receipt.status in UNSETTLED:
        return (
            f"the process ended between the intent and the outcome, and {receipt.effect} is not in the registry, "
            "so a probe, if it has one, cannot be asked"
        )
    if effect is not None and effect.prober is not None and receipt.status in UNSETTLED:
        age = max(0.0, wall_clock_s() - receipt.at)
        return f"the probe could not tell for certain; the intent is {age:.0f} s old"
    return ""


async def _probe(attempt: Attempt, effect: Effect[..., Any], receipt: Receipt, evidence: Evidence) -> bool:
    """Asks the outside; returns whether that settled it."""
    journal = attempt.journal
    if effect.prober is None:
        return False
    arguments = await arguments_of(attempt.store, receipt.arguments, receipt.arguments_object, attempt.registry.types)
    current = CurrentCall(
        call=effect.recall(arguments),
        keyed=lambda: journal.idempotency_key(receipt.key, receipt.step),
        attempt=attempt.claim.epoch,
        tried=receipt.tried,
    )
    match await ask_outside(effect, current):
        case Performed(result=result):
            try:
                outcome = encode(result, f"the result of {effect.name}")
            except NotPortable:
                return False
            decision, rows = by_probe(attempt.journal, effect, receipt, Choice.PERFORMED)
            await _performed(attempt, receipt, outcome, evidence.changes, whole=not evidence.lost, also=rows)
            attempt.journal.decisions[decision.question] = decision
            return True
        case NotPerformed(final=final):
            if final or _settled_outside(attempt, effect, receipt):
                await _redo(attempt, effect, receipt)
                return True
            return False
        case Unknown():
            return False


def _settled_outside(attempt: Attempt, effect: Effect[..., Any], receipt: Receipt) -> bool:
    """Whether "not performed" can be believed: nobody is left to send it, and the network had time to deliver it."""
    if effect.settles_within_s is None or not attempt.former_owner_dead:
        return False
    return wall_clock_s() - receipt.at >= effect.settles_within_s


async def _redo(attempt: Attempt, effect: Effect[..., Any], receipt: Receipt) -> None:
    decision, rows = by_probe(attempt.journal, effect, receipt, Choice.REDO)
    await attempt.journal.durable(SETTLE, also=rows)
    attempt.journal.decisions[decision.question] = decision


async def _apply(attempt: Attempt, effect: Effect[..., Any] | None, receipt: Receipt, decision: Decision) -> None:
    """What a decision about one call means."""
    match decision.choice:
        case Choice.REDO:
            pass  # consumed by the intent of the next try
        case Choice.PERFORMED if receipt.status is Status.PERFORMED:
            pass  # strict: the receipt counts
        case Choice.PERFORMED:
            outcome = encode(decision.value, f"the decision on {receipt.effect}")
            kept, whole = await kept_evidence(attempt.store, attempt.lineage, decision.question)
            await _performed(attempt, receipt, outcome, kept, whole=whole)
        case Choice.FAIL:
            note = decision.note or f"a decision says that {receipt.effect} failed"
            await _failed(attempt, receipt, Failure(kind="DecidedToFail", message=note))
        case Choice.COMPENSATE:
            await _compensate(attempt, effect, receipt)
            await _failed(attempt, receipt, failure_of(Compensated(receipt.effect)))
        case _:
            raise Usage(f"{decision.choice} is no answer about a call", next="savepoint show RUN lists the verdicts")


async def _performed(
    attempt: Attempt,
    receipt: Receipt,
    outcome: Encoded,
    world: Encoded | bytes | None,
    *,
    whole: bool,
    also: Also | None = None,
) -> None:
    """It happened, with this outcome; `world` is what it changed there, as far as that is left (`whole`: all of it)."""
    performed = evolve(receipt, status=Status.PERFORMED, outcome=outcome.digest)
    values = [outcome]
    if receipt.writes_world and attempt.host.systems:
        performed = evolve(performed, world=world.digest if isinstance(world, Encoded) else world)
        values += [world] if isinstance(world, Encoded) else []
        if not whole:
            values.append(lost := encode(LOST_NOTE))
            performed = evolve(performed, note=lost.digest)
            attempt.warnings.append(f"what {receipt.effect} changed in the world is lost, at least in part")
    await _record(attempt, performed, *values, also=also)


async def _failed(attempt: Attempt, receipt: Receipt, failure: Failure) -> None:
    outcome = encode(failure)
    await _record(attempt, evolve(receipt, status=Status.FAILED, outcome=outcome.digest), outcome)


async def _record(attempt: Attempt, receipt: Receipt, *values: Encoded, also: Also | None = None) -> None:
    attempt.journal.keep(receipt)
    await attempt.journal.durable(SETTLE, [Called(receipt=receipt)], values=values, also=also)


async def _compensate(attempt: Attempt, effect: Effect[..., Any] | None, receipt: Receipt) -> None:
    """Undoes a call by its compensation, itself a ONCE call with receipts of its own."""
    journal = attempt.journal
    if effect is None or effect.compensation is None:
        raise Usage(f"{receipt.effect} has no compensation here", next="register the effect that declares it")
    types = attempt.registry.types
    arguments = await arguments_of(attempt.store, receipt.arguments, receipt.arguments_object, types)
    known = receipt.status is Status.PERFORMED and receipt.outcome is not None
    result = await get_value(attempt.store, receipt.outcome, types) if known and receipt.outcome else None
    token = LAYER.set(journal)
    try:
        # Like a call of a recorded reply: the program, which was not entered, can have asked for nothing before it.
        place = component(dumps([receipt.step, receipt.key]))
        with in_frame(Frame(key=COMPENSATING + place, under_reply=True)):
            await effect.compensation(effect.recall(arguments), result)
    except Exception as error:
        raise Failing(failure_of(error)) from error
    finally:
        LAYER.reset(token)


async def _excuse(attempt: Attempt) -> None:
    """Decisions on diverged calls: let them stand, undo them, or let the run fail."""
    journal = attempt.journal
    for receipt in list(journal.receipts.values()):
        decision = journal.decisions.get(question_id(attempt.lineage, QuestionKind.DIVERGED, receipt))
        if decision is None:
            continue
        if decision.choice is Choice.FAIL:
            note = decision.note or f"the program no longer asks for {receipt.effect}, which was performed"
            raise Failing(Failure(kind="Diverged", message=note))
        if decision.choice is Choice.COMPENSATE and (receipt.step, receipt.key) not in journal.guard.excused:
            await _compensate(attempt, attempt.registry.effect(receipt.effect), receipt)
        journal.guard.excused.add((receipt.step, receipt.key))
