"""The programs of `outside_program` as targets of the rig, and what must hold of them whatever the outside does."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from attrs import frozen

from savepoint.crash import Act, Kill, Life, Outside, OutsidePlan, Target, Verdict, Violation
from savepoint.crash._outside_ledger import Received, ledger, received
from savepoint.crash._server import ForkServer

DOUBTFUL = frozenset({"once", "keyed"})
HELD = Kill("held", 1)
"""Death while the outside holds its answer back."""
TIMEOUT_S = 20.0


@frozen(kw_only=True)
class Seen:
    """All that was seen of one run."""

    setting: Mapping[str, Any]
    lives: Sequence[Mapping[str, Any]]
    """the report of each process, empty where it was killed"""
    ledger: Sequence[Act]
    received: Sequence[Received]

    @property
    def last(self) -> Mapping[str, Any]:
        return self.lives[-1]

    @property
    def value(self) -> str:
        """What the run returned, with fresh observations renamed by their first appearance."""
        return renamed(repr(self.last.get("value")))

    def decided(self, key: str, *, choice: str) -> list[str]:
        """Who is on record as having said so about this call."""
        return [by for of, said, by in self.last["decided"] if (of, said) == (key, choice)]


def renamed(text: str) -> str:
    known: dict[str, str] = {}
    return re.sub(r"\br\d+\b", lambda found: known.setdefault(found[0], f"R{len(known)}"), text)


@frozen(kw_only=True)
class OutsideTarget(Target):
    """One program. The setting of a run: `listed`, `seed`, `rate` (the plan of its outside), `lying` (the decisions are
    false), `false` (so are probes), `mute` (or they give no answer), `right` (another value that it may return),
    `jump_s` (by how much the clock jumps from life to life), and what `outside_program.live` takes.
    """

    program: str
    server: ForkServer
    outside: Outside

    @property
    def name(self) -> str:
        return self.program

    @property
    def variants(self) -> Sequence[Mapping[str, Any]]:
        return ({},)

    def live(self, place: Path, past: Sequence[Life], kill: Kill | None, setting: Mapping[str, Any]) -> Life:
        if not past:
            plan = OutsidePlan(**{name: setting[name] for name in ("listed", "seed", "rate") if name in setting})
            plan.write(place / "outside")
        request = {
            "program": self.program,
            "place": str(place),
            "socket": str(self.outside.socket),
            "answer": bool(past),
            "held": kill == HELD,
            "timeout_s": TIMEOUT_S,
            **{name: setting[name] for name in ("lying", "probe_s", "limit_s", "timeout_s") if name in setting},
            "clock_s": setting.get("jump_s", 0.0) * len(past),
        }
        reply = self.server.attempt(request, None if kill == HELD else kill)
        seen: Mapping[str, Any] = {**reply.report, "timed_out": reply.timed_out}
        return Life(
            killed=reply.killed,
            done=seen.get("status") == "completed",
            arrivals=reply.arrivals,
            seen={**seen, **setting},
        )

    def history(self, place: Path, lives: Sequence[Life]) -> Seen:
        return Seen(
            setting=lives[0].seen,
            lives=[each.seen for each in lives],
            ledger=ledger(place / "outside"),
            received=received(place / "outside"),
        )

    def judge(self, history: Seen, references: Sequence[Seen]) -> list[Violation]:
        return list(wrong(history, references))


# -- what must hold ---------------------------------------------------------------------------------------------------


def wrong(seen: Seen, references: Sequence[Seen]) -> Iterator[Violation]:
    """Everything that is wrong with it."""
    yield from _lives(seen)
    yield from _repeats(seen)
    if seen.last.get("status") != "completed":
        return  # the explorer says that it is stuck
    yield from _acts(seen)
    yield from _receipts(seen)
    yield from _raised(seen)
    if not any(seen.setting.get(name) for name in ("false", "lying", "rate")):
        right = {*(each.value for each in references), seen.setting.get("right")}
        if seen.value not in right:
            yield Violation(Verdict.DIVERGED, f"it returned {seen.value}, not one of {right}")


def _lives(seen: Seen) -> Iterator[Violation]:
    for life in seen.lives:
        if life.get("timed_out"):
            yield Violation(Verdict.STUCK, "a process was still there when its time was over")
        if life.get("status", "waiting") not in ("waiting", "completed"):
            yield Violation(Verdict.CORRUPT, f"the run ended as {life['status']}: {life['error']}")
        for kind, effect, _ in life.get("questions", ()):
            if kind != "in_doubt":
                yield Violation(Verdict.DIVERGED, f"a question of kind {kind} about {effect}")
            if effect == "sure" and not seen.setting.get("mute"):
                yield Violation(Verdict.DIVERGED, "sure is asked about although its probe is final and answers")


def _repeats(seen: Seen) -> Iterator[Violation]:
    """What the outside received again under one tag is the same call with the same key, of an attempt no older."""
    acts = [each for each in seen.received if each.operation == "act"]
    first: dict[str, Received] = {}
    for act in acts:
        former = first.setdefault(act.tag, act)
        if (former.key, former.digest) != (act.key, act.digest):
            yield Violation(Verdict.DIVERGED, f"{act.kind} {act.tag} came again with another key or other arguments")
    refused: set[tuple[str, int]] = set()
    for act in acts:
        if (act.tag, act.epoch) in refused:
            yield Violation(Verdict.DUPLICATE, f"{act.tag} was tried again by the attempt that saw it refused")
        if act.fault == "refused":
            refused.add((act.tag, act.epoch))
    for former, act in pairwise(acts):
        if act.epoch < former.epoch:
            yield Violation(Verdict.DOUBLE_OWNER, f"attempt {act.epoch} acted after attempt {former.epoch}")


def _acts(seen: Seen) -> Iterator[Violation]:
    """At most once, unless something false was said, and is on record as said."""
    counts = Counter((act.tag, act.key) for act in seen.ledger if act.kind in DOUBTFUL)
    for (tag, key), count in counts.items():
        redos = seen.decided(key, choice="redo")
        if count > 1 and not (_lied(seen, redos) and len(redos) >= count - 1):
            yield Violation(Verdict.DUPLICATE, f"{tag} was performed {count} times; on record as told to redo: {redos}")
    for tag, count in _asked_once(seen).items():
        key = next(each.key for each in seen.received if each.tag == tag and each.key)
        probes = sum(each.tag == tag and each.operation == "probe" for each in seen.received)
        if count > 1 + probes + len(seen.decided(key, choice="redo")):
            yield Violation(Verdict.DUPLICATE, f"{tag} was tried {count} times and nobody said that it may be")


def _asked_once(seen: Seen) -> Counter[str]:
    return Counter(each.tag for each in seen.received if each.operation == "act" and each.kind == "once")


def _receipts(seen: Seen) -> Iterator[Violation]:
    """Nothing performed is forgotten, and nothing is remembered that was not."""
    receipts: Mapping[str, tuple[str, str]] = seen.last["receipts"]
    known = {act.key: act for act in seen.ledger if act.kind in DOUBTFUL}
    for key, act in known.items():
        if receipts.get(key, ("", "none"))[1] != "performed":
            yield Violation(Verdict.LOST, f"{act.tag} was performed, its receipt is {receipts.get(key)}")
    for key, (effect, status) in receipts.items():
        if effect not in ("send", "tell", "sure", "weak", "pay", "rush") or status != "performed" or key in known:
            continue
        said = seen.decided(key, choice="performed")
        if not (said and _lied(seen, said)):
            yield Violation(Verdict.LOST, f"the outside never saw {effect}; on record as said to be performed: {said}")


def _raised(seen: Seen) -> Iterator[Violation]:
    """What the program met: refusals that took place, and of calls that leave a doubt no lost answer, ever."""
    for tag in re.findall(r"([\w.]+) refused", seen.value):
        if not any(each.tag == tag and each.fault == "refused" for each in seen.received):
            yield Violation(Verdict.CORRUPT, f"the program was told that {tag} was refused, which it was not")
    for tag in re.findall(r"([\w.]+) lost", seen.value):
        if tag.rpartition(".")[2] not in ("look", "put"):
            yield Violation(Verdict.LOST, f"the program met the ambiguous end of {tag}")


def _lied(seen: Seen, by: Sequence[str]) -> bool:
    """Whether those who said so may have said something false."""
    return all(seen.setting.get("false") if each == "probe" else seen.setting.get("lying") for each in by)
