"""Every history of a scenario: an unkilled run tells where a process can die, then it dies there, once or twice."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, groupby
from operator import itemgetter
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from zlib import crc32

import outside
from attrs import define, field, frozen
from oracle import Allowed, Ended, History, Lived, complaints
from rig import Json, Server
from scenarios import SCENARIOS

LIVES = 12
Kill = tuple[str, int]


@frozen(kw_only=True)
class Plan:
    """Which process dies where."""

    kills: tuple[tuple[int, Kill], ...] = ()
    """index of the process (those that only look whether the run still waits do not count), crash point"""
    jump_s: float = 0.0
    sabotage: str = ""


@define(kw_only=True)
class Explorer:
    """Lives histories of one scenario below the directory `place`, as many at once as there are servers."""

    servers: Sequence[Server]
    scenario: str
    place: Path
    processes: int = 0
    died: int = 0
    _free: SimpleQueue[Server] = field(factory=SimpleQueue[Server], init=False)
    _numbers: Iterator[int] = field(factory=count, init=False)
    _references: tuple[History, ...] = field(default=(), init=False)

    def __attrs_post_init__(self) -> None:
        for server in self.servers:
            self._free.put(server)

    def history(self, plan: Plan, **setting: Any) -> tuple[History, list[Json]]:
        """One run from start to end, and the reports of its processes that were not killed."""
        place = self.place / str(next(self._numbers))
        place.mkdir(parents=True)
        try:
            return self._live(plan, place, setting)
        finally:
            shutil.rmtree(place)

    def _live(self, plan: Plan, place: Path, setting: Json) -> tuple[History, list[Json]]:
        lives: list[Lived] = []
        reports: list[Json] = []
        kills = dict(plan.kills)
        ended: Ended | None = None
        for index in range(LIVES):
            if lives and lives[-1].status == "waiting" and not any(life.open_before for life in lives):
                waiting = len(lives[-1].questions)
                lives += [self._life(place, {**setting, "answer": how}, plan, 1)[0] for how in _looks(waiting)]
            life, report = self._life(place, {**setting, "kill": kills.get(index), "answer": bool(lives)}, plan, index)
            lives.append(life)
            reports.append(report)
            if life.status == "completed":
                ended = _ended(report["ended"])
                break
        return History(lives=lives, ledger=outside.ledger(place / "outside"), ended=ended), reports

    def _life(self, place: Path, request: Json, plan: Plan, index: int) -> tuple[Lived, Json]:
        before = len(outside.entered(place / "outside"))
        request = {
            "scenario": self.scenario,
            "place": str(place),
            "first": index == 0,
            "clock_s": plan.jump_s * index,
            "sabotage": plan.sabotage,
            **request,
        }
        server = self._free.get()
        try:
            reply = server.attempt(request)
        finally:
            self._free.put(server)
        self.processes += 1
        self.died += reply["killed"]
        report: Json = reply["report"] or {}
        life = Lived(
            killed=reply["killed"],
            status=report.get("status", ""),
            questions=[(kind, effect, key) for kind, effect, key in report.get("questions", ())],
            entered=outside.entered(place / "outside")[before:],
            open_before=report.get("open_before", 0),
            unsettled=report.get("unsettled", ()),
        )
        return life, report

    # -- judging --------------------------------------------------------------------------------------------------

    def references(self) -> tuple[History, ...]:
        """Unkilled runs: as the scenario is, and without its refused savepoints."""
        if not self._references:
            refuse = (True, False) if SCENARIOS[self.scenario].refused else (True,)
            self._references = tuple(self.history(Plan(), refuse=each)[0] for each in refuse)
        return self._references

    def judge(self, plan: Plan) -> list[str]:
        """Complaints about one history, each with its plan."""
        history, _ = self.history(plan)
        scenario = SCENARIOS[self.scenario]
        lost = scenario.loses_world and history.ended and ("in_doubt", "tool", "performed") in history.ended.answered
        allowed = Allowed(
            perturbed=scenario.perturbed,
            strict=scenario.strict,
            no_questions=scenario.no_questions,
            lost_world=bool(lost),
            fresh=any(
                "R0" in point for each in self.references() if each.ended for point in each.ended.points.values()
            ),
        )
        return [f"{self.scenario}: {plan}: {what}" for what in complaints(history, self.references(), allowed)]

    def judge_all(self, plans: Iterable[Plan]) -> list[str]:
        """Complaints about many histories."""
        self.references()
        with ThreadPoolExecutor(len(self.servers)) as pool:
            return [complaint for found in pool.map(self.judge, plans) for complaint in found]

    # -- enumerating ----------------------------------------------------------------------------------------------

    def singles(self, **how: Any) -> list[Plan]:
        """One kill at each arrival of the run's first process, and of those that follow where it waits."""
        _, reports = self.history(Plan(**how))
        return [
            Plan(kills=((index, kill),), jump_s=jump, **how)
            for index, report in enumerate(reports)
            for kill in _arrivals(report)
            for jump in SCENARIOS[self.scenario].jumps
        ]

    def states(self) -> list[Plan]:
        """One kill for each state that a kill can leave behind, at one of the arrivals that leave it: which one depends
        on the scenario, so that together they cover the points.
        """
        _, reports = self.history(Plan())
        seed = crc32(self.scenario.encode())
        plans: list[Plan] = []
        for index, report in enumerate(reports):
            for number, (_, group) in enumerate(groupby(report["arrivals"], key=itemgetter(2))):
                same = [(point, nth) for point, nth, _ in group]
                kill = same[(seed + number) % len(same)]
                plans += [Plan(kills=((index, kill),), jump_s=jump) for jump in SCENARIOS[self.scenario].jumps]
        return plans

    def pairs(self, first: Plan) -> Iterator[Plan]:
        """A second kill at each arrival of the processes after the first kill."""
        _, reports = self.history(first)
        after = first.kills[-1][0] + 1
        for index, report in enumerate(reports[after:], after):
            for kill in _arrivals(report):
                yield Plan(kills=(*first.kills, (index, kill)), jump_s=first.jump_s, sabotage=first.sabotage)


def _looks(waiting: int) -> list[Any]:
    """What is tried before the first answers: resuming with none of them, and with one of several."""
    return [None, "one"] if waiting > 1 else [None]


def _ended(said: Json) -> Ended:
    return Ended(
        value=said["value"],
        world=said["world"],
        points={int(step): text for step, text in said["points"].items()},
        ids={int(step): text for step, text in said["ids"].items()},
        receipts=said["receipts"],
        answered=[(kind, effect, choice) for kind, effect, choice in said["answered"]],
    )


def _arrivals(report: Json) -> list[Kill]:
    return [(point, nth) for point, nth, _ in report.get("arrivals", ())]
