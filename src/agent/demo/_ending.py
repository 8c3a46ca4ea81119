"""What a run came to, read back from its store and from the outside's ledger, to be compared with another."""

from pathlib import Path
from typing import Any

from attrs import field, frozen

from agent._agent import Agent
from agent._entries import Reply
from agent._resume import resume
from agent.worker._tools import SYSTEM
from savepoint import Log, RunStatus, Types, Workspace, same
from savepoint._form import snapshot_ids
from savepoint._run_result import get_run
from savepoint._store import Store
from savepoint._stored import get_value
from savepoint._world import SnapshotId

Files = dict[str, tuple[int, bytes]]
"""path -> mode and content"""


@frozen(kw_only=True)
class Ending:
    """The end of one run. What is not known of one that did not complete is empty."""

    status: RunStatus
    outside_calls: int
    """the outside's own count of this run's posts"""
    output: str | None = None
    transcript: Log[Any] = field(factory=Log[Any])
    world: dict[str, SnapshotId] = field(factory=dict[str, SnapshotId])
    files: Files = field(factory=Files)
    """of the final world, written out anew"""

    @property
    def mended(self) -> bool:
        """The package's tests failed first and passed at last: what the run was for."""
        entries = list(self.transcript)
        ran = [str(entries[at + 1]) for at, entry in enumerate(entries) if _is_shell(entry)]
        return len(ran) > 1 and ran[0].endswith("[exit code 1]") and "[exit code" not in ran[-1]

    def equals(self, other: "Ending") -> dict[str, bool]:
        """What was compared -> whether it is equal."""
        return {
            "status": self.status is other.status is RunStatus.COMPLETED,
            "answer": self.output == other.output,
            "transcript": same(self.transcript, other.transcript),
            "world": self.world == other.world,
            "files": self.files == other.files,
            "outside": self.outside_calls == other.outside_calls == 1,
        }


def _is_shell(entry: object) -> bool:
    return isinstance(entry, Reply) and [call.tool for call in entry.calls] == ["shell"]


async def ending(store: Store, agent: Agent, run_id: str, *, results: Path, outside_calls: int) -> Ending:
    """Reads the end of a run. The files of its world are written to a directory of its name in `results`."""
    record = await get_run(store, run_id)
    if record.status is not RunStatus.COMPLETED or record.final is None:
        return Ending(status=record.status, outside_calls=outside_calls)
    result = await resume(run_id, agent=agent, store=store)  # of a completed run: answered from the store
    ids = snapshot_ids(await get_value(store, record.final, Types()))
    place = results / run_id
    await Workspace(results).fork(store.contents, at=ids[SYSTEM].id, place=place)
    return Ending(
        status=result.status,
        outside_calls=outside_calls,
        output=result.output,
        transcript=result.transcript,
        world=ids,
        files=tree(place),
    )


def tree(place: Path) -> Files:
    """Every file below `place`."""
    return {
        path.relative_to(place).as_posix(): (path.stat().st_mode, path.read_bytes())
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }
