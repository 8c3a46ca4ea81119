"""Pure: what was seen of one run of anyone's program, beside unkilled runs -> what is wrong with it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import field, frozen

from ._ledger import Ledger, LedgerFault, grown_fault, parse_ledger, shown, torn_over
from ._verdict import Verdict, Violation

_NAMED = 3
"""Lines or files that one violation names; the rest are counted."""
FAILURES = 2
"""Processes in a row that may end with an error, unkilled, before nobody starts another one."""


@frozen(kw_only=True)
class Rules:
    """What the caller said of the program."""

    parked_code: int = 3
    """the exit code that means: I wait for a decision"""
    allow_stdout: bool = False


@frozen(kw_only=True)
class Ran:
    """One process."""

    code: int | None = 0
    signal: int | None = None
    killed: bool = False
    """by the rig, as planned"""
    timed_out: bool = False
    ledger: bytes = b""
    """the ledger's whole content after it"""
    ledger_fault: str = ""
    """why there is no content"""
    rewrote: str = ""
    """the call that took back what was in the ledger"""
    printed: bytes = b""
    """the beginning of what it wrote to standard output"""
    children: Sequence[str] = ()
    """command lines of processes that outlived it"""
    last_words: str = ""
    """the last line that it wrote to standard error"""

    @property
    def end(self) -> str:
        """How it ended, in words."""
        if self.timed_out:
            return "did not end within its time"
        return f"was ended by signal {self.signal}" if self.signal is not None else f"exited with {self.code}"


@frozen(kw_only=True)
class Saw:
    """One run, from its start to its end."""

    processes: Sequence[Ran]
    compared: Mapping[str, str] = field(factory=dict[str, str])
    """path of a file that must equal the unkilled run's -> what it holds, as a digest"""

    @property
    def last(self) -> Ran:
        return self.processes[-1]


def needs_no_more(processes: Sequence[Ran], rules: Rules) -> bool:
    """Whether nobody would start another process after these."""
    last = processes[-1]
    if last.killed:
        return False
    recent = processes[-FAILURES:]
    return (
        last.timed_out or _ended(last, rules) or (len(recent) == FAILURES and not any(each.killed for each in recent))
    )


def parked(processes: Sequence[Ran], rules: Rules) -> bool:
    """Whether the run waits for a decision."""
    last = processes[-1]
    return not last.killed and not last.timed_out and last.code == rules.parked_code


# -- the target itself ------------------------------------------------------------------------------------------------


def reject(references: Sequence[Saw], rules: Rules) -> list[Violation]:
    """Why nothing can be shown of this program: faults of its unkilled runs, and whether these differ."""
    for reference in references:
        if found := [*_disqualifying(reference, rules), *_failing(reference, rules)]:
            return found
    first, *others = references
    for other in others:
        if differs := _difference(first, other):
            return [Violation(Verdict.NOT_DETERMINISTIC, f"two unkilled runs differ: {differs}")]
    if not parse_ledger(first.last.ledger).lines:
        return [Violation(Verdict.BAD_LEDGER, "the unkilled run left nothing there: no effect can be counted")]
    return []


def _disqualifying(saw: Saw, rules: Rules) -> Iterator[Violation]:
    """What no right program does, killed or not."""
    if fault := _ledger_fault(saw.processes):
        yield Violation(Verdict.BAD_LEDGER, fault)
    for index, ran in enumerate(saw.processes):
        if ran.children and not ran.killed:
            yield Violation(
                Verdict.LEAVES_CHILDREN, f"process {index} ended and left {_some(map(shown, ran.children))}"
            )
            break
    for index, ran in enumerate(saw.processes):
        if ran.printed and not rules.allow_stdout:
            text = shown(ran.printed.decode(errors="backslashreplace"))
            yield Violation(Verdict.PRINTS, f"process {index} printed {text}")
            break


def _failing(reference: Saw, rules: Rules) -> Iterator[Violation]:
    for ran in reference.processes:
        if ran.timed_out:
            yield Violation(Verdict.NEVER_FINISHES, f"an unkilled run {ran.end}{_words(ran)}")
        elif not _ended(ran, rules):
            yield Violation(Verdict.FAILS, f"an unkilled run {ran.end}{_words(ran)}")
        else:
            continue
        return


def _difference(one: Saw, other: Saw) -> str:
    """Where two unkilled runs differ, in words."""
    if one.last.code != other.last.code:
        return f"one {one.last.end}, the other {other.last.end}"
    mine, theirs = parse_ledger(one.last.ledger).lines, parse_ledger(other.last.ledger).lines
    if mine != theirs:
        return f"only one of them wrote {_some(map(shown, [*(mine - theirs), *(theirs - mine)]))}"
    if names := _unequal(one.compared, other.compared):
        return f"they left other content in {_some(names)}"
    return ""


# -- one run ----------------------------------------------------------------------------------------------------------


def judge(saw: Saw, reference: Saw, rules: Rules) -> list[Violation]:
    """What is wrong with it, the gravest first. `reference` must not be rejected."""
    found = list(_disqualifying(saw, rules))
    if not any(each.verdict is Verdict.BAD_LEDGER for each in found):
        found += _effects(saw, parse_ledger(reference.last.ledger), rules)
    found += _ends(saw, reference, rules)
    if (
        _ended(saw.last, rules)
        and not parked(saw.processes, rules)
        and (names := _unequal(saw.compared, reference.compared))
    ):
        found.append(Violation(Verdict.DIVERGED, f"other content than after an unkilled run in {_some(names)}"))
    return found


def _effects(saw: Saw, right: Ledger, rules: Rules) -> Iterator[Violation]:
    """The lines of the ledger beside the right ones."""
    mine = parse_ledger(saw.last.ledger)
    twice = [
        f"{shown(line)} came {count} times, {right.lines[line]} in an unkilled run"
        for line, count in mine.lines.items()
        if count > right.lines[line] > 0
    ]
    if twice:
        yield Violation(Verdict.DUPLICATE, _some(twice))
    done = _ended(saw.last, rules) and not parked(saw.processes, rules)
    if done and (lost := [shown(line) for line in right.lines - mine.lines]):
        yield Violation(Verdict.LOST, f"{_some(lost)} never came, and the run ended as done")
    foreign = [line for line in mine.lines if line not in right.lines]
    torn = set(_torn(saw.processes, mine, right))
    if broken := [shown(line) for line in foreign if line in torn]:
        yield Violation(Verdict.CORRUPT, f"half-written: {_some(broken)}")
    if others := [shown(line) for line in foreign if line not in torn]:
        yield Violation(Verdict.DIVERGED, f"{_some(others)} came, which no unkilled run writes")


def _torn(processes: Sequence[Ran], mine: Ledger, right: Ledger) -> Iterator[str]:
    """Lines that a kill cut and something was written after, and a last line that nothing ended."""
    for before in processes[:-1]:
        if line := torn_over(before.ledger, processes[-1].ledger):
            yield line
    if mine.torn and not right.torn:
        yield mine.torn


def _ends(saw: Saw, reference: Saw, rules: Rules) -> Iterator[Violation]:
    """How its processes ended, beside those of an unkilled run."""
    last = saw.last
    if last.timed_out:
        yield Violation(Verdict.STUCK, f"process {len(saw.processes) - 1} {last.end}{_words(last)}")
        return
    if not last.killed and not _ended(last, rules):
        count = len(saw.processes)
        yield Violation(Verdict.STUCK, f"not done after {count} processes, the last of which {last.end}{_words(last)}")
        return
    right = {reference.last.code, rules.parked_code}
    for index, ran in enumerate(saw.processes):
        if not ran.killed and ran.code not in right:
            what = f"process {index} {ran.end}, an unkilled one {reference.last.end}"
            yield Violation(Verdict.DIVERGED, f"{what}{_words(ran)}")
            return


# -- words ------------------------------------------------------------------------------------------------------------


def _ended(ran: Ran, rules: Rules) -> bool:
    return not ran.killed and not ran.timed_out and ran.code in (0, rules.parked_code)


def _ledger_fault(processes: Sequence[Ran]) -> str:
    before = b""
    for index, ran in enumerate(processes):
        if fault := ran.ledger_fault or grown_fault(before, ran.ledger):
            return f"after process {index}, {fault}"
        if ran.rewrote:
            return f"process {index} took back what was in it: {ran.rewrote}"
        before = ran.ledger
    try:
        parse_ledger(before)
    except LedgerFault as fault:
        return str(fault)
    return ""


def _unequal(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return sorted(path for path in {*one, *other} if one.get(path) != other.get(path))


def _some(words: Iterable[str]) -> str:
    """The first few, and how many more."""
    counted = list(Counter(words))
    more = len(counted) - _NAMED
    return ", ".join(counted[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _words(ran: Ran) -> str:
    return f" ({shown(ran.last_words)})" if ran.last_words else ""
