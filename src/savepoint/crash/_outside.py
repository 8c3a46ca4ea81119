"""The outside of a crash test as a process of its own, which owns the truth about what was done.

The program under test talks to it through an `OutsideClient`; its ledger is what every verdict is checked against.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

from savepoint._errors import Usage

from ._outside_client import OutsideClient

BACKLOG = 64
"""Callers that wait while the outside starts, or starts again."""
PATH_AT_MOST = 100
"""Bytes of a Unix socket's path: 103 on macOS, 107 on Linux."""
PATIENCE_S = 5.0


class Outside:
    """A context manager: starts the process, ends it, and leaves nothing but the ledger directories.

    It dies with the process that started it, however that dies (unless a forked child of that process still holds the
    pipe to it: then with that child). When it is killed itself, another one goes on with the same ledgers.
    """

    def __init__(self) -> None:
        self._room: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        """Where it listens. Raises `Usage` outside its `with`."""
        if self._room is None:
            raise Usage("the outside does not run", next="use it as: with Outside() as outside")
        return self._room / "s"

    def client(self, place: Path, *, timeout_s: float = 30.0) -> OutsideClient:
        """A client for one ledger directory, which is made with its first request."""
        return OutsideClient(socket=self.socket, place=place, timeout_s=timeout_s)

    def __enter__(self) -> Self:
        self._room = Path(tempfile.mkdtemp(prefix="outside-"))
        try:
            self._start(self.socket)
        except BaseException:
            self._leave()
            raise
        return self

    def _start(self, path: Path) -> None:
        if len(bytes(path)) > PATH_AT_MOST:
            raise Usage(f"{path} is too long for a Unix socket", next="set TMPDIR to a shorter directory")
        # Bound here, served there: callers are queued from now on, and while the outside is dead.
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen(BACKLOG)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", f"{__package__}._outside_server", str(listening.fileno())],
                stdin=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
                pass_fds=(listening.fileno(),),
                start_new_session=True,  # Ctrl-C is for the harness
            )

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        process, self._process = self._process, None
        room, self._room = self._room, None
        try:
            if process is not None:
                _end(process)
        finally:
            if room is not None:
                shutil.rmtree(room, ignore_errors=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The end of its standard input ends it; nothing that it did is lost, for it is synced."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
