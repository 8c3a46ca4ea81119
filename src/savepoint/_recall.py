"""What a receipt answers: the recorded result or error, and the changes of the world that a decision brings back."""

from typing import TYPE_CHECKING

from attrs import evolve

from effects import Effect
from effects._failure import Failure, error_of
from effects._receipt import Receipt, Status

from ._errors import Conflict, Halted, SavepointError
from ._form import snapshot_ids
from ._frame import Frame
from ._stored import get_value
from ._writer import OUTCOME

if TYPE_CHECKING:
    from ._journal import Journal

LOST_NOTE = {"world": "lost"}
"""The note of a performed call whose changes of the world nobody has any more."""


async def recall(journal: "Journal", receipt: Receipt, effect: Effect[..., object], frame: Frame) -> object:
    """Returns the recorded result, or raises the recorded error.

    Damage stops the attempt (`Halted`): the program must not take it for the call's own failure, and do it otherwise.
    """
    frame.known = True
    try:
        frame.lost = not await _brought_back(journal, receipt)
        if receipt.outcome is None:
            return None
        if not receipt.number:
            # Landed in this very attempt, by a body that is tried again: the store does not have it yet.
            await journal.durable(OUTCOME)
        value = await get_value(journal.store, receipt.outcome, journal.types)
    except SavepointError as error:
        raise Halted(error) from error
    if receipt.status is Status.FAILED and isinstance(value, Failure):
        raise error_of(value, effect.raises)
    return value


async def _brought_back(journal: "Journal", receipt: Receipt) -> bool:
    """Applies what a decision `performed` kept of the world, where the call is asked for; False: some of it is lost."""
    whole = not (receipt.writes_world and receipt.note) or await _note_of(journal, receipt) != LOST_NOTE
    if receipt.world is None or (0 < receipt.number <= journal.forked and not receipt.stale):
        return whole
    before, after = await get_value(journal.store, receipt.world, journal.types)
    try:
        await journal.world.apply(journal.store.contents, snapshot_ids(before), snapshot_ids(after))
    except Conflict:
        return False  # what was done again before this call is not what it was then
    journal.keep(back := evolve(receipt, stale=False))
    journal.writer.land(back)
    return whole


async def _note_of(journal: "Journal", receipt: Receipt) -> object:
    return None if receipt.note is None else await get_value(journal.store, receipt.note, journal.types)
