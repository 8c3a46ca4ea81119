"""A body performed in a living process: done again where that is safe, else probed, else asked about."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from effects import Idempotency, NotPerformed
from effects._question import Choice
from effects._recovery import Verdict

from ._doubt import by_probe, doubted
from ._events import Called
from ._writer import SETTLE

if TYPE_CHECKING:
    from ._passage import Passage

REDONE = 3
"""How often one attempt does a call again that its probe says was not performed."""


async def perform(passage: "Passage", body: Callable[[], Awaitable[object]]) -> object:
    """Runs the body; a doubtful call that ended ambiguously is repeated with its key, probed, or parked."""
    journal, effect = passage.journal, passage.effect
    again = effect.idempotency is Idempotency.KEYED
    redone = 0
    while True:
        try:
            return await passage.run(body)
        except asyncio.CancelledError as error:
            if effect.idempotency.doubtful:
                passage.settle_cancelled(await doubted(passage, error))
            raise
        except effect.ambiguous as error:
            if again and isinstance(error, Exception) and _in_window(passage):
                again = False
            else:
                found = await doubted(passage, error)
                if not isinstance(found, NotPerformed):
                    return found
                if redone == REDONE:
                    # Nobody doubts it any more: it was not performed, time and again, and this is why.
                    passage.settled = by_probe(journal, effect, passage.doubt(), Choice.FAIL)
                    raise
                redone += 1
                await _redo(passage)
        journal.must_go_on()
        await journal.claim.ensure()
        journal.mine.pop(passage.key, None)


def _in_window(passage: "Passage") -> bool:
    """Whether the remote still knows the key of the try that is under way."""
    receipt = passage.journal.receipt(passage.key)
    return receipt is not None and passage.journal.verdict(passage.effect, receipt) is Verdict.DO


async def _redo(passage: "Passage") -> None:
    """The probe's decision, then the next try's intent, which consumes it: as after a crash."""
    passage.receipt = passage.doubt()
    passage.record_probe()
    await passage.journal.durable(SETTLE, [Called(receipt=passage.receipt)], values=passage.apart(passage.receipt))
    await passage.intend()
