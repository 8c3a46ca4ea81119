"""A place in canonical bytes: heads in their shortest form, and never a byte past the end."""

from ._errors import Corrupt

INDEFINITE = 31


class Cursor:
    """Reads heads and bytes one after the other. Every method raises `Corrupt`."""

    __slots__ = ("data", "end", "pos")
    data: bytes
    end: int
    pos: int

    def __init__(self, data: bytes, pos: int = 0) -> None:
        self.turn_to(data, pos)

    def turn_to(self, data: bytes, pos: int = 0) -> None:
        if type(data) is not bytes:
            raise TypeError(f"canonical bytes are bytes, not {type(data).__name__}")
        self.data = data
        self.pos = pos
        self.end = len(data)

    def any_head(self) -> tuple[int, int]:
        """Major type and argument of the next item."""
        pos = self.pos
        if pos >= self.end:
            raise self.cut()
        first = self.data[pos]
        if first & 31 < 24:
            self.pos = pos + 1
            return first >> 5, first & 31
        return first >> 5, self.long_argument(first & 31)

    def long_argument(self, info: int) -> int:
        """The argument of a head of more than one byte, which starts here."""
        if info > 27:
            what = "an indefinite length" if info == INDEFINITE else "an undefined head"
            raise Corrupt(f"{what} at byte {self.pos}")
        size = 1 << (info - 24)
        start, stop = self.pos + 1, self.pos + 1 + size
        if stop > self.end:
            raise self.cut()
        argument = int.from_bytes(self.data[start:stop], "big")
        if argument < (24 if size == 1 else 1 << (size * 4)):
            raise self.too_long(self.pos)
        self.pos = stop
        return argument

    def head(self, major: int) -> int:
        """The argument of the next item, which must be of this major type."""
        at = self.pos
        argument = self.data[at] - (major << 5) if at < self.end else 24
        if 0 <= argument < 24:  # the most frequent form first
            self.pos = at + 1
            return argument
        found, argument = self.any_head()
        if found != major:
            raise Corrupt(f"an item of another type than expected at byte {at}")
        return argument

    def take(self, size: int) -> bytes:
        start = self.pos
        stop = start + size
        if stop > self.end:
            raise self.cut()
        self.pos = stop
        return self.data[start:stop]

    def skip(self, expected: bytes) -> bool:
        """Goes past these bytes if they come next."""
        if not self.data.startswith(expected, self.pos):
            return False
        self.pos += len(expected)
        return True

    def skip_simple(self) -> bool:
        """Goes past a float or a constant, if one comes next: what stands behind these heads is no length."""
        if self.pos >= self.end or self.data[self.pos] < 0xE0:
            return False
        self.take({0xF9: 3, 0xFA: 5, 0xFB: 9}.get(self.data[self.pos], 1))
        return True

    def finish(self) -> None:
        if self.pos != self.end:
            raise Corrupt(f"{self.end - self.pos} bytes after the end at byte {self.pos}")

    def too_long(self, pos: int) -> Corrupt:
        return Corrupt(f"a head longer than needed at byte {pos}")

    def cut(self) -> Corrupt:
        return Corrupt(f"cut short: {self.end} bytes are not all")
