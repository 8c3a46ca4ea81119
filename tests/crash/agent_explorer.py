"""Every history of an agent's task: an unkilled run tells where a process can die, then it dies there, once or twice."""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import outside
from agent_oracle import Allowed, Ended, History, Life, complaints
from agent_rig import Json
from agent_server import AgentServer, FreshServer, asked_at
from agent_tasks import TASKS
from attrs import define, field, fields

LIVES = 12
Plan = Mapping[int, tuple[str, int]]
"""Which process dies where (point, arrival). Those that only look whether a run still waits do not count."""
AnyServer = AgentServer | FreshServer


@define(kw_only=True)
class AgentExplorer:
    """Lives histories of one task below the directory `place`, as many at once as there are servers."""

    servers: Sequence[AnyServer]
    task: str
    place: Path
    processes: int = 0
    died: int = 0
    _free: SimpleQueue[AnyServer] = field(factory=SimpleQueue[AnyServer], init=False)
    _numbers: Iterator[int] = field(factory=count, init=False)
    _reference: History | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        for server in self.servers:
            self._free.put(server)

    # -- one history ------------------------------------------------------------------------------------------------

    def history(self, plan: Plan, **setting: Any) -> tuple[History, list[Json]]:
        """One run from start to end, and the reports of its processes (empty ones of those that were killed)."""
        place = self.place / str(next(self._numbers))
        place.mkdir(parents=True)
        server = self._free.get()
        try:
            return self._live(server, plan, place, setting)
        finally:
            self._free.put(server)
            shutil.rmtree(place)

    def _live(self, server: AnyServer, plan: Plan, place: Path, setting: Json) -> tuple[History, list[Json]]:
        lives: list[Life] = []
        reports: list[Json] = []
        for index in range(LIVES):
            if lives and lives[-1].status == "waiting":
                # Without answers, and with one of several, nothing may move.
                looks = [None, "one"] if len(lives[-1].questions) > 1 else [None]
                lives += [self._life(server, place, {**setting, "answer": how, "look": True})[0] for how in looks]
            request = {**setting, "first": index == 0, "kill": plan.get(index), "answer": "all" if lives else None}
            life, report = self._life(server, place, request)
            lives.append(life)
            reports.append(report)
            if life.status == "completed":
                break
        ended = Ended(**reports[-1]["ended"]) if "ended" in reports[-1] else None
        asked = asked_at(place)
        return History(lives=lives, ledger=outside.ledger(place / "outside"), asked=asked, ended=ended), reports

    def _life(self, server: AnyServer, place: Path, request: Json) -> tuple[Life, Json]:
        before = len(outside.entered(place / "outside"))
        reply = server.attempt({"first": False, **request, "scenario": self.task, "place": str(place)})
        self.processes += 1
        self.died += reply["killed"]
        report: Json = reply["report"] or {}
        known = {each.name: report[each.name] for each in fields(Life) if each.name in report}
        return Life(killed=reply["killed"], entered=outside.entered(place / "outside")[before:], **known), report

    # -- judging ----------------------------------------------------------------------------------------------------

    def reference(self) -> History:
        """The unkilled run. One is enough: nothing in a task depends on the order in which parallel calls end."""
        if self._reference is None:
            self._reference = self.history({})[0]
        return self._reference

    def judge(self, plan: Plan, **setting: Any) -> list[str]:
        """Complaints about one history, each with its plan."""
        task = TASKS[self.task]
        history, _ = self.history(plan, **setting)
        answered = [tuple(each) for life in history.lives for each in life.answered]
        allowed = Allowed(
            no_questions=task.no_questions,
            lost_world=task.loses_world and ("loose", "performed") in answered,
            fresh=task.fresh,
        )
        found = complaints(history, self.reference(), allowed)
        return [f"{self.task}: {dict(plan)} {setting}: {what}" for what in [*found, *_orphaned(history, **setting)]]

    def judge_all(self, plans: Iterable[Plan]) -> list[str]:
        """Complaints about all these histories; every other one with its parallel calls ending in reverse."""
        self.reference()
        with ThreadPoolExecutor(len(self.servers)) as pool:
            made = [pool.submit(self.judge, plan, reversed=bool(n % 2)) for n, plan in enumerate(plans)]
            return [complaint for each in made for complaint in each.result()]

    # -- enumerating ------------------------------------------------------------------------------------------------

    def singles(self) -> list[Plan]:
        """One kill at each arrival of each process of an unkilled run."""
        return list(self._more({}, 0))

    def pairs(self, first: Plan) -> Iterator[Plan]:
        """A second kill at each arrival of the processes after the first kill."""
        yield from self._more(first, max(first) + 1)

    def _more(self, plan: Plan, after: int) -> Iterator[Plan]:
        _, reports = self.history(plan)
        for index, report in enumerate(reports[after:], after):
            for point, arrivals in report.get("arrivals", {}).items():
                yield from ({**plan, index: (point, nth)} for nth in range(1, arrivals + 1))


def _orphaned(history: History, *, interrupt: tuple[str, int] = ("create", 0), **_: object) -> list[str]:
    """A signal lets a process say how the run stands, unless it came before the run was claimed."""
    if interrupt[0].startswith("create") or not any(life.was == "running" for life in history.lives):
        return []
    return ["an interrupted process left the run as running"]
