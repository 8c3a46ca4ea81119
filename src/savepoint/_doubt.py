"""A call that ended ambiguously while its process lives: probed, else parked.

What a probe says is recorded as the decision that it is, here as after a crash: with what follows from it.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from effects import CurrentCall, Effect, NotPerformed, Performed, Unknown
from effects._call import CURRENT
from effects._probe import Finding
from effects._question import Choice, Decision, QuestionKind
from effects._receipt import Receipt

from ._ambient import wall_clock_s
from ._errors import SavepointError
from ._events import Called
from ._evidence import LOST, NONE, Evidence, evidence_between
from ._questions import decide_by_probe
from ._store import Transaction
from ._writer import Also

if TYPE_CHECKING:
    from ._journal import Journal
    from ._passage import Passage


PROBE_S = 30.0
"""How long a probe may take; then it could not tell, and the question goes to a person."""


def by_probe(journal: "Journal", effect: Effect[..., Any], receipt: Receipt, choice: Choice) -> tuple[Decision, Also]:
    """The question that a probe has answered, as a decision and the rows that record it; an earlier attempt, whose
    probe could not tell, may have asked it.
    """
    asking = journal.asking(QuestionKind.IN_DOUBT, receipt, effect)
    decision = Decision(question=asking[0].id, choice=choice, by="probe", at=wall_clock_s())

    def rows(tx: Transaction, _: object) -> None:
        decide_by_probe(tx, journal.writer.lineage, asking, decision)

    return decision, rows


async def doubted(passage: "Passage", error: BaseException) -> object:
    """What a probe found: the result, or a final `NotPerformed`. Otherwise the call is asked about (`Parked`).

    Its request may still be under way, so only a final "not performed" counts. The doubt stays, whoever gives up
    waiting for it meanwhile.
    """
    journal = passage.journal
    journal.keep(doubt := passage.doubt())
    # A cancelled call that writes the world has nobody to commit its outcome with a snapshot: it is asked about.
    held = passage.effect.writes_world and isinstance(error, asyncio.CancelledError)
    finding = Unknown() if held else await _asked(passage)
    if isinstance(finding, Performed):
        passage.settled = by_probe(journal, passage.effect, doubt, Choice.PERFORMED)
        return finding.result
    if isinstance(finding, NotPerformed) and finding.final:
        passage.settled = by_probe(journal, passage.effect, doubt, Choice.REDO)
        return finding
    evidence = await _evidence(passage)
    why = f"the call ended with {type(error).__name__}: it may have happened, or may still happen"
    asking = journal.asking(QuestionKind.IN_DOUBT, doubt, passage.effect, why, evidence.stored)
    values = [*passage.apart(doubt), *(() if evidence.changes is None else (evidence.changes,))]
    await journal.park([asking], [Called(receipt=doubt)], values=values)


async def _asked(passage: "Passage") -> Finding[Any]:
    try:
        return await ask_outside(passage.effect, passage.current())
    except asyncio.CancelledError:
        return Unknown()


async def _evidence(passage: "Passage") -> Evidence:
    """What the call, which runs alone, has changed in the world so far."""
    journal = passage.journal
    if not passage.effect.writes_world or not journal.world.systems:
        return NONE
    try:
        now = await journal.world.snapshot(journal.store.contents)
        return await evidence_between(journal.store, journal.world, journal.base, now)
    except (SavepointError, asyncio.CancelledError):
        return LOST


async def ask_outside(effect: Effect[..., Any], current: CurrentCall) -> Finding[Any]:
    """What the effect's probe says of a call in doubt, within `PROBE_S`. A probe that fails, or that does not answer,
    knows nothing: its error is not the call's.
    """
    if effect.prober is None:
        return Unknown()
    token = CURRENT.set(current)
    try:
        async with asyncio.timeout(PROBE_S):
            return await effect.prober(current.call)
    except Exception:  # noqa: BLE001  a probe that fails could not tell
        return Unknown()
    finally:
        CURRENT.reset(token)
