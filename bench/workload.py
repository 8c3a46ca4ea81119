"""The one piece of work that every candidate does: turns of a model text, a tool call and a tool result.

Texts are base64 of a SHAKE stream keyed by the turn: the same on every machine, and hardly compressible.
"""

from base64 import b64encode
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b, shake_128

from attrs import frozen

MODEL_CHARS = 200
RESULT_CHARS = 2048
QUESTION_CHARS = 16


def stream(kind: str, turn: int, salt: str, chars: int) -> str:
    """`chars` characters that follow from the arguments alone."""
    raw = shake_128(f"{kind}|{turn}|{salt}".encode()).digest(chars)
    return b64encode(raw)[:chars].decode()


@frozen(kw_only=True)
class Turn:
    """What one turn adds. `salt` tells a fork's turns from those of its source."""

    call_id: str
    text: str
    question: str
    result: str

    @property
    def pair(self) -> tuple[str, str]:
        return self.text, self.result


@lru_cache(maxsize=4096)
def turn(number: int, salt: str = "") -> Turn:
    return Turn(
        call_id="call_" + shake_128(f"id|{number}|{salt}".encode()).hexdigest(8),
        text=stream("model", number, salt, MODEL_CHARS),
        question=stream("arg", number, salt, QUESTION_CHARS),
        result=stream("tool", number, salt, RESULT_CHARS),
    )


def fork_salt(index: int) -> str:
    return f"fork{index}"


def digest(pairs: Iterable[tuple[str, str]]) -> str:
    """Tells one transcript from another: loss, doubling and reordering all show."""
    state = blake2b(digest_size=16)
    for text, result in pairs:
        state.update(f"{text}\0{result}\1".encode())
    return state.hexdigest()


def expected(turns: int, *, fork: int | None = None) -> str:
    """The digest after `turns` turns; with `fork`, of that fork's one turn after them too."""
    pairs = [turn(number).pair for number in range(turns)]
    if fork is not None:
        pairs.append(turn(turns, fork_salt(fork)).pair)
    return digest(pairs)
