"""Whether two attempts acted for one run at once: pure, over what was seen of a race."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from savepoint.crash import Verdict, Violation

Json = dict[str, Any]


def double_owner(told: Json) -> Iterator[Violation]:
    """Two attempts acted for one run at once. Pure.

    One thing is allowed, and documented (`design/0006-runs.md`): an owner that was stopped between the look at its
    lease and the body enters that one body. Of a ONCE call the heir must have asked.
    """
    gap = told["stop"] in ("act.before", "act.after") or told["stop"].startswith("body.before")
    if told.get("written"):
        yield Violation(Verdict.DOUBLE_OWNER, f"the superseded owner wrote into {told['written']}")
    if len(told.get("entered", ())) > (1 if told["stop"].startswith("body.before") else 0):
        yield Violation(Verdict.DOUBLE_OWNER, f"the superseded owner entered {told['entered']}")
    yield from twice(told["acts"], told.get("doubted", ()) if gap else ())
    ended = [told[each]["said"] for each in ("owner", "other", "finish") if each in told]
    if ended.count("completed") > 1:
        yield Violation(Verdict.DOUBLE_OWNER, f"two of them completed it: {ended}")


def twice(acts: Sequence[Sequence[str]], doubted: Sequence[str] = ()) -> Iterator[Violation]:
    """Doubtful calls that the outside saw twice, except those that somebody was asked about."""
    counts = Counter(key for _, kind, key in acts if kind in ("once", "keyed"))
    for tag, kind, key in acts:
        if counts[key] > 1 and key not in doubted:
            counts[key] = 1
            yield Violation(Verdict.DUPLICATE, f"{kind} {tag} was performed twice, and nobody was asked")
