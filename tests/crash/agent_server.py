"""Processes of the agents' crash suite, and a way to tell one run of theirs as a story."""

from pathlib import Path
from typing import Any

import outside
from rig import Json, Server


class AgentServer(Server):
    """The fork server for agents."""

    def __init__(self) -> None:
        super().__init__("agent_rig:live")


class FreshServer:
    """Resumes in an interpreter that was started for it, with another order of hashes; first processes are forked."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._seed = 0

    def attempt(self, request: Json) -> Json:
        if request.get("first"):
            return self._server.attempt(request)
        self._seed += 1
        return self._server.fresh(request, PYTHONHASHSEED=str(self._seed))


class Story:
    """The processes of one run, told one by one."""

    def __init__(self, server: Server | FreshServer, place: Path, scenario: str) -> None:
        self.place = place
        self._server = server
        self._scenario = scenario
        self._lives = 0
        place.mkdir(parents=True, exist_ok=True)

    def life(self, **request: Any) -> Json:
        """One process; its report, empty where it was killed."""
        first, self._lives = self._lives == 0, self._lives + 1
        sent = {"scenario": self._scenario, "place": str(self.place), "first": first, **request}
        reply = self._server.attempt(sent)
        assert reply["killed"] == ("kill" in request), f"{request}: killed is {reply['killed']}"
        return reply["report"] or {}

    @property
    def ledger(self) -> list[outside.Act]:
        return outside.ledger(self.place / "outside")

    @property
    def entered(self) -> list[str]:
        return outside.entered(self.place / "outside")

    @property
    def asked(self) -> list[int]:
        """The replies that the entry's model was asked for, in order."""
        return [each for each in self.everybody_asked if isinstance(each, int)]

    @property
    def everybody_asked(self) -> list[int | str]:
        """The same, with those that other agents than the entry were asked for, and with their names."""
        return [each for each in outside.asked(self.place / "outside") if isinstance(each, int | str)]
