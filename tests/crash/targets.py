"""What the crash suite explores: the programs and the agents of this directory, as targets of the rig."""

import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import outside
from agent_tasks import TASKS
from attrs import define, evolve, field
from rig import HERE, Json
from scenarios import SCENARIOS

from savepoint.crash import Explorer, ForkServer, History, Kill, Life, Promise, Reply, Story, Violation
from savepoint.crash._observe import ended, lived
from savepoint.crash._oracle import violations

HOST_NS = 1_000_000_000_123_456_789
"""When the user's own files were last modified."""


@define(kw_only=True)
class OursTarget(ABC):
    """A run of ours. Where it waits, resuming it without an answer, and with one of several, is tried before the rest:
    nothing may move then.
    """

    server: ForkServer
    scenario: str
    fresh_after: bool = False
    """processes after the first one are interpreters of their own, each with another order of hashes"""
    _seed: int = field(default=0, init=False)

    @property
    def name(self) -> str:
        return self.scenario

    @property
    def variants(self) -> Sequence[Mapping[str, Any]]:
        return ({},)

    @property
    def hosted(self) -> bool:
        """Whether the user's own world is a directory."""
        return True

    @abstractmethod
    def promise(self, history: History) -> Promise:
        """What it promises, given what was decided in this run."""

    def live(self, place: Path, past: Sequence[Life], kill: Kill | None, setting: Mapping[str, Any]) -> Life:
        index = len(past)
        if self.hosted and not past:
            _furnish(place / "files")
        looks = self._looks(place, past, setting) if past and past[-1].seen.get("status") == "waiting" else []
        request = {"first": index == 0, "answer": "all" if past else None, **self.at(index, setting)}
        reply, seen = self._life(place, request, kill, fresh=index > 0 and self.fresh_after)
        return Life(
            killed=reply.killed,
            done=seen.get("status") == "completed",
            arrivals=reply.arrivals,
            lasting=reply.lasting,
            seen={**seen, "looks": looks},
        )

    def at(self, index: int, setting: Mapping[str, Any]) -> Json:
        """What the process `index` is told."""
        return dict(setting)

    def _looks(self, place: Path, past: Sequence[Life], setting: Mapping[str, Any]) -> list[Json]:
        if any(each["open_before"] for life in past for each in life.seen.get("looks", ())):
            return []  # it was tried before
        hows: list[Any] = [None, "one"] if len(past[-1].seen["questions"]) > 1 else [None]
        told = {"first": False, **self.at(1, setting)}
        return [self._life(place, {**told, "answer": how}, None, fresh=False)[1] for how in hows]

    def _life(self, place: Path, request: Json, kill: Kill | None, *, fresh: bool) -> tuple[Reply, Json]:
        before = len(outside.entered(place / "outside"))
        request = {"scenario": self.scenario, "place": str(place), **request}
        request["lasting"] = str(place) if request.get("lasting") and kill is None else None
        if fresh:
            self._seed += 1
            reply = self.server.fresh(request, kill, PYTHONHASHSEED=str(self._seed))
        else:
            reply = self.server.attempt(request, kill)
        seen = {**reply.report, "killed": reply.killed, "entered": outside.entered(place / "outside")[before:]}
        if reply.timed_out:
            seen["status"] = "hung"
        return reply, seen

    def history(self, place: Path, lives: Sequence[Life]) -> History:
        seen = [each for life in lives for each in (*life.seen["looks"], life.seen)]
        return History(
            lives=[lived(each, killed=each["killed"], entered=each["entered"]) for each in seen],
            ledger=outside.ledger(place / "outside"),
            ended=ended(lives[-1].seen.get("ended")),
            requests=outside.asked(place / "outside"),
            host=_changed(place / "files") if self.hosted else "",
        )

    def judge(self, history: History, references: Sequence[History]) -> list[Violation]:
        fresh = any("R0" in point for each in references if each.ended for point in each.ended.points.values())
        return violations(history, references, evolve(self.promise(history), fresh=fresh))


@define(kw_only=True)
class ProgramTarget(OursTarget):
    """One of the scenarios of free programs."""

    @property
    def hosted(self) -> bool:
        return SCENARIOS[self.scenario].files

    @property
    def variants(self) -> Sequence[Mapping[str, Any]]:
        return ({"refuse": True}, {"refuse": False}) if SCENARIOS[self.scenario].refused else ({},)

    def at(self, index: int, setting: Mapping[str, Any]) -> Json:
        jump_s = setting.get("jump_s", 0.0)
        return {**setting, "clock_s": jump_s * index}

    def promise(self, history: History) -> Promise:
        scenario = SCENARIOS[self.scenario]
        told = history.ended.decided if history.ended else ()
        return Promise(
            perturbed=scenario.perturbed,
            strict=scenario.strict,
            no_questions=scenario.no_questions,
            lost_world=scenario.loses_world and ("in_doubt", "tool", "performed") in told,
            skips=bool(scenario.refused),
        )


@define(kw_only=True)
class AgentTarget(OursTarget):
    """One of the tasks of agents."""

    def at(self, index: int, setting: Mapping[str, Any]) -> Json:
        """A signal reaches the first process only."""
        return {name: each for name, each in setting.items() if index == 0 or name != "interrupt"}

    def promise(self, history: History) -> Promise:
        task = TASKS[self.scenario]
        told = history.ended.decided if history.ended else ()
        return Promise(
            no_questions=task.no_questions,
            strict=task.strict,
            interrupted=task.interrupted,
            lost_world=task.loses_world and ("in_doubt", "loose", "performed") in told,
        )


# -- the user's own world ---------------------------------------------------------------------------------------------


def _furnish(host: Path) -> None:
    """A file of the name that programs and agents write in their forks."""
    if host.exists():
        return
    host.mkdir()
    (host / "notes.txt").write_text("mine\n")
    (host / "notes.txt").chmod(0o640)
    for path in (host / "notes.txt", host):
        os.utime(path, ns=(HOST_NS, HOST_NS))


def _changed(host: Path) -> str:
    """What is other than `_furnish` made it, in words of the oracle's."""
    found = {path.name: (path.lstat().st_mode, path.lstat().st_mtime_ns, path.read_bytes()) for path in host.iterdir()}
    right = {"notes.txt": (0o100640, HOST_NS, b"mine\n")}
    return "untouched" if (found, host.stat().st_mtime_ns) == (right, HOST_NS) else f"{host.stat()}, {found}"


# -- how they are explored --------------------------------------------------------------------------------------------


@contextmanager
def servers(life: str, count: int = 2) -> Generator[list[ForkServer]]:
    """Fork servers of this suite: `rig:live` for programs, `agent_rig:live` for agents."""
    started = [ForkServer(life, path=[HERE]) for _ in range(count)]
    try:
        yield started
    finally:
        for each in started:
            each.__exit__()


def programs(
    scenario: str, servers: Sequence[ForkServer], place: Path, *, fresh: bool = False, **more: Any
) -> Explorer:
    return _explorer(
        [ProgramTarget(server=each, scenario=scenario, fresh_after=fresh) for each in servers], place, **more
    )


def agents(task: str, servers: Sequence[ForkServer], place: Path, *, fresh: bool = False, **more: Any) -> Explorer:
    return _explorer([AgentTarget(server=each, scenario=task, fresh_after=fresh) for each in servers], place, **more)


def _explorer(workers: Sequence[OursTarget], place: Path, **more: Any) -> Explorer:
    return Explorer(workers=workers, place=place, **more)


def complaints(stories: Sequence[Story]) -> list[str]:
    """What a failing test prints: one line for each violation, with the schedule that shows it again."""
    return [f"{story.schedule} {dict(story.setting)}: {each}" for story in stories for each in story.violations]
