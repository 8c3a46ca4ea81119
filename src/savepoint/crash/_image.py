"""What lies below one directory, as data that can be compared and put on a disk."""

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from attrs import define, field, frozen

from savepoint._digest import Domain, seal

from ._recording import Sort


@frozen(kw_only=True)
class Entry:
    """One name."""

    sort: Sort
    mode: int
    node: int
    """names with an equal number are one file"""
    text: str = ""
    """where a link leads"""
    content: bytes = b""
    """of a file"""


@define(frozen=True, slots=False)
class Image:
    """One state of a disk; two are equal where everything but their labels is."""

    entries: Mapping[str, Entry]
    """by path below the directory; a directory's before what is in it"""
    label: str = field(default="", eq=False)
    """how it came to be, for people"""

    @cached_property
    def digest(self) -> bytes:
        """Equal for equal images: of the names' nodes only which are the same counts."""
        first: dict[int, str] = {}
        parts: list[bytes] = []
        for path, each in sorted(self.entries.items()):
            same = first.setdefault(each.node, path)
            words = (path, each.sort.value, oct(each.mode), each.text, same)
            for part in (*(os.fsencode(word) for word in words), each.content):
                parts += (len(part).to_bytes(8, "big"), part)
        return seal(Domain.OBJECT, b"".join(parts))


def write(image: Image, place: Path) -> None:
    """Puts it into the directory `place`, which it makes and which must not be there yet. Raises `OSError`."""
    place.mkdir(parents=True)
    made: dict[int, Path] = {}
    for path, each in image.entries.items():
        at = place / path
        if each.sort is Sort.DIRECTORY:
            at.mkdir()
        elif each.sort is Sort.LINK:
            at.symlink_to(each.text)
        elif each.node in made:
            at.hardlink_to(made[each.node])
        else:
            at.write_bytes(each.content)
            at.chmod(each.mode)
            made[each.node] = at
    for path, each in reversed(list(image.entries.items())):  # at last: one may be read-only
        if each.sort is Sort.DIRECTORY:
            (place / path).chmod(each.mode)
