"""What must not be forgotten by accident: a living owner, and calls in doubt that nobody has answered.

Whoever gives a lineage up, by a restart or by a removal, asks here first.
"""

from collections.abc import Collection, Iterable

from effects._question import QuestionKind
from effects._receipt import UNSETTLED, Receipt

from ._claim import alive, owner_of
from ._errors import Conflict, Held
from ._questions import question_id
from ._run import RunRecord, run_key
from ._store import Store


async def refuse_living(store: Store, record: RunRecord) -> None:
    """Raises `Held` while an owner must be waited for."""
    lease = await owner_of(store, run_key(record.run_id))
    if lease is not None and alive(store, record.lineage, lease):
        raise Held(
            f"run {record.run_id} is running in process {lease.process}", next="wait for it, or stop that process"
        )


def refuse_doubts(
    record: RunRecord, receipts: Iterable[Receipt], answered: Collection[str], damage: str, *, act: str, next: str
) -> None:
    """Raises `Conflict` where `act` would forget a call in doubt, or receipts that cannot be read (`damage`).

    Also over a call that no attempt has asked about yet: the process may have died just before. `answered`: the ids of
    the questions with a decision; `next`: the ways out.
    """
    doubts = [
        receipt.effect
        for receipt in receipts
        if receipt.idempotency.doubtful
        and receipt.status in UNSETTLED
        and question_id(record.lineage, QuestionKind.IN_DOUBT, receipt) not in answered
    ]
    if doubts or damage:
        what = f"calls in doubt ({', '.join(doubts)})" if doubts else f"damaged receipts ({damage})"
        raise Conflict(f"run {record.run_id} has {what}: {act} would forget them", next=next)
