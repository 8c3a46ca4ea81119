"""Pure: which lines of the ledger a call wrote, and, from them, what is true of a call of unknown end."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen


@frozen(kw_only=True)
class Passed:
    """A body that was entered or left."""

    key: str
    """the call's idempotency key"""
    left: bool
    lines: int
    """how many lines the ledger had then"""


@frozen(kw_only=True)
class Known:
    """What an unkilled run shows of one call."""

    lines: Sequence[str]
    """what it wrote to the ledger"""
    result: str
    """canonical bytes of its result, in hexadecimal digits; empty where it has none"""


def written_by(passed: Sequence[Passed], ledger: Sequence[str]) -> dict[str, list[str]]:
    """Idempotency key -> the lines that its body wrote: those that came while it was in it.

    Of several bodies that were at work when a line came, the one that was left first wrote it: bodies that perform
    others are left after them, and one that wrote has little left to do.
    """
    began: dict[str, int] = {}
    spans: list[tuple[int, int, str]] = []
    for each in passed:
        if not each.left:
            began[each.key] = each.lines
        elif each.key in began:
            spans.append((began.pop(each.key), each.lines, each.key))
    found: dict[str, list[str]] = {key: [] for *_, key in spans}
    for number, line in enumerate(ledger):
        writer = next((key for first, end, key in spans if first <= number < end), None)
        if writer is not None:
            found[writer].append(line)
    return found


def were_performed(
    asked: Sequence[str], performed: Iterable[str], known: Mapping[str, Known], ledger: Sequence[str]
) -> list[bool]:
    """For each call in `asked`: whether the ledger has a line of it that no call in `performed` accounts for."""
    left = Counter(ledger)
    for call in performed:
        left -= Counter(known[call].lines) if call in known else Counter[str]()
    found: list[bool] = []
    for call in asked:
        own = Counter(known[call].lines) if call in known else Counter[str]()
        found.append(bool(own & left))
        left -= own
    return found
