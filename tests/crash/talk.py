"""One conversation's processes, told one by one as a story. What they do is in `talks.py`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import outside
import talks

from savepoint.crash import ForkServer, Kill

Json = dict[str, Any]


class Talk:
    """The processes of one store, told one by one."""

    def __init__(self, server: ForkServer, place: Path) -> None:
        self.place = place
        self._server = server
        self._seed = 0

    def life(self, *acts: Json, kill: str = "", dies: bool = False, fresh: bool = False) -> list[Json]:
        """One process that does these acts; what it said of each, nothing where it was killed.

        `fresh`: an interpreter of its own, with another order of hashes; else one that is forked from the server.
        """
        request: Json = {"place": str(self.place), "acts": list(acts)}
        at = Kill.parse(kill) if kill else None
        if fresh:
            self._seed += 1
            reply = self._server.fresh(request, at, PYTHONHASHSEED=str(self._seed))
        else:
            reply = self._server.attempt(request, at)
        assert not reply.timed_out
        assert reply.killed is (bool(kill) or dies), (acts, kill)
        return list(reply.report.get("said", ()))

    def race(self, *racers: Sequence[Json]) -> list[list[Json]]:
        """Processes that do their acts at once, each from the same moment on; nothing of those that were killed."""
        reply = self._server.attempt({"place": str(self.place), "racers": [list(each) for each in racers]})
        assert not reply.timed_out
        assert not reply.children
        return list(reply.report["said"])

    def run(self, said: str, **more: Any) -> Json:
        return self._alone({"do": "run", "input": said, "session": "u1"}, more)

    def resume(self, **more: Any) -> Json:
        return self._alone({"do": "resume"}, more)

    def _alone(self, act: Json, more: Json) -> Json:
        how = {name: more.pop(name) for name in ("kill", "dies", "fresh") if name in more}
        return next(iter(self.life({**act, **more}, **how)), {})

    def decide(self, question: Json, verdict: str, **more: Any) -> Json:
        """In a process of its own."""
        return self.life({"do": "decide", "question": question["id"], "verdict": verdict, **more})[0]

    def here(self, do: str, **more: Any) -> Json:
        """An act that nothing is killed in, in the test's own process."""
        return asyncio.run(talks.acted([{"do": do, **more}], self.place))[0]

    def session(self) -> Json:
        """As it is; always without a dangling call."""
        shown = self.here("session", session="u1")
        assert shown["unpaired"] == []
        assert sum(shown["counts"]) == len(shown["entries"])
        return shown

    @property
    def ledger(self) -> list[str]:
        """What was done outside, in order."""
        return [str(act.arguments[0]) for act in outside.ledger(self.place / "outside")]

    @property
    def asked(self) -> list[Any]:
        """What models were asked, in order."""
        return outside.asked(self.place / "outside")

    @property
    def turns(self) -> list[str]:
        """Whose model was asked for which reply."""
        return [f"{each['agent']}{each['turn']}" for each in self.asked]
