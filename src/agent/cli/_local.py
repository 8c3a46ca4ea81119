"""What only this machine knows of a run: its target, project directory, workspace and model.

It lies in the control plane beside the run, never in its hash and never in a bundle.
"""

import os
from pathlib import Path
from typing import cast

from attrs import frozen

from savepoint import Conflict, Corrupt, Missing, Usage, Workspace, World, dumps, loads
from savepoint._run import RunRecord, run_key
from savepoint._store import Space, Store


@frozen(kw_only=True)
class Local:
    """How a run was started here; what resumes and merges it."""

    target: str
    project: Path
    """where its module is found"""
    workspace: Path | None = None
    model: str | None = None
    """as given; None: the agent's own"""

    def same_target(self, other: "Local") -> bool:
        return (self.target, self.project) == (other.target, other.project)

    def world(self, place: Path) -> World | None:
        """The host that a run forks. The store at `place` is no part of it. Raises `Missing`."""
        return None if self.workspace is None else host_world(self.workspace, place)


def directory(given: Path | None) -> Path | None:
    """A directory as it is kept: it holds wherever the next command is started."""
    return None if given is None else given.resolve()


def host_world(workspace: Path, place: Path) -> World:
    """Raises `Missing` where there is no such directory."""
    if not workspace.is_dir():
        raise Missing(f"there is no directory {workspace}", next="name the workspace: --workspace DIR")
    return World({"files": Workspace(workspace, exclude=[place])})


async def read_local(store: Store, run_id: str) -> Local | None:
    """None for a run that no command line started here."""
    row = await store.read(Space.LOCAL, run_key(run_id))
    if row is None:
        return None
    try:
        plain = cast("dict[str, bytes | None]", loads(row.body))
        workspace, model = plain["workspace"], plain["model"]
        return Local(
            target=os.fsdecode(cast("bytes", plain["target"])),
            project=Path(os.fsdecode(cast("bytes", plain["project"]))),
            workspace=None if workspace is None else Path(os.fsdecode(workspace)),
            model=None if model is None else os.fsdecode(model),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"the local record of run {run_id}: {error}", next="savepoint verify") from error


async def write_local(store: Store, run_id: str, local: Local) -> None:
    body = dumps(
        {
            "target": os.fsencode(local.target),
            "project": os.fsencode(local.project),
            "workspace": None if local.workspace is None else os.fsencode(local.workspace),
            "model": None if local.model is None else os.fsencode(local.model),
        }
    )
    async with store.commit() as tx:
        tx.write(Space.LOCAL, run_key(run_id), body)


def same_workspace(record: RunRecord, known: Local | None, asked: Path | None) -> Path | None:
    """The workspace of a run that exists. Raises `Conflict` (another one was asked for), `Usage` (none is known)."""
    kept = None if known is None else known.workspace
    if kept is not None and asked is not None and kept != asked:
        raise Conflict(
            f"run {record.run_id} works on {kept}", next=f"leave out --workspace {asked}, or start another run"
        )
    if record.base is not None and kept is None and asked is None:
        raise Usage(f"run {record.run_id} has a workspace that is not known here", next="name it: --workspace DIR")
    return kept or asked
