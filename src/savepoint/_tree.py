"""Reading stored trees: the root, a directory's entries, what differs between two snapshots."""

from collections.abc import AsyncGenerator, Mapping, Sequence

from attrs import frozen

from ._contents import get_many
from ._errors import Corrupt
from ._ignore import RULES, Ignore
from ._manifest import CHUNK, Entry, EntryKind, decode_node, decode_pieces, decode_root, display, join
from ._system import Change, ChangeKind, Contents


@frozen(kw_only=True)
class Delta:
    """One path that differs between two trees; of a directory only kind and mode count."""

    path: bytes
    old: Entry | None
    new: Entry | None

    def change(self) -> Change:
        kind = ChangeKind.REMOVED if self.new is None else ChangeKind.CHANGED
        return Change(path=display(self.path), kind=ChangeKind.ADDED if self.old is None else kind)


async def read_root(contents: Contents, snapshot: bytes) -> Entry:
    """Raises `Missing`, `Corrupt`, `Newer`."""
    return decode_root(await contents.get(snapshot))


async def read_nodes(contents: Contents, directories: Sequence[Entry]) -> list[tuple[Entry, ...]]:
    return [decode_node(data) for data in await get_many(contents, [entry.ref for entry in directories])]


async def pieces(contents: Contents, entry: Entry, path: bytes) -> AsyncGenerator[tuple[int, bytes]]:
    """A file's bytes as (offset, data), holes left out. Raises `Missing`, `Corrupt`."""
    if entry.size <= CHUNK:
        yield 0, _sized(await contents.get(entry.ref), entry.size, path)
        return
    digests = decode_pieces(await contents.get(entry.ref), entry.size)
    for index, digest in enumerate(digests):
        offset = index * CHUNK
        if digest is not None:
            yield offset, _sized(await contents.get(digest), min(CHUNK, entry.size - offset), path)


async def rules_of(contents: Contents, root: Entry) -> Ignore:
    """The ignore rules that a snapshot holds."""
    (entries,) = await read_nodes(contents, [root])
    rules = next((e for e in entries if e.name == RULES and e.kind is EntryKind.FILE), None)
    if rules is None:
        return Ignore()
    return Ignore.parse(b"".join([data async for _, data in pieces(contents, rules, RULES)]))


async def deltas(contents: Contents, old: bytes, new: bytes) -> list[Delta]:
    """Every path that differs, parents before their children. Equal directories are not read.

    What is absent from `new` because its rules leave it out was not removed, and is not listed.
    """
    if old == new:
        return []
    roots = await read_root(contents, old), await read_root(contents, new)
    ignore = await rules_of(contents, roots[1])
    found: list[Delta] = []
    waiting: list[tuple[bytes, Entry | None, Entry | None]] = [(b"", *roots)]
    while waiting:
        path, left, right = waiting.pop()
        if left == right or (right is None and left is not None and _left_out(ignore, path, left)):
            continue
        if left is None or not left.same(right):
            found.append(Delta(path=path, old=left, new=right))
        before, after = await _children(contents, left), await _children(contents, right)
        names = sorted(before.keys() | after.keys(), reverse=True)
        waiting.extend((join(path, name), before.get(name), after.get(name)) for name in names)
    return found


def _left_out(ignore: Ignore, path: bytes, entry: Entry) -> bool:
    return ignore.skips(path, entry.name, directory=entry.kind is EntryKind.DIRECTORY)


async def _children(contents: Contents, entry: Entry | None) -> Mapping[bytes, Entry]:
    if entry is None or entry.kind is not EntryKind.DIRECTORY:
        return {}
    return {child.name: child for child in (await read_nodes(contents, [entry]))[0]}


def _sized(data: bytes, size: int, path: bytes) -> bytes:
    if len(data) != size:
        raise Corrupt(
            f"{display(path)}: {len(data)} bytes are stored where the snapshot names {size}",
            next="use an earlier savepoint",
        )
    return data
