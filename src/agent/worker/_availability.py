"""Whether commands can be sandboxed here: found out by doing it, once."""

import functools
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from attrs import frozen

from ._errors import NotRun
from ._process import SUPERVISOR, completed, encoded
from ._sandbox import Sandbox

if TYPE_CHECKING:
    from .child._order import Order


@frozen(kw_only=True)
class Availability:
    """True where commands can be sandboxed."""

    reason: str = ""
    """Why not; empty if available."""

    def __bool__(self) -> bool:
        return not self.reason


@functools.cache
def available() -> Availability:
    """Tries once, by really running `true` in a sandbox (blocks for some 50 ms), and remembers the answer."""
    if sys.platform != "linux":
        return Availability(reason=f"sandboxed commands need Linux namespaces; this is {sys.platform}")
    with tempfile.TemporaryDirectory() as workspace:
        try:
            exit_code = completed(_run(order := _order(Path(workspace))), order).exit_code
        except (NotRun, OSError) as error:
            return Availability(reason=str(error))
    return Availability(reason=f"true ended with {exit_code} in a sandbox" if exit_code else "")


def _order(workspace: Path) -> "Order":
    layout = Sandbox(workspace=workspace).layout()
    return {
        "argv": ["true"],
        "cwd": layout["place"],
        "env": {"PATH": "/usr/bin:/bin"},
        "timeout_s": 10.0,
        "grace_s": 0.0,
        "limit": 0,
        "layout": layout,
    }


def _run(order: "Order") -> bytes:
    pipe, env = subprocess.PIPE, order["env"]
    with subprocess.Popen(SUPERVISOR, stdin=pipe, stdout=pipe, env=env, start_new_session=True) as supervisor:  # noqa: S603  ours
        stdin, stdout = cast("IO[bytes]", supervisor.stdin), cast("IO[bytes]", supervisor.stdout)
        stdin.write(encoded(order))
        stdin.flush()  # and not closed: that would kill
        return stdout.read()
