"""What a campaign of kills found: numbers, violations with the line that shows each again; and as JSON."""

import shlex
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from attrs import field, frozen

from ._verdict import Verdict, Violation

FORMAT = 1
"""Of the JSON document; grows when a key changes its meaning or goes away."""
NEXT: dict[Verdict, str] = {
    Verdict.NOT_DETERMINISTIC: "make two unkilled runs write the same lines: fix seeds, clocks and ids, or leave them out",
    Verdict.LEAVES_CHILDREN: "wait for every process that the program starts, or end it, before the program ends",
    Verdict.NEVER_FINISHES: "give it less to do, or more time with --timeout",
    Verdict.BAD_LEDGER: "let the outside append one line of UTF-8 an effect to --ledger, and never change a line",
    Verdict.PRINTS: "print to standard error, or allow it with --allow-stdout",
    Verdict.FAILS: "make it exit with 0 unkilled, in an empty directory; --copy brings files that it needs",
    Verdict.LEAK: "let it write inside its working directory only; name files of its own by paths that do not exist here",
}
"""What to do about a target that nothing can be shown of."""


class Kills(StrEnum):
    """Which kills a campaign tries."""

    SINGLE = "single"
    """one, at each place of the unkilled run"""
    DOUBLE = "double"
    """a second one too, at each place of each process after the first"""
    STORM = "storm"
    """up to six in a row, drawn; there is no all of them"""
    ONLY = "only"
    """the one schedule that was given"""


@frozen(kw_only=True)
class Finding:
    """One violation of one run."""

    schedule: str
    verdict: Verdict
    what: str
    where: Sequence[str] = ()
    """the calls that its processes died at, in words, where they are known"""


@frozen(kw_only=True)
class Tried:
    """One run that was killed as its schedule says."""

    schedule: str
    verdict: Verdict
    seconds: float
    reached: bool = True
    """whether every kill of the schedule came; a process may end before it gets there"""
    findings: Sequence[Finding] = ()


@frozen(kw_only=True)
class Report:
    """All that a campaign of kills tells."""

    target: str
    command: str
    """the command line that this campaign was, without which kills: `--only SCHEDULE` after it shows one run again"""
    kills: Kills
    tried: Sequence[Tried] = ()
    planned: int | None = None
    """how many runs all would be; `None` where there is no all, or where it is not known yet"""
    places: int = 0
    """where the unkilled run could die"""
    places_tried: int = 0
    processes: int = 0
    killed: int = 0
    seconds: float = 0.0
    by_time: str = ""
    """why processes die at times and not at system calls; nothing where they do"""
    interrupted: bool = False
    rejected: Sequence[Violation] = field(factory=tuple[Violation, ...])
    """why nothing can be shown of the target"""

    @property
    def findings(self) -> list[Finding]:
        """The simplest first."""
        found = [each for tried in self.tried for each in tried.findings]
        return sorted(found, key=lambda each: simplicity(each.schedule))

    @property
    def violated(self) -> int:
        """How many runs were not right."""
        return sum(1 for each in self.tried if not each.verdict.right)

    @property
    def verdicts(self) -> dict[str, int]:
        """How many runs ended with each verdict, the most frequent first."""
        counted = Counter(each.verdict for each in self.tried)
        return {
            str(verdict): counted[verdict]
            for verdict in sorted(Verdict, key=lambda each: -counted[each])
            if counted[verdict]
        }

    @property
    def complete(self) -> bool:
        """Whether all that was planned was tried, each at its place."""
        return not (self.rejected or self.interrupted or self.by_time) and len(self.tried) == self.planned

    @property
    def passed(self) -> bool:
        """Nothing was violated by what was tried, and something was killed."""
        return not (self.rejected or self.violated) and any(each.reached for each in self.tried)

    def reproduction(self, schedule: str) -> str:
        """The one line that lives this run again."""
        return f"{self.command} --only {shlex.quote(schedule)}"

    # -- JSON ---------------------------------------------------------------------------------------------------------

    def document(self) -> dict[str, object]:
        """As JSON types. The keys are stable: more may come, none changes its meaning within one `format`.

        `verdict` is `passed`, `violated`, `rejected` or `nothing tried`; `complete` says whether all was tried;
        `violations` has every one, the simplest first, each with the command line that shows it again.
        """
        return {
            "format": FORMAT,
            "target": self.target,
            "command": self.command,
            "verdict": self._word(),
            "complete": self.complete,
            "interrupted": self.interrupted,
            "kills": str(self.kills),
            "runs": {"tried": len(self.tried), "planned": self.planned, "violated": self.violated},
            "places": {"tried": self.places_tried, "of": self.places},
            "processes": self.processes,
            "killed": self.killed,
            "seconds": round(self.seconds, 3),
            "killed_by_time": self.by_time or None,
            "verdicts": self.verdicts,
            "rejected": [
                {"verdict": str(each.verdict), "what": each.what, "next": NEXT.get(each.verdict, "")}
                for each in self.rejected
            ],
            "violations": [
                {
                    "verdict": str(each.verdict),
                    "what": each.what,
                    "schedule": each.schedule,
                    "where": list(each.where),
                    "reproduce": self.reproduction(each.schedule),
                }
                for each in self.findings
            ],
        }

    def _word(self) -> str:
        if self.rejected:
            return "rejected"
        if self.violated:
            return "violated"
        return "passed" if self.passed else "nothing tried"


def simplicity(schedule: str) -> tuple[int, list[int], str]:
    """By which schedules are put in order: few kills before many, early ones before late."""
    numbers = "".join(each if each.isdigit() else " " for each in schedule).split()
    return schedule.count(","), [int(each) for each in numbers], schedule
