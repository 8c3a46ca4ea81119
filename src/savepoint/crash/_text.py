"""A report for people: few lines, none wrapped, each violation with the line that shows it again."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import groupby

from attrs import frozen

from ._report import NEXT, Finding, Kills, Report
from ._verdict import Verdict

SHOWN = 3
"""Examples of one verdict that are shown."""


class Tone(StrEnum):
    """What a line of the text is, for those who colour it."""

    PLAIN = ""
    GOOD = "good"
    BAD = "bad"
    QUIET = "quiet"


@frozen
class Line:
    """One line for people."""

    text: str
    tone: Tone = Tone.PLAIN


def text(report: Report) -> str:
    return "\n".join(line.text for line in lines(report))


def lines(report: Report) -> Iterator[Line]:
    """For people; no line is wrapped, so that those to copy stay whole."""
    yield Line(f"crash rig: {report.target}")
    yield Line("")
    yield _headline(report)
    for each in report.rejected:
        yield Line(f"  {each}", Tone.BAD)
        yield Line(f"  next: {NEXT.get(each.verdict, 'run it by hand in an empty directory')}")
    yield from _groups(report)
    yield Line("")
    yield Line(_numbers(report), Tone.QUIET)
    if report.verdicts:
        yield Line(", ".join(f"{count} {name}" for name, count in report.verdicts.items()), Tone.QUIET)
    yield from _limits(report)


def _headline(report: Report) -> Line:
    if report.rejected:
        return Line(f"REJECTED: {report.rejected[0].verdict}", Tone.BAD)
    if report.violated:
        return Line(f"VIOLATED: {report.violated} of {_counted(len(report.tried), 'run')} went wrong", Tone.BAD)
    if not report.passed:
        why = "interrupted" if report.interrupted else "there was no time for a single kill"
        why = "no process got to its kill" if report.tried else why
        return Line(f"NOTHING TRIED: {why}", Tone.BAD)
    if report.interrupted:
        return Line(f"INTERRUPTED: {_extent(report)}; nothing was violated so far", Tone.BAD)
    return Line(f"PASSED: {_extent(report)}; nothing was violated", Tone.GOOD)


def _extent(report: Report) -> str:
    """What was tried, and of how much: a part is never passed off as all."""
    count = len(report.tried)
    if report.kills is Kills.ONLY:
        return f"the run {report.tried[0].schedule}"
    if report.kills is Kills.STORM:
        return f"{_counted(count, 'storm')} of up to six kills, drawn"
    noun = "single kill" if report.kills is Kills.SINGLE else "single and double kill"
    if report.complete:
        return f"all {_counted(count, noun)}"
    if report.by_time:
        return f"{_counted(count, noun)}"
    if report.planned is None:
        return f"{count} of {report.places} single kills, evenly spread, and no double kill"
    return f"{count} of {report.planned} {noun}s, evenly spread"


def _groups(report: Report) -> Iterator[Line]:
    ordered = sorted(report.findings, key=lambda each: list(Verdict).index(each.verdict))
    for verdict, group in groupby(ordered, key=lambda each: each.verdict):
        found = list(group)
        runs = len({each.schedule for each in found})
        yield Line("")
        yield Line(f"{verdict}: {_counted(runs, 'run')}", Tone.BAD)
        examples = _examples(found)
        for each in examples:
            where = f", died {', then '.join(each.where)}" if any(each.where) else ""
            yield Line(f"  {each.schedule}{where}")
            yield Line(f"    {each.what}")
            yield Line(f"    $ {report.reproduction(each.schedule)}", Tone.QUIET)
        if more := len(found) - len(examples):
            yield Line(f"  and {more} more", Tone.QUIET)


def _numbers(report: Report) -> str:
    rate = len(report.tried) / report.seconds if report.seconds else 0.0
    return (
        f"{_counted(len(report.tried), 'run')}, {_counted(report.processes, 'process')}, {report.killed} killed, "
        f"{report.seconds:.1f} s, {rate:.1f} runs a second"
    )


def _limits(report: Report) -> Iterator[Line]:
    """What this report does not show."""
    if report.places:
        yield Line(f"{report.places_tried} of {report.places} places of the unkilled run", Tone.QUIET)
    if missed := sum(1 for each in report.tried if not each.reached):
        yield Line(f"{_counted(missed, 'run')} ended before a planned kill came", Tone.QUIET)
    if report.by_time:
        yield Line(f"killed at times, not at system calls ({report.by_time}): a sample, not all places")
    if report.interrupted:
        yield Line("interrupted: this is what was found until then")
    elif report.passed and report.kills in (Kills.SINGLE, Kills.DOUBLE) and len(report.tried) != report.planned:
        yield Line("not all was tried: a longer --budget tries more")


def _examples(found: Sequence[Finding]) -> list[Finding]:
    """A few, of different words if there are some."""
    first: dict[str, Finding] = {}
    for each in found:
        first.setdefault(each.what, each)
    others = [each for each in found if first[each.what] is not each]
    return [*first.values(), *others][:SHOWN]


def _counted(count: int, noun: str) -> str:
    plural = "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{'' if count == 1 else plural}"
