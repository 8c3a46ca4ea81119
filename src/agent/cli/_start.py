"""What works and how: the options that `run`, `resume` and `fork` share, and what is known of a run that exists."""

import os
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from agent import Agent, Model
from agent._graph import graph_of
from agent._held import Held, Wanted
from agent._model import resolve_model
from agent._session_rows import session_key
from savepoint import Missing, RunStatus, Usage, World
from savepoint._claim import LEASE_S
from savepoint._digest import SIZE
from savepoint._run import IfExists, Recovery, RunRecord
from savepoint._store import Store

from ._common import Desk
from ._local import Local, directory, read_local, same_workspace, write_local
from ._target import load_agent

MODEL = "SAVEPOINT_MODEL"


@frozen(kw_only=True)
class Start:
    """The options of `run`, `resume` and `fork` that say what works, and how."""

    target: str | None = None
    workspace: Path | None = None
    model: str | None = None
    max_turns: int | None = None
    allowed_tools: Sequence[str] | None = None
    """None: all, or what held before"""
    read_only: bool | None = None
    """None: as before"""
    strict: bool | None = None
    """`resume` alone: whether an agent that changed is refused"""
    lease_s: float = LEASE_S
    merge: bool = False

    def __attrs_post_init__(self) -> None:
        """Raises `Usage` for numbers that mean nothing."""
        if self.lease_s <= 0:
            raise Usage(f"--lease {self.lease_s:g}: not a time", next="write seconds, more than 0")
        if self.max_turns is not None and self.max_turns < 1:
            raise Usage(f"--max-turns {self.max_turns}: not a number of turns", next="write 1 or more")


@frozen(kw_only=True)
class Begin:
    """The options that only `run` has: under which id, in which session, from where."""

    run_id: str | None = None
    if_exists: IfExists = IfExists.RESUME
    session_id: str | None = None
    resume_from: str | None = None
    """a savepoint's id, in hexadecimal"""
    delete_on_success: bool = False
    recovery: Recovery = Recovery.REUSE
    abandon: bool = False

    def __attrs_post_init__(self) -> None:
        """Raises `Usage` for text that cannot be an id."""
        if self.session_id is not None:
            session_key(self.session_id)
        if self.resume_from is not None and (len(self.resume_from) != 2 * SIZE or not _hexadecimal(self.resume_from)):
            raise Usage(
                f"--resume-from {self.resume_from}: not the id of a savepoint",
                next=f"write its {2 * SIZE} hexadecimal digits: savepoint show RUN",
            )

    @property
    def makes_a_store(self) -> bool:
        """What is to be there already is not looked for in a store that is made for it."""
        return self.if_exists is not IfExists.RESUME_ONLY and self.resume_from is None


def _hexadecimal(text: str) -> bool:
    return all(char in "0123456789abcdef" for char in text)


async def known(store: Store, record: RunRecord, start: Start) -> Local:
    """How a run that exists is continued: as it was started here, except where the command line says otherwise."""
    kept = await read_local(store, record.run_id)
    asked = directory(start.workspace)
    model = absolute(start.model) or (absolute(os.environ.get(MODEL)) if kept is None else kept.model)
    if record.status is RunStatus.COMPLETED and kept is not None:
        return kept
    workspace = same_workspace(record, kept, asked) if record.status is not RunStatus.COMPLETED else asked
    return Local(
        target=start.target or ("" if kept is None else kept.target),
        project=Path.cwd() if kept is None or start.target not in {None, kept.target} else kept.project,
        workspace=workspace,
        model=model,
    )


async def performers(
    desk: Desk, store: Store, record: RunRecord, local: Local
) -> tuple[Agent, World | None, Model | None]:
    """What works on. Raises `Usage`, `Missing` for what cannot be had, before anything is claimed."""
    if "agent" not in record.meta:
        raise Usage(f"run {record.run_id} is of a program, not of an agent", next=desk.report.next_of(record))
    if not local.target:
        raise Usage(
            f"run {record.run_id} was not started by this command line, so its agent is not known",
            next="name it: --target module:attribute",
        )
    worker = load_agent(local.target, local.project)
    host, model = local.world(desk.place), model_of(worker, local.model)
    await keep(store, record, worker, local)
    return worker, host, model


async def keep(store: Store, record: RunRecord, worker: Agent, local: Local) -> None:
    """What the next command finds of a run that was not started here. A target that proved wrong is never kept."""
    if record.removed:  # all but its result is gone, and stays so
        return
    if worker.name == record.meta.get("agent") and await read_local(store, record.run_id) is None:
        await write_local(store, record.run_id, local)


def must_be_outermost(desk: Desk, record: RunRecord, command: str) -> None:
    """Raises `Usage` for a nested run: the run that it is nested in goes on with it, and takes in what it changed."""
    if record.parent is not None:
        raise Usage(
            f"run {record.run_id} is nested in run {record.parent}, and goes on, ends and is merged with it",
            next=desk.report.command(command, record.parent),
        )


async def must_have_savepoint(store: Store, resume_from: str) -> None:
    """Raises `Missing`."""
    try:
        await store.objects([bytes.fromhex(resume_from)])
    except Missing:
        raise Missing(
            f"there is no savepoint {resume_from}", next="savepoint show RUN --json lists those of a run"
        ) from None


def must_know_tools(worker: Agent, start: Start) -> None:
    """Raises `Usage` for `--allow` of a tool that no agent has."""
    Held(max_turns=worker.max_turns).changed(Wanted(allowed_tools=start.allowed_tools), graph_of(worker))


def needs_workspace(worker: Agent, local: Local, *, merge: bool) -> None:
    """Raises `Usage` where an agent for files, or a merge, is started without a directory."""
    if merge and local.workspace is None:
        raise Usage("--merge: there is no workspace to merge into", next="add --workspace DIR")
    if "files" in worker.systems and local.workspace is None:
        raise Usage(f"the agent {worker.name} works on a directory, and none is named", next="add --workspace DIR")


def model_of(worker: Agent, spec: str | None) -> Model | None:
    """Raises `Usage`, `Missing` for a model that cannot be made; before anything is opened or performed."""
    if spec is None and worker.model is None:
        raise Usage(
            f"the agent {worker.name} has no model of its own",
            next=f"name one: --model openai:NAME or --model script:FILE, or set {MODEL}",
        )
    return None if spec is None else resolve_model(spec)


def absolute(spec: str | None) -> str | None:
    """A script's path holds wherever the run is resumed."""
    kind, _, rest = (spec or "").partition(":")
    return f"script:{Path(rest).absolute()}" if kind == "script" and rest else spec or None
