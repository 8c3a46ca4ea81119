"""Which runs were begun inside which: a row for each, written in the commit that creates the nested run."""

from typing import TYPE_CHECKING, cast

from attrs import frozen

from ._codec import dumps, loads
from ._errors import Corrupt
from ._events import LINEAGE_SIZE
from ._store import Space, Store, Transaction

if TYPE_CHECKING:
    from ._journal import Journal


@frozen(kw_only=True)
class Nested:
    """A run that was begun inside a run."""

    run_id: str
    lineage: bytes
    step: int
    """of the outer run, in which it began"""


@frozen(kw_only=True, eq=False)
class Within:
    """The run that is about to begin, or go on with, a run inside it."""

    run_id: str
    journal: "Journal"


def write_nested(tx: Transaction, outer: bytes, nested: Nested) -> None:
    tx.write(Space.NESTED, outer + nested.lineage, dumps({"run_id": nested.run_id, "step": nested.step}))


async def nested_in(store: Store, outer: bytes, *, since: int = 0) -> list[Nested]:
    """The runs begun directly inside the lineage `outer`, from its step `since` on. Raises `Corrupt`."""
    found: list[Nested] = []
    for row in await store.scan(Space.NESTED, outer):
        try:
            plain = cast("dict[str, object]", loads(row.body))
            nested = Nested(
                run_id=cast("str", plain["run_id"]),
                lineage=row.key[LINEAGE_SIZE:],
                step=cast("int", plain["step"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Corrupt(f"the row of a run nested in {outer.hex()}: {error}") from error
        if nested.step >= since:
            found.append(nested)
    return found
