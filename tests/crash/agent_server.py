"""Processes of the agents' crash suite: a server that forks one child per attempt, and interpreters of their own."""

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import outside
from agent_rig import Json, live
from rig import Server, env


class AgentServer(Server):
    """The client's end of the fork server for agents."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=env(),
        )  # fmt: skip


class FreshServer:
    """Resumes in an interpreter that was started for it, with another order of hashes.

    First processes, and those that only look whether a run still waits, are forked.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._seed = 0

    def attempt(self, request: Json) -> Json:
        if request.get("first") or request.get("look"):
            return self._server.attempt(request)
        self._seed += 1
        done = subprocess.run(
            [sys.executable, "-P", __file__, "--once", json.dumps(request)],
            env=env(PYTHONHASHSEED=str(self._seed)), capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode > 0:
            raise RuntimeError(f"{request}\n{done.stderr}")
        return {"killed": done.returncode < 0, "report": json.loads(done.stdout) if done.stdout else None}


def serve() -> None:
    """Answers each request line with `{killed, report}`, from a child made for it."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_forked(json.loads(line))) + "\n")
        sys.stdout.flush()


def _forked(request: Json) -> Json:
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        try:
            report = live(request)
        except BaseException:
            report = {"fault": traceback.format_exc()}
        with os.fdopen(into, "wb") as pipe:
            pipe.write(json.dumps(report).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return {"killed": os.WIFSIGNALED(status), "report": json.loads(said) if said else None}


def asked_at(place: Path) -> list[object]:
    """Per process the steps whose reply was durable when it began, then those that it asked the model for."""
    return outside._lines(place / "outside" / "asked")


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
    def asked(self) -> list[int]:
        """The replies that the model was asked for, in order."""
        return [each for each in asked_at(self.place) if isinstance(each, int)]


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve()
    else:
        sys.stdout.write(json.dumps(live(json.loads(sys.argv[2]))))
