"""What the pytest fixture `crash_rig` gives: a campaign of kills that fails the test with its report."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from attrs import field, frozen

from ._campaign import Campaign
from ._command import CommandTarget
from ._given import TIMEOUT_S
from ._judge import Rules
from ._kill import Schedule
from ._report import Kills, Report
from ._scratch import Scratch
from ._text import text


@frozen(kw_only=True)
class CrashRig:
    """Campaigns of kills for one test."""

    budget_s: float
    """for each of them"""
    jobs: int = field(factory=lambda: os.cpu_count() or 1)
    """processes at once"""

    def commands(
        self,
        *,
        start: Sequence[str],
        resume: Sequence[str] = (),
        ledger: str = "ledger",
        kills: str = "single",
        only: str | None = None,
        copies: Sequence[str] = (),
        compares: Sequence[str] = (),
        parked_code: int = 3,
        allow_stdout: bool = False,
        timeout_s: float = TIMEOUT_S,
        here: Path | None = None,
    ) -> Report:
        """Kills the program that `start` starts and `resume` (or `start` again) goes on with; the parameters are the
        options of `savepoint crash`. `here`: where words that name files mean them; the working directory, if not given.

        Returns the report of a campaign that violated nothing; else the test fails with its text, the line that shows
        it again included. Raises `Usage` where the words cannot be meant.
        """
        target = CommandTarget(
            start=start,
            resume=resume,
            ledger=ledger,
            copies=copies,
            compares=compares,
            rules=Rules(parked_code=parked_code, allow_stdout=allow_stdout),
            timeout_s=timeout_s,
            here=Path.cwd() if here is None else here,
        )
        with Scratch() as scratch:
            report = Campaign(
                workers=[target] * self.jobs,
                place=scratch.place,
                command=target.command,
                kills=Kills(kills),
                only=None if only is None else Schedule.parse(only),
                budget_s=self.budget_s,
            ).run()
        if not report.passed:
            pytest.fail(text(report), pytrace=False)
        return report
