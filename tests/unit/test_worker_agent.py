"""The built-in worker in whole runs: a scripted model, real files, real commands, a store on the disk."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from attrs import frozen

from agent import Agent, Result, RunStatus, decide, resume, run
from agent.testing import ScriptedModel, Turn, call, calls, say
from agent.worker import available, worker
from effects import Idempotency
from effects._failure import Failure
from effects._question import QuestionKind
from effects._receipt import Receipt
from savepoint import Usage, Workspace, World, open_store
from savepoint._events import Called, read_events
from savepoint._run_result import get_run
from savepoint._sqlite import SqliteStore
from savepoint._store import Space

needs_sandbox = pytest.mark.skipif(not available(), reason=available().reason or "sandboxed")
BOTH = pytest.mark.parametrize("sandboxed", [pytest.param(True, marks=needs_sandbox), False])


@frozen(kw_only=True)
class Job:
    """A host directory and a store beside it."""

    store: SqliteStore
    host: Path
    run_id: str = "job"

    @property
    def world(self) -> World:
        return World({"files": Workspace(self.host)})

    async def run(self, *turns: Turn, agent: Agent | None = None) -> Result:
        model = ScriptedModel([*turns, say("done")])
        return await run(agent or worker(), "go", run_id=self.run_id, store=self.store, world=self.world, model=model)

    async def outcomes(self, *turns: Turn, agent: Agent | None = None) -> list[object]:
        """What the calls of the turns gave, in order; the run must complete."""
        result = await self.run(*turns, agent=agent)
        assert result.status is RunStatus.COMPLETED, result
        entries = iter(list(result.transcript)[1:-1])
        return [next(entries) for reply in entries for _ in reply.calls]

    async def receipts(self) -> dict[str, Receipt]:
        """Effect name -> its newest receipt of the whole run."""
        record = await get_run(self.store, self.run_id)
        events = [event for row in await self.store.scan(Space.EVENT, record.lineage) for event in read_events(row)]
        return {event.receipt.effect: event.receipt for event in events if isinstance(event, Called)}


@pytest.fixture
async def job(tmp_path: Path) -> AsyncGenerator[Job]:
    host = tmp_path / "host"
    host.mkdir()
    async with open_store(tmp_path / "store", durability="process") as store:
        yield Job(store=store, host=host)


@BOTH
async def test_works_in_a_fork_of_the_workspace(job: Job, sandboxed: bool):
    (job.host / "a.py").write_text("x = 1\n")
    found = await job.outcomes(
        calls(call("list"), call("search", pattern="x ="), call("read", path="a.py")),
        call("edit", path="a.py", old="1", new="2"),
        call("write", path="sub/b.txt", text="b\n"),
        call("shell", command="cat a.py sub/b.txt; echo c > c.txt; exit 3"),
        calls(call("list", depth=2), call("read", path="c.txt")),
        agent=worker(sandboxed=sandboxed),
    )
    assert found[:3] == ["a.py (6 bytes)", "a.py:1: x = 1", "1\tx = 1"]
    assert found[5] == "x = 2\nb\n[exit code 3]"
    assert found[6:] == ["a.py (6 bytes)\nc.txt (2 bytes)\nsub/\nsub/b.txt (2 bytes)", "1\tc"]
    assert [(path.name, path.read_text()) for path in job.host.iterdir()] == [("a.py", "x = 1\n")]


async def test_a_path_that_leads_outside_is_told_to_the_model(job: Job):
    secret = job.host.parent / "secret"
    secret.write_text("s")
    (job.host / "link").symlink_to(secret)
    found = await job.outcomes(
        calls(
            call("read", path="../secret"),
            call("read", path="link"),
            call("write", path=str(secret), text="t"),
            call("edit", path="link", old="s", new="t"),
            call("list", path=".."),
            call("search", pattern="s", path="/etc"),
        )
    )
    assert [each.kind for each in found if isinstance(each, Failure)] == ["Outside"] * 6
    assert all("leads out of the workspace" in each.message for each in found if isinstance(each, Failure))
    assert secret.read_text() == "s"


@BOTH
async def test_an_output_of_50_mb_is_bounded_where_it_is_written(job: Job, sandboxed: bool):
    (output,) = await job.outcomes(
        call("shell", command="echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last"),
        agent=worker(sandboxed=sandboxed),
    )
    assert isinstance(output, str)
    assert output.startswith("first\n")
    assert output.endswith("\nlast")
    assert "bytes left out" in output
    assert len(output) < 34_000
    stored = sum(path.stat().st_size for path in job.store.place.rglob("*") if path.is_file())
    assert stored < 2_000_000


@BOTH
async def test_a_command_killed_at_its_own_timeout_is_an_outcome(job: Job, sandboxed: bool):
    (output,) = await job.outcomes(
        call("shell", command="echo begun; sleep 300 & sleep 300", timeout_s=0.3), agent=worker(sandboxed=sandboxed)
    )
    assert output == "begun\n[the time was up: the command and all that it started were killed]"


@pytest.mark.parametrize(
    ("sandboxed", "idempotency"),
    [pytest.param(True, Idempotency.CONTAINED, marks=needs_sandbox), (False, Idempotency.ONCE)],
)
async def test_the_class_of_the_shell_is_in_its_receipt(job: Job, sandboxed: bool, idempotency: Idempotency):
    await job.run(call("shell", command="true"), agent=worker(sandboxed=sandboxed))
    receipt = (await job.receipts())["shell"]
    assert (receipt.idempotency, receipt.writes_world) == (idempotency, not sandboxed)


def test_every_tool_but_the_shell_is_contained():
    classes = {each.name: each.idempotency for each in worker(sandboxed=False).tools}
    assert classes.pop("shell") is Idempotency.ONCE
    assert classes == dict.fromkeys(["list", "search", "read", "write", "edit"], Idempotency.CONTAINED)


def test_the_shell_is_sandboxed_where_that_can_be_had():
    shell = worker().known_tools["shell"]
    assert (shell.idempotency is Idempotency.CONTAINED) is bool(available())


async def test_a_world_without_a_workspace_is_refused_with_the_option_that_gives_one(job: Job):
    model = ScriptedModel([call("list"), say("done")])
    with pytest.raises(Usage) as refused:
        await run(worker(), "go", store=job.store, model=model)
    assert "--workspace" in refused.value.next
    assert model.asked == 0


@BOTH
async def test_python_is_this_interpreter(job: Job, sandboxed: bool):
    (output,) = await job.outcomes(
        call("shell", command="python -c 'import sys; print(sys.prefix)'"), agent=worker(sandboxed=sandboxed)
    )
    assert output == sys.prefix


@needs_sandbox
async def test_a_sandboxed_command_cannot_read_the_store(job: Job):
    (output,) = await job.outcomes(call("shell", command=f"ls {job.store.place}"), agent=worker(sandboxed=True))
    assert "store.db" not in output
    assert "packs" not in output


@needs_sandbox
async def test_a_command_that_was_cut_short_unsandboxed_is_asked_about_by_a_sandboxed_worker_too(job: Job):
    """The class of the shell changed between two attempts: the stricter one applies."""
    begun = job.host.parent / "begun"
    os.mkfifo(begun)
    # Reading the pipe waits for the command. The sandbox does not show it: there the command fails at once.
    turns = [call("shell", command=f"test -p {begun} && echo > {begun} && sleep 300")]
    running = asyncio.create_task(job.run(*turns, agent=worker(sandboxed=False)))
    await asyncio.to_thread(begun.read_text)
    running.cancel()
    await asyncio.wait([running])
    contained = worker(sandboxed=True)
    again = ScriptedModel([*turns, say("done")])
    waiting = await resume(job.run_id, agent=contained, store=job.store, world=job.world, model=again)
    assert waiting.status is RunStatus.WAITING
    (question,) = waiting.questions
    assert (question.kind, question.effect) == (QuestionKind.IN_DOUBT, "shell")
    await decide(job.run_id, question.id, "redo", store=job.store)
    result = await resume(job.run_id, agent=contained, store=job.store, world=job.world, model=again)
    assert result.status is RunStatus.COMPLETED
    assert (await job.receipts())["shell"].idempotency is Idempotency.CONTAINED  # what it was done as at last
