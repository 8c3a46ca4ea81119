"""Kills within a time: which runs are tried in which order, by how many workers, until all is tried or time is up."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event, Lock
from typing import Any, Protocol, runtime_checkable

from attrs import define, field, frozen

from savepoint._ambient import boot_clock_s

from ._explore import Explorer, Then, after
from ._kill import TIME, Schedule
from ._order import WhileTime, evenly, part_of, storm
from ._report import Finding, Kills, Report, Tried, simplicity
from ._scratch import end_processes_of
from ._target import Story, Target
from ._verdict import Verdict, Violation

STORMS = 1000
"""Storms that are tried where there is time for all of them"""
_DISQUALIFYING = frozenset({Verdict.BAD_LEDGER, Verdict.LEAVES_CHILDREN, Verdict.PRINTS})
"""What says of one killed run that nothing can be shown of the target."""


@runtime_checkable
class Rejecting(Protocol):
    """A target that says why nothing can be shown of it, from its unkilled runs."""

    def reject(self, references: Sequence[Any]) -> list[Violation]: ...


@frozen(kw_only=True)
class Progress:
    """How far a campaign is."""

    phase: str
    done: int
    planned: int | None
    violated: int
    seconds: float
    left_s: float
    """of its time"""

    @property
    def rate(self) -> float:
        """Runs a second."""
        return self.done / self.seconds if self.seconds > 0 else 0.0


@define(kw_only=True)
class Campaign:
    """`run()` tries what `kills` says below the directory `place`; `stop()`, from any thread, lets it end early.

    Second kills are lived after all first ones, so that a short time is spent on what says most.
    """

    workers: Sequence[Target]
    """equal targets; as many processes live at once"""
    place: Path
    command: str
    kills: Kills = Kills.SINGLE
    only: Schedule | None = None
    budget_s: float = 60.0
    first: bool = False
    """it ends with the first violation"""
    _explorer: Explorer = field(init=False)
    _tried: dict[str, Tried] = field(factory=dict[str, Tried], init=False)
    _rejected: list[Violation] = field(factory=list[Violation], init=False)
    _pairs: dict[str, int] = field(factory=dict[str, int], init=False)
    """by first kill: how many second kills there are after it"""
    _planned: int | None = field(default=None, init=False)
    _places: Sequence[Schedule] = field(default=(), init=False)
    _phase: str = field(default="two unkilled runs", init=False)
    _began_s: float = field(factory=boot_clock_s, init=False)
    _ended: Event = field(factory=Event, init=False)
    _interrupted: bool = field(default=False, init=False)
    _since: dict[str, float] = field(factory=dict[str, float], init=False)
    """by the schedule that a worker was given: when the run that it lives began"""
    _lock: Lock = field(factory=Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._explorer = Explorer(workers=self.workers, place=self.place, told=self._hear)

    @property
    def kind(self) -> Kills:
        return self.kills if self.only is None else Kills.ONLY

    def run(self) -> Report:
        """Blocks until it is over. Raises what the target raises where it cannot be lived at all."""
        self._began_s = boot_clock_s()
        references = self._explorer.references()
        self._check(references)
        if not self._over():
            self._places = self._explorer.singles()
            {
                Kills.ONLY: self._one,
                Kills.SINGLE: self._singles,
                Kills.DOUBLE: self._doubles,
                Kills.STORM: self._storms,
            }[self.kind]()
            # Again, for a killed run may have changed what all share.
            self._check(references)
        return self.report()

    def stop(self) -> None:
        """No more runs are begun, and the processes that live now are ended; their runs are not judged."""
        self._interrupted = True
        self._ended.set()
        end_processes_of(self.place)

    def progress(self) -> Progress:
        spent = boot_clock_s() - self._began_s
        with self._lock:
            violated = sum(1 for each in self._tried.values() if not each.verdict.right)
            done = len(self._tried)
        return Progress(
            phase=self._phase, done=done, planned=self._planned, violated=violated, seconds=spent,
            left_s=max(0.0, self.budget_s - spent),
        )  # fmt: skip

    def report(self) -> Report:
        """What is known until now."""
        with self._lock:
            tried = sorted(self._tried.values(), key=lambda each: simplicity(each.schedule))
        places = {str(each) for each in self._places}
        by_time = any(kill.at == TIME for each in self._places for kill in each.kills.values())
        return Report(
            target=self.workers[0].name,
            command=self.command,
            kills=self.kind,
            tried=tried,
            planned=self._planned,
            places=len(places),
            places_tried=len(places & {each.schedule.partition(",")[0] for each in tried}),
            processes=self._explorer.processes,
            killed=self._explorer.killed,
            seconds=boot_clock_s() - self._began_s,
            by_time=_why_by_time() if by_time else "",
            interrupted=self._interrupted,
            rejected=tuple(self._rejected),
        )

    # -- what is tried ------------------------------------------------------------------------------------------------

    def _one(self) -> None:
        self._planned = 1
        self._phase = "the one run"
        self._try([self.only] if self.only is not None else [], None)

    def _singles(self) -> None:
        self._planned = len(self._places)
        self._phase = "single kills"
        self._try(evenly(self._places), None)

    def _doubles(self) -> None:
        self._singles()
        pairs = sum(self._pairs.values())
        # How many second kills there are is known when all first ones were lived.
        self._planned = len(self._places) + pairs if len(self._tried) == len(self._places) else None
        if self._over():
            return
        self._phase = "double kills"
        left_s = self.budget_s - (boot_clock_s() - self._began_s)
        # Each first kill is lived once more, then its seconds one by one: a part of each where not all can be.
        affordable = self.progress().rate * left_s - len(self._places)
        part = min(1.0, max(0.0, affordable / pairs)) if pairs else 0.0
        self._try(evenly(self._places), lambda seconds: WhileTime(part_of(seconds, part), self._over))

    def _storms(self) -> None:
        self._phase = "storms"
        self._try((storm(number, self._places) for number in range(STORMS)), None)

    def _try(self, schedules: Iterable[Schedule], then: Then | None) -> None:
        """All of them, as long as there is time."""
        waiting = iter(schedules)

        def work() -> None:
            while not self._over():
                with self._lock:
                    schedule = next(waiting, None)
                if schedule is None:
                    return
                self._since[str(schedule)] = boot_clock_s()
                self._explorer.explore([schedule], then)

        with ThreadPoolExecutor(len(self.workers)) as pool:
            made = [pool.submit(work) for _ in self.workers]
            try:
                for each in made:
                    each.result()
            except BaseException:
                # Again and again, for a worker may have been about to start one.
                while wait(made, timeout=0.05).not_done:
                    self.stop()
                raise

    # -- what is heard ------------------------------------------------------------------------------------------------

    def _hear(self, story: Story) -> None:
        """One judged run, from the thread that lived it."""
        if self._interrupted:
            return  # its processes were ended by us
        seconds = self._took(story.schedule)
        schedule = str(story.schedule)
        where = [text for life in story.lives if (text := life.seen.get("where", ""))]
        findings = [
            Finding(schedule=schedule, verdict=each.verdict, what=each.what, where=where) for each in story.violations
        ]
        waits = bool(story.lives[-1].seen.get("parked"))
        verdict = Verdict.PARKED if waits and not story.violations else story.verdict
        reached = all(index < len(story.lives) and story.lives[index].killed for index in story.schedule.kills)
        with self._lock:
            self._tried.setdefault(
                schedule,
                Tried(schedule=schedule, verdict=verdict, seconds=seconds, reached=reached, findings=findings),
            )
            if len(story.schedule.kills) == 1:
                self._pairs.setdefault(schedule, sum(1 for _ in after(story)))
        disqualified = [each for each in story.violations if each.verdict in _DISQUALIFYING]
        if disqualified and not self._ended.is_set():
            self._rejected.append(disqualified[0])
            self._ended.set()
        if self.first and story.violations:
            self._ended.set()

    def _took(self, schedule: Schedule) -> float:
        """Seconds of this run, or of what it did after the run before it that it shares a beginning with."""
        key = str(schedule)
        if key not in self._since:
            key = str(Schedule({index: kill for index, kill in schedule.kills.items() if index != schedule.last}))
        now_s = boot_clock_s()
        began_s, self._since[key] = self._since.get(key, now_s), now_s
        return now_s - began_s

    def _check(self, references: Sequence[Story]) -> None:
        worker = self.workers[0]
        if not self._rejected and not self._interrupted and isinstance(worker, Rejecting):
            self._rejected += worker.reject([each.history for each in references])
            if self._rejected:
                self._ended.set()

    def _over(self) -> bool:
        return self._ended.is_set() or (self.only is None and boot_clock_s() - self._began_s >= self.budget_s)


def _why_by_time() -> str:
    from ._trace import refused  # noqa: PLC0415  a target of ours never needs it

    return refused() or "the target says so"
