"""What a program did to the files below one directory, as data: enough to say what a power cut may leave of it."""

from collections.abc import Mapping, Sequence
from enum import Enum

from attrs import field, frozen

ROOT = 0
"""The node of the directory itself."""


class Sort(Enum):
    """What a node is."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"


@frozen(kw_only=True)
class Node:
    """One file, directory or symbolic link, whatever it is called."""

    sort: Sort
    mode: int = 0o644
    """permission bits, as they were at last"""
    text: str = ""
    """where a link leads"""
    content: bytes = b""
    """of a file that was there at the start; all that is later comes by events"""


@frozen(kw_only=True)
class Wrote:
    """Bytes put at an offset of a file; a gap before them reads as zeros."""

    node: int
    offset: int
    data: bytes


@frozen(kw_only=True)
class Resized:
    """A file cut or grown to `size` bytes."""

    node: int
    size: int


@frozen(kw_only=True)
class Named:
    """Names given and taken, all of them or none."""

    changes: Sequence[tuple[int, str, int | None]]
    """directory, name, and the node that it leads to from now on"""


@frozen(kw_only=True)
class Synced:
    """A file or directory made durable; all of them where `node` is `None`."""

    node: int | None


Change = Wrote | Resized | Named | Synced


@frozen(kw_only=True)
class Event:
    """One change, and the system call that made it."""

    change: Change
    text: str
    """the call, for people"""
    calls: int
    """how many calls that last were made by then, this one included"""


@frozen(kw_only=True)
class Recording:
    """What was there at the start, durably, and all events since, in order."""

    nodes: Mapping[int, Node]
    """all that ever were; `ROOT` is the directory"""
    names: Mapping[int, Mapping[str, int]] = field(factory=dict[int, Mapping[str, int]])
    """of each directory at the start"""
    events: Sequence[Event]
