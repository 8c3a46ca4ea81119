"""The client's end of a fork server: one process's life for each request."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from attrs import field, frozen

from ._kill import Kill

TIMEOUT_S = 60.0
"""What a life may take where the request does not say"""
Json = dict[str, Any]


@frozen(kw_only=True)
class Reply:
    """How one process lived. One that was killed says nothing."""

    killed: bool
    """a signal ended it, of its own or the rig's"""
    timed_out: bool = False
    """it was ended because its time (`timeout_s` of the request, a minute if not said) was up"""
    children: Sequence[str] = ()
    """command lines of processes that outlived it, and were ended"""
    report: Mapping[str, Any] = field(factory=dict[str, Any])
    arrivals: Sequence[Kill] = ()
    lasting: Sequence[str] = ()
    """per arrival the fingerprint of what would last, where that was asked for"""


class LifeFailed(RuntimeError):
    """The function of a life raised; the text is its traceback."""


class ForkServer:
    """Runs the function `MODULE:FUNCTION` of a JSON request in a child of its own, imports done once.

    A context manager. `path` is put before the import path, `env` over the environment. See `_serve` for the function.
    """

    def __init__(self, life: str, *, path: Sequence[Path] = (), env: Mapping[str, str] | None = None) -> None:
        self._life = life
        self._path = path
        self._env = env or {}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  it lives as long as the server
        self._process = subprocess.Popen(
            self._command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=self._environment(),
        )

    def attempt(self, request: Mapping[str, Any], kill: Kill | None = None) -> Reply:
        """One forked process's life. Raises `LifeFailed` where its function raised."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it died; the line below says of what
            print(json.dumps(_with(request, kill)), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise LifeFailed(f"the fork server of {self._life} died\n{self._errors.read()}")
        return _reply(json.loads(line), request)

    def fresh(self, request: Mapping[str, Any], kill: Kill | None = None, **env: str) -> Reply:
        """The same in an interpreter that is started for it, with `env` over its environment."""
        told = _with(request, kill)
        try:
            done = subprocess.run(
                [*self._command(), json.dumps(told)],
                env={**self._environment(), **env},
                capture_output=True,
                text=True,
                check=False,
                timeout=told["timeout_s"],
            )
        except subprocess.TimeoutExpired:
            return Reply(killed=False, timed_out=True)
        if done.returncode > 0:
            raise LifeFailed(f"{request}\n{done.stderr}")
        return _reply({"killed": done.returncode < 0, **(json.loads(done.stdout) if done.stdout else {})}, request)

    def _command(self) -> list[str]:
        return [sys.executable, "-P", "-m", "savepoint.crash._serve", self._life]

    def _environment(self) -> dict[str, str]:
        ours = Path(__file__).parents[2]
        # One arena: a child's second thread would fault in the pages of another one.
        return {
            **os.environ,
            "MALLOC_ARENA_MAX": "1",
            **self._env,
            "PYTHONPATH": os.pathsep.join(map(str, [*self._path, ours])),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


def _with(request: Mapping[str, Any], kill: Kill | None) -> Json:
    return {"timeout_s": TIMEOUT_S, **request, "kill": None if kill is None else [kill.at, kill.nth]}


def _reply(said: Json, request: Mapping[str, Any]) -> Reply:
    if "fault" in said:
        raise LifeFailed(f"{dict(request)}\n{said['fault']}")
    return Reply(
        killed=said["killed"],
        timed_out=said.get("timed_out", False),
        children=said.get("children", ()),
        report=said.get("report") or {},
        arrivals=[Kill(point, nth) for point, nth in said.get("arrivals", ())],
        lasting=said.get("lasting", ()),
    )
