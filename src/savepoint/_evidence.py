"""What a call in doubt did to the world: evidence for whoever must decide, and what `performed` brings back.

Only calls with `writes_world` change the world outside of any snapshot that recovery could fork. They run alone, so
what their attempt's fork holds beyond its newest snapshot is theirs (and that of CONTAINED calls, done again anyway).
"""

from collections.abc import Mapping

from attrs import evolve, field, frozen

from ._codec import Encoded, encode
from ._errors import SavepointError
from ._forks import newest_fork
from ._form import plain_ids
from ._store import Store
from ._thread import in_thread
from ._world import Snapshot, World

SHOWN = 20
"""Changed paths that a question shows."""
OBJECT = "object"
"""In a stored question's evidence: the digest of the object with the snapshot ids before and after."""


@frozen(kw_only=True)
class Evidence:
    """Changes of the world, as an object to store and as a person sees them."""

    changes: Encoded | None = None
    """(snapshot ids before, after); None where all is lost"""
    lost: tuple[str, ...] = ()
    """systems whose changes died with the process"""
    shown: Mapping[str, object] = field(factory=dict[str, object])

    @property
    def stored(self) -> dict[str, object]:
        """As a question keeps it."""
        return dict(self.shown) if self.changes is None else {**self.shown, OBJECT: self.changes.digest}


NONE = Evidence()
LOST = Evidence(lost=("world",), shown={"world": "what it changed in the world is lost"})


async def evidence_between(store: Store, world: World, before: Snapshot, after: Snapshot) -> Evidence:
    """What changed between two snapshots."""
    changes = [
        f"{change.kind} {name}: {change.path}"
        for name, found in (await world.diff(store.contents, before, after)).items()
        for change in found
    ]
    more = [f"and {len(changes) - SHOWN} more"] if len(changes) > SHOWN else []
    both = encode((plain_ids(before), plain_ids(after)))
    return Evidence(changes=both, shown={"world": [*changes[:SHOWN], *more] or "unchanged"})


async def left_behind(store: Store, host: World, before: Snapshot, *, lineage: bytes, epoch: int) -> Evidence:
    """What the fork of the newest attempt before `epoch` holds beyond `before`, the snapshot that recovery forks."""
    place = await in_thread(newest_fork, store, lineage, epoch)
    if place is None:
        return LOST
    try:
        after = await host.left(store.contents, place=place)
        found = await evidence_between(store, host, before, {**before, **after})
    except SavepointError:
        return LOST
    lost = tuple(name for name in before if name not in after)
    return evolve(found, lost=lost, shown={**found.shown, "lost": list(lost)}) if lost else found
