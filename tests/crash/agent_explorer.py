"""Every history of an agent's task: an unkilled run tells where a process can die, then it dies there, once or twice."""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import outside
from agent_rig import AgentServer, FreshServer
from agents import TASKS
from attrs import define, field
from oracle import Allowed, Ended, History, Lived, complaints

Json = dict[str, Any]
LIVES = 12
Plan = Mapping[int, tuple[str, int]]
"""Which process dies where (point, arrival). Those that only look whether a run still waits do not count."""


@define(kw_only=True)
class AgentExplorer:
    """Lives histories of one task below the directory `place`, as many at once as there are servers."""

    servers: Sequence[AgentServer | FreshServer]
    task: str
    place: Path
    processes: int = 0
    died: int = 0
    _free: SimpleQueue[AgentServer | FreshServer] = field(factory=SimpleQueue, init=False)
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

    def _live(
        self, server: AgentServer | FreshServer, plan: Plan, place: Path, setting: Json
    ) -> tuple[History, list[Json]]:
        lives: list[Lived] = []
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
        ended = _ended(reports[-1]["ended"]) if "ended" in reports[-1] else None
        acts = outside.ledger(place / "outside")
        return History(lives=lives, ledger=acts, ended=ended), reports

    def _life(self, server: AgentServer | FreshServer, place: Path, request: Json) -> tuple[Lived, Json]:
        before = len(outside.entered(place / "outside"))
        reply = server.attempt({"first": False, **request, "scenario": self.task, "place": str(place)})
        self.processes += 1
        self.died += reply["killed"]
        report: Json = reply["report"] or {}
        life = Lived(
            killed=reply["killed"],
            status=report.get("status", ""),
            questions=[(kind, effect, key) for kind, effect, key in report.get("questions", ())],
            entered=outside.entered(place / "outside")[before:],
            open_before=report.get("open_before", 0),
            answered=bool(report.get("answered")),
            unsettled=report.get("unsettled", ()),
        )
        return life, report

    # -- judging ----------------------------------------------------------------------------------------------------

    def reference(self) -> History:
        """The unkilled run. One is enough: nothing in a task depends on the order in which parallel calls end."""
        if self._reference is None:
            self._reference = self.history({})[0]
        return self._reference

    def judge(self, plan: Plan, **setting: Any) -> list[str]:
        """Complaints about one history, each with its plan."""
        task = TASKS[self.task]
        history, reports = self.history(plan, **setting)
        answered = [tuple(each) for report in reports for each in report.get("answered", ())]
        allowed = Allowed(
            no_questions=task.no_questions,
            lost_world=task.loses_world and ("loose", "performed") in answered,
            fresh=task.fresh,
        )
        found = [
            *complaints(history, [self.reference()], allowed),
            *reports[-1].get("unpaired", ()),
            *asked_again(reports[-1]),
            *_left_open(history.lives),
            *_other_keys(history.ledger),
            *_orphaned(reports, setting.get("interrupt")),
        ]
        return [f"{self.task}: {dict(plan)} {setting}: {what}" for what in found]

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


def _ended(told: Json) -> Ended:
    by_step = {name: {int(step): text for step, text in told[name].items()} for name in ("points", "ids")}
    return Ended(**{**told, **by_step})


def asked_again(report: Json) -> list[str]:
    """Replies that were durable when a process began, and that it asked the model for all the same."""
    durable: set[int] = set()
    found: list[str] = []
    for line in report.get("asked", ()):
        if isinstance(line, dict):
            durable = set(line["durable"])
        elif line in durable:
            found.append(f"the model was asked for reply {line} again, which is durable")
    return found


def _left_open(lives: Sequence[Lived]) -> list[str]:
    """A process that came to its end leaves no intent of its own without an outcome, except those that it asks about."""
    return [
        f"{key} has an intent without an outcome, and its process was not killed"
        for life, after in pairwise(lives)
        if life.status == "waiting"
        for key in set(after.unsettled) - set(life.unsettled) - {key for *_, key in life.questions}
    ]


def _other_keys(ledger: Sequence[outside.Act]) -> list[str]:
    """A call has the same idempotency key in every attempt."""
    keys = {act.tag: act.key for act in ledger}
    return [f"{act.tag} has two idempotency keys" for act in ledger if act.key != keys[act.tag]]


def _orphaned(reports: Sequence[Json], interrupt: Any) -> list[str]:
    """A signal lets a process say how the run stands, unless it came before the run was claimed."""
    if interrupt is None or interrupt[0].startswith("create"):
        return []
    return [f"process {n} found the run still running" for n, report in enumerate(reports) if report.get("was") == "running"]
