"""What a command printed, bounded while it is read: the first and the last bytes are kept, the middle is counted."""


class Output:
    """Keeps at most `limit` bytes: a head of half of it, and a tail."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        room = self._head_limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room else data
        if len(self._tail) > 2 * self._tail_limit + 65536:  # trimmed now and then: linear in what is printed
            self._trim()

    def _trim(self) -> None:
        excess = max(0, len(self._tail) - self._tail_limit)
        del self._tail[:excess]
        self._dropped += excess

    def kept(self) -> tuple[bytes, bytes, int]:
        """Head, tail, and how many bytes between them are gone."""
        self._trim()
        return bytes(self._head), bytes(self._tail), self._dropped
