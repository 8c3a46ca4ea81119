"""Where a command can reach nothing but the run's own world, so that its class is `CONTAINED`.

`design/0007-sandbox.md` says what holds and what does not.
"""

import os
import pwd
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import field, frozen

if TYPE_CHECKING:
    from .child._order import Layout

HOME = "/tmp/home"  # noqa: S108  inside the private temporary directory
PLACE = "/tmp/workspace"  # noqa: S108  inside the private temporary directory
"""Where a command finds the workspace: the same in every attempt, so that its output does not tell attempts apart."""
PRIVATE = ("/run", "/var/run", "/home", "/root")
"""Sockets of the host's services (a read-only mount does not stop a connection), homes with their secrets."""
_SYSTEM = frozenset({"bin", "dev", "etc", "lib", "lib64", "proc", "sbin", "sys", "tmp", "usr"})


@frozen(kw_only=True)
class Sandbox:
    """A host that is read-only but for `workspace`; own network, processes, temporary directory and home."""

    workspace: Path
    shown: tuple[Path, ...] = field(factory=lambda: (Path(sys.base_prefix), Path(sys.prefix)))
    """Read-only, visible even inside a home or temporary directory; by default this interpreter."""
    hidden: tuple[Path, ...] = ()
    """Directories that look empty: the store. The workspace may lie inside one."""

    def inside(self, path: str) -> str:
        """Where a command finds `path` (link-free): the workspace has another place, the rest is where it was."""
        workspace = str(self.workspace.resolve())
        return f"{PLACE}{path[len(workspace) :]}" if path == workspace or path.startswith(f"{workspace}/") else path

    def layout(self) -> "Layout":
        """What the supervisor needs. Raises `FileNotFoundError` for a workspace that is not there."""
        return {
            "private": [*PRIVATE, *_own_home()],
            "shown": [os.path.realpath(path) for path in self.shown],
            "hidden": [os.path.realpath(path) for path in self.hidden],
            "workspace": str(self.workspace.resolve(strict=True)),
            "place": PLACE,
            "home": HOME,
        }


def _own_home() -> list[str]:
    """The user's home, unless it is a part of the system (as for `daemon`) or already covered."""
    home = Path(os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir))
    covered = any(home.is_relative_to(path) for path in PRIVATE)
    return [] if covered or len(home.parts) < 2 or home.parts[1] in _SYSTEM else [str(home)]
