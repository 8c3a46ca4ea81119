"""Values on their way to a store and back: an encoded value brings its logs along, a read one finds them again.

The one place where canonical bytes and store meet. A log is written as the segment of what came since it was last
stored, so a savepoint costs what its turn added.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from ._codec import Encoded, decode, decode_all, named_logs, names_logs
from ._log import EMPTY_ROOT, Log, Segment, read_segments, segments, segments_after
from ._shelf import shelf_of
from ._store import Kind, Store, Transaction
from ._types import Types

Logs = dict[bytes, Log[Any]]


def put_value(
    tx: Transaction, encoded: Encoded, store: Store, known: AbstractSet[bytes] = frozenset()
) -> Callable[[], None]:
    """Adds a value, its logs and their elements to a unit of work, but for the objects that are `known` to be stored.

    Returns what to call once the work is durable: it notes how far each log is stored (never before: after a failed
    commit the segments must be written again).
    """
    if encoded.digest not in known:
        tx.put(encoded.digest, encoded.body)
    if not encoded.logs:
        return _nothing
    noted = [log for log in encoded.logs if _put_log(tx, log, store, known)]

    return _noting(noted, store)


def put_log(tx: Transaction, log: Log[Any], store: Store) -> Callable[[], None]:
    """Adds what of a log is not stored yet; returns what to call once the work is durable, as `put_value` does."""
    return _noting([log] if _put_log(tx, log, store, frozenset()) else [], store)


def put_elements(tx: Transaction, root: bytes, elements: Sequence[Encoded], store: Store) -> bytes:
    """Adds elements behind the stored log that ends at `root`, which is not read; returns the root of the longer log."""
    for segment in segments_after(root, elements):
        _put_segment(tx, segment, store, frozenset())
        root = segment.root
    return root


def _noting(logs: Sequence[Log[Any]], store: Store) -> Callable[[], None]:
    def durable() -> None:
        for log in logs:
            log.mark_stored(store, len(log))
            log.settle_encoded()

    return durable


def _nothing() -> None:
    return None


def _put_log(tx: Transaction, log: Log[Any], store: Store, known: AbstractSet[bytes]) -> bool:
    for segment in segments(log, log.stored(store)):
        _put_segment(tx, segment, store, known)
    return len(log) > 0


def _put_segment(tx: Transaction, segment: Segment, store: Store, known: AbstractSet[bytes]) -> None:
    for element in segment.elements:
        for inner in element.logs:
            # Written whole where it is not stored yet; it is marked with the log that holds it, not on its own.
            _put_log(tx, inner, store, known)
    for name, body in segment.objects:
        if name not in known:
            tx.put(name, body)
    tx.put(segment.root, segment.body, Kind.SEGMENT)


async def get_value(store: Store, name: bytes, types: Types) -> Any:
    """The value of an object. Raises `Missing`, `Corrupt`, `Foreign`, `Newer`."""
    (body,) = await store.objects([name])
    return await read_value(store, body, types)


async def load_log(store: Store, root: bytes, count: int, types: Types) -> Log[Any]:
    """The log of `count` elements that ends at `root`. Raises `Missing`, `Corrupt`, `Foreign`, `Newer`."""
    return await _load(store, root, count, types, {}) if count else Log()


async def read_value(store: Store, body: bytes, types: Types) -> Any:
    """Decodes linked bytes, loading the logs that they name."""
    return await _read(store, body, types, {})


async def _read(store: Store, body: bytes, types: Types, known: Logs) -> Any:
    await _load_named(store, body, types, known)
    return decode(body, types=types, logs=known)


async def _load_named(store: Store, body: bytes, types: Types, known: Logs) -> None:
    for count, root in named_logs(body):
        if root not in known:
            known[root] = await _load(store, root, count, types, known)


async def _load(store: Store, root: bytes, count: int, types: Types, known: Logs) -> Log[Any]:
    shelf = shelf_of(store)
    log = shelf.find(types, root, count)
    if log is None:
        log, size = await _loaded(store, root, count, types, known)
        shelf.keep(types, log, size)
    return log


async def _loaded(store: Store, root: bytes, count: int, types: Types, known: Logs) -> tuple[Log[Any], int]:
    """A log and the bytes of its elements."""
    read = read_segments(root, count, await store.segments(root, until=EMPTY_ROOT))
    apart = list({digest: None for digest, body in read.parts if body is None})
    held = dict(zip(apart, await store.objects(apart), strict=True)) if apart else {}
    bodies = [held[digest] if body is None else body for digest, body in read.parts]
    for body in bodies:
        if names_logs(body):
            await _load_named(store, body, types, known)
    elements, volatile = decode_all(bodies, types=types, logs=known)
    log = Log[Any].restored(elements, read.roots, volatile)
    log.mark_stored(store, *read.ends)
    return log, sum(map(len, bodies))
