"""The other end of `small_serve.py`: its processes, one after the other, in name spaces of their own where there are such.

All of it ends with the process that started it, however that ends: the server reads from it, and what it mounted is
seen by nobody else.
"""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from attrs import frozen
from small_program import Json

HERE = Path(__file__).parent
PRIVATE = ("unshare", "--user", "--map-root-user", "--mount")


def environment(**more: str) -> dict[str, str]:
    """All that a process of these tests is told: nothing of who runs them."""
    return {"PYTHONPATH": f"{HERE.parents[1] / 'src'}:{HERE}", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **more}


def command(**request: Any) -> list[str]:
    """The words that start one process of its own."""
    return [sys.executable, "-P", str(HERE / "small.py"), json.dumps(_plain(request))]


def lived_anew(
    prefix: Sequence[str] = (), environ: dict[str, str] | None = None, /, **request: Any
) -> tuple[int, Json]:
    """How a new interpreter ended (its exit code, negative: the signal), and its report, if it made one."""
    words = [*prefix, *command(**request)]
    env = environment() if environ is None else environ
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode <= 0, done.stderr
    return reported(done.returncode, done.stdout)


def reported(code: int, out: str) -> tuple[int, Json]:
    """An error without a name is a fault of the project, and fails here."""
    report = json.loads(out) if out else {}
    assert "leak" not in report, report["trace"]
    return code, report


def _plain(request: Json) -> Json:
    return {name: str(value) if isinstance(value, Path) else value for name, value in request.items()}


class Lives:
    """A server that forks a process for each life; imports are done once."""

    def __init__(self) -> None:
        self.private = True
        """it may mount what only it sees"""
        try:
            self._start(PRIVATE)
        except (OSError, ValueError):
            self.private = False
            self._start(())

    def _start(self, prefix: Sequence[str]) -> None:
        self._server = subprocess.Popen(
            [*prefix, sys.executable, "-P", str(HERE / "small_serve.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if not prefix else subprocess.DEVNULL,
            text=True,
            env=environment(),
        )
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        try:
            self.pid = json.loads(self._server.stdout.readline())["ready"]
        except ValueError:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()

    def ask(self, **request: Any) -> Json:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps(_plain(request)), file=self._server.stdin, flush=True)
        return json.loads(self._server.stdout.readline())

    # -- lives ----------------------------------------------------------------------------------------------------

    def lived(self, **request: Any) -> tuple[int, Json]:
        """How a process ended (its exit code, negative: the signal), and its report, if it made one."""
        said = self.ask(**request)
        return reported(said["code"], said["out"])

    @contextmanager
    def stopped(self, at: tuple[str, int], **request: Any) -> Generator["Stopped"]:
        """A process that has stopped itself at a crash point; it is killed where the block does not let it go on."""
        said = self.ask(stop=at, **request)
        assert "stopped" in said, f"it never came to {at}: {said}"
        try:
            yield Stopped(self)
        finally:
            self.ask(end=True)

    # -- disks ----------------------------------------------------------------------------------------------------

    @contextmanager
    def disk(self, place: Path, size: str) -> Generator["Disk"]:
        """A small memory disk that only this server and its children see. Skips where it may not mount."""
        place.mkdir()
        disk = Disk(self, place)
        if not self.private:
            pytest.skip("no private name spaces of users and mounts here (Linux, and where a kernel allows them)")
        if refused := self.ask(words=["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)])["out"]:
            pytest.skip(f"no disk can be mounted here: {refused.strip()}")
        try:
            yield disk
        finally:
            self.ask(end=True)
            disk.run("umount", str(place))


@frozen
class Stopped:
    lives: Lives

    def go_on(self) -> Json:
        """Lets it live to its end; its report."""
        said = self.lives.ask(go_on=True)
        return reported(said["code"], said["out"])[1]


@frozen
class Disk:
    lives: Lives
    place: Path

    def run(self, *words: str) -> None:
        said = self.lives.ask(words=words)
        assert said["code"] == 0, said["out"]

    def remount(self, options: str) -> None:
        self.run("mount", "-o", f"remount,{options}", str(self.place))

    def fill(self) -> None:
        """Leaves not one byte."""
        assert self.lives.ask(fill=self.place / "filler")["out"] == os.strerror(28)

    def make_room(self) -> None:
        self.run("rm", str(self.place / "filler"))
