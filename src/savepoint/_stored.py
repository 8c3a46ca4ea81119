"""Values on their way to a store and back: an encoded value brings its logs along, a read one finds them again.

The one place where canonical bytes and store meet. A log is written as the segment of what came since it was last
stored, so a savepoint costs what its turn added.
"""

from collections.abc import Callable
from typing import Any

from ._codec import Encoded, decode, named_logs
from ._log import EMPTY_ROOT, Log, Part, read_segments, segments
from ._store import Kind, Store, Transaction
from ._types import Types

Logs = dict[bytes, Log[Any]]


def put_value(tx: Transaction, encoded: Encoded, store: Store) -> Callable[[], None]:
    """Adds a value, its logs and their elements to a unit of work.

    Returns what to call once the work is durable: it notes how far each log is stored (never before: after a failed
    commit the segments must be written again).
    """
    tx.put(encoded.digest, encoded.body)
    if not encoded.logs:
        return _nothing
    noted = [log for log in encoded.logs if _put_log(tx, log, store)]

    def durable() -> None:
        for log in noted:
            log.mark_stored(store, len(log))
            log.settle_encoded()

    return durable


def _nothing() -> None:
    return None


def _put_log(tx: Transaction, log: Log[Any], store: Store) -> bool:
    for segment in segments(log, log.stored(store)):
        for element in segment.elements:
            for inner in element.logs:
                # Written whole where it is not stored yet; it is marked with the log that holds it, not on its own.
                _put_log(tx, inner, store)
        for name, body in segment.objects:
            tx.put(name, body)
        tx.put(segment.root, segment.body, Kind.SEGMENT)
    return len(log) > 0


async def get_value(store: Store, name: bytes, types: Types) -> Any:
    """The value of an object. Raises `Missing`, `Corrupt`, `Foreign`, `Newer`."""
    (body,) = await store.objects([name])
    return await read_value(store, body, types)


async def read_value(store: Store, body: bytes, types: Types) -> Any:
    """Decodes linked bytes, loading the logs that they name."""
    return await _read(store, body, types, {})


async def _read(store: Store, body: bytes, types: Types, known: Logs) -> Any:
    for count, root in named_logs(body):
        if root not in known:
            known[root] = await _load(store, root, count, types, known)
    return decode(body, types=types, logs=known)


async def _load(store: Store, root: bytes, count: int, types: Types, known: Logs) -> Log[Any]:
    bodies = await store.segments(root, until=EMPTY_ROOT)
    read = read_segments(root, count, bodies)
    apart = list(dict.fromkeys(part.digest for part in read.parts if part.body is None))
    held = dict(zip(apart, await store.objects(apart), strict=True)) if apart else {}
    elements = [await _element(store, part, held, types, known) for part in read.parts]
    log: Log[Any] = Log.restored(elements, read.roots)
    log.mark_stored(store, count)
    return log


async def _element(store: Store, part: Part, held: dict[bytes, bytes], types: Types, known: Logs) -> Any:
    body = held[part.digest] if part.body is None else part.body
    return await _read(store, body, types, known)
