"""What a power cut may leave: functions over a recording, which say what was durable and what of the rest may be there.

The model. POSIX promises of a file what `fsync` returned for: its content and size (`fdatasync` too), not its name. A
name is durable once its directory was synced after it was given or taken; a rename that was not is undone. What was not
synced may be there or not, in any order, and in parts: a write is torn at sectors of 512 bytes (the file may have grown
for the rest of it), a name may lead to a file whose data never arrived (zero length, or a length of zeros). That is the model of Pillai et al., "All File Systems
Are Not Created Equal" (OSDI 2014), with these choices:

* A rename is whole or undone, also between two directories; a sync of either makes it durable, and with it what was
  done earlier to the directories involved: a journal commits in order. Names of one directory may be lost one alone,
  but not one that a later one needs.
* Syncing a new file does not make its name durable. (Several file systems do that; a program must not rely on it.)
* `sync_file_range` and `msync` make nothing durable; `sync` and `syncfs` all.
* Modes are those at the end, at every cut. What was there at the start is durable.
* A sector is written or not: nothing of it is garbage, and bytes that were durable do not rot.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from attrs import frozen

from ._image import Entry, Image
from ._recording import ROOT, Change, Event, Named, Recording, Resized, Sort, Synced, Wrote

SECTOR = 512
MOST = 48
"""Images of one cut at most"""


@frozen
class _Part:
    """How much of a write arrives."""

    length: int = 0
    """the bytes from its start that do"""
    sized: bool = False
    """the place of the rest is there too, its bytes are not: a file that grew reads as zeros there"""


def images(recording: Recording, at: int, *, spared: Collection[str] = (), most: int = MOST) -> Iterator[Image]:
    """Distinct disks that a power cut after the first `at` events may leave, the strictest first, `most` at most.

    What lies below the names `spared` of the directory is on another disk: nothing of it is lost.
    """
    events = recording.events[:at]
    kept = durable(recording, at, spared=spared)
    pending = [index for index in range(len(events)) if index not in kept]
    seen: set[bytes] = set()
    for label, also, parts in _choices(events, pending, most):
        image = build(recording, events, kept | also, parts, label)
        if image.digest not in seen and len(seen) < most:
            seen.add(image.digest)
            yield image


# -- what is durable --------------------------------------------------------------------------------------------------


def durable(recording: Recording, at: int, *, spared: Collection[str] = ()) -> frozenset[int]:
    """The indices of those of the first `at` events that no power cut takes back."""
    events = recording.events[:at]
    found = set(_spared(recording, events, spared))
    for index, event in enumerate(events):
        match event.change:
            case Synced(node=None):
                found |= set(range(index + 1))
            case Synced(node=int(node)):
                found.add(index)
                if recording.nodes[node].sort is Sort.DIRECTORY:
                    found |= _committed(events[:index], node)
                else:
                    found |= {n for n in range(index) if _data(events[n].change) == node}
            case _:
                pass
    return frozenset(found)


def _data(change: Change) -> int | None:
    """The file whose data it changes."""
    return change.node if isinstance(change, (Wrote, Resized)) else None


def _committed(events: Sequence[Event], directory: int) -> set[int]:
    """The names that a sync of `directory` makes durable: newest first, each brings what its directories need."""
    touched, found = {directory}, set[int]()
    for index in range(len(events) - 1, -1, -1):
        change = events[index].change
        if isinstance(change, Named):
            of = {each for each, _, _ in change.changes}
            if of & touched:
                touched |= of
                found.add(index)
    return found


def _spared(recording: Recording, events: Sequence[Event], spared: Collection[str]) -> Iterator[int]:
    """The indices of what happened on the other disk."""
    nodes: set[int] = set()

    def add(node: int) -> None:
        nodes.add(node)
        for each in recording.names.get(node, {}).values():
            add(each)

    for name, node in recording.names.get(ROOT, {}).items():
        if name in spared:
            add(node)
    for index, event in enumerate(events):
        change = event.change
        if isinstance(change, Named):
            there = [node for of, name, node in change.changes if of in nodes or (of == ROOT and name in spared)]
            nodes |= {node for node in there if node is not None}
            if there:
                yield index
        elif change.node in nodes:
            yield index


# -- what may be there besides ------------------------------------------------------------------------------------------

_Choice = tuple[str, frozenset[int], Mapping[int, _Part]]
"""label; the pending events that arrive; of writes that arrive in part, how"""


def _choices(events: Sequence[Event], pending: Sequence[int], most: int) -> Iterator[_Choice]:
    everything = frozenset(pending)
    names = frozenset(index for index in pending if isinstance(events[index].change, Named))
    data = everything - names
    nothing: dict[int, _Part] = {}
    yield "only what was synced", frozenset(), nothing
    yield "everything", everything, nothing
    yield "names without data", names, nothing
    yield "names, and zeros for data", everything, {index: _Part(sized=True) for index in data}
    yield "data without names", data, nothing
    lists = (
        list(_torn(events, sorted(data), everything)),
        [(f"without {_name(events, n)}", everything - _needing(events, pending, n), nothing) for n in pending],
        [(f"of what was not synced only {_name(events, n)}", frozenset({n}), nothing) for n in sorted(data)],
        [(f"nothing from {_name(events, n)} on", frozenset(x for x in pending if x < n), nothing) for n in pending],
    )
    for each in lists:
        yield from _sample(each, max(1, most // len(lists)))


def _name(events: Sequence[Event], index: int) -> str:
    return f"event {index}, {events[index].text}"


def _torn(events: Sequence[Event], data: Sequence[int], everything: frozenset[int]) -> Iterator[_Choice]:
    for index in data:
        change = events[index].change
        if not isinstance(change, Wrote):
            continue
        first = SECTOR - change.offset % SECTOR
        cuts = list(range(first, len(change.data), SECTOR))
        for length in sorted({cuts[0], cuts[len(cuts) // 2], cuts[-1]} if cuts else ()):
            for sized in (False, True):
                what = f"{length} bytes of {_name(events, index)}{', the rest not written' if sized else ''}"
                yield what, everything, {index: _Part(length, sized)}


def _needing(events: Sequence[Event], pending: Sequence[int], lost: int) -> frozenset[int]:
    """`lost`, and the later names that cannot be there without it: they are about a name that it gave or took."""
    change, found = events[lost].change, {lost}
    if isinstance(change, Named):
        touched = {(of, name) for of, name, _ in change.changes}
        for index in pending:
            later = events[index].change
            if index > lost and isinstance(later, Named):
                about = {(of, name) for of, name, _ in later.changes}
                if about & touched:
                    touched |= about
                    found.add(index)
    return frozenset(found)


def _sample(choices: Sequence[_Choice], most: int) -> Iterator[_Choice]:
    """Evenly, the last one among them."""
    count = min(len(choices), most)
    for n in range(count):
        yield choices[len(choices) - 1 - n * len(choices) // count]


# -- a disk -------------------------------------------------------------------------------------------------------------


def build(
    recording: Recording,
    events: Sequence[Event],
    arrived: Collection[int],
    parts: Mapping[int, _Part] | None = None,
    label: str = "",
) -> Image:
    """The disk with those of `events` whose indices have `arrived`, some of them in part."""
    names = {node: dict(each) for node, each in recording.names.items()}
    contents: dict[int, bytearray] = {}

    def content(node: int) -> bytearray:
        return contents.setdefault(node, bytearray(recording.nodes[node].content))

    for index, event in enumerate(events):
        if index not in arrived:
            continue
        match event.change:
            case Named(changes=changes):
                for of, name, node in changes:
                    if node is None:
                        names.setdefault(of, {}).pop(name, None)
                    else:
                        names.setdefault(of, {})[name] = node
            case Resized(node=node, size=size):
                held = content(node)
                held[size:] = b"\0" * (size - len(held))
            case Wrote(node=node, offset=offset, data=data):
                _put(content(node), offset, data, None if parts is None else parts.get(index))
            case Synced():
                pass
    entries = dict(_walk(recording, names, contents, ROOT, ""))
    return Image(entries, label)


def _put(held: bytearray, offset: int, data: bytes, part: _Part | None) -> None:
    here = data if part is None else data[: part.length]
    end = offset + (len(here) if part is None or not part.sized else len(data))
    held += b"\0" * (end - len(held))
    held[offset : offset + len(here)] = here


def _walk(
    recording: Recording,
    names: Mapping[int, Mapping[str, int]],
    contents: Mapping[int, bytearray],
    directory: int,
    path: str,
) -> Iterator[tuple[str, Entry]]:
    for name, number in sorted(names.get(directory, {}).items()):
        node, here = recording.nodes[number], f"{path}{name}"
        content = bytes(contents.get(number, node.content))
        yield here, Entry(sort=node.sort, mode=node.mode, node=number, text=node.text, content=content)
        if node.sort is Sort.DIRECTORY:
            yield from _walk(recording, names, contents, number, f"{here}/")
