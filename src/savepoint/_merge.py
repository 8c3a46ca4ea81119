"""The three-way merge of a tree: what is to be done and what conflicts, decided before anything is written."""

from collections.abc import Iterable, Sequence

from attrs import frozen

from ._ignore import Ignore
from ._manifest import Entry, EntryKind, display
from ._present import below, present, split
from ._tree import Delta


@frozen(kw_only=True)
class Plan:
    """Pure data; parents come before their children."""

    todo: tuple[Delta, ...]
    wanted: tuple[Delta, ...]
    """all changes: those to do and those that are there already"""
    conflicts: tuple[str, ...]


def plan(root: int, deltas: Sequence[Delta], ignore: Ignore) -> Plan:
    """Compares what each path was, shall be and is. `ignore` are this tree's own rules: nothing they leave out goes."""
    wanted = [d for d in deltas if d.new is not None or not ignore.hides(d.path, directory=is_directory(d.old))]
    todo: list[Delta] = []
    clashes: set[bytes] = set()
    for delta in wanted:
        now = present(root, delta.path)
        if _equal(now, delta.new):
            continue
        if _equal(now, delta.old) or _half_done(now, delta.new):
            todo.append(delta)
        else:
            clashes.add(delta.path)
    clashes |= set(_in_the_way(root, todo))
    clashes |= set(_without_parent(root, todo, wanted))
    return Plan(todo=tuple(todo), wanted=tuple(wanted), conflicts=tuple(sorted(map(display, clashes))))


def is_directory(entry: Entry | None) -> bool:
    return entry is not None and entry.kind is EntryKind.DIRECTORY


def _equal(now: Entry | None, wanted: Entry | None) -> bool:
    return now is None if wanted is None else wanted.same(now)


def _half_done(now: Entry | None, wanted: Entry | None) -> bool:
    """A directory keeps the owner's bits until its children are written; a killed merge leaves it so."""
    if now is None or wanted is None or not (is_directory(now) and is_directory(wanted)):
        return False
    return now.mode == wanted.mode | 0o700


def _in_the_way(root: int, todo: Sequence[Delta]) -> Iterable[bytes]:
    """What would have to go with a directory that becomes something else, though nobody removed it."""
    going = {delta.path for delta in todo if delta.new is None}
    for delta in todo:
        if is_directory(delta.old) and delta.new is not None and not is_directory(delta.new):
            yield from (path for path in below(root, delta.path) if path not in going)


def _without_parent(root: int, todo: Sequence[Delta], wanted: Sequence[Delta]) -> Iterable[bytes]:
    """What would be written below something that is no directory any more."""
    known = {delta.path: is_directory(delta.new) for delta in wanted}
    for delta in todo:
        parent, _ = split(delta.path)
        if delta.new is None:
            continue
        if parent not in known:
            known[parent] = is_directory(present(root, parent))
        if not known[parent]:
            yield delta.path
