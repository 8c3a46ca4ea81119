"""What a store says of its runs, and how a run's world is settled, without the program."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent import Agent, Context, Idempotency, decide, resume, run, tool
from agent.cli._show import KNOWN
from agent.testing import ScriptedModel, call, calls, say
from effects._receipt import Status
from savepoint import Conflict, Held, Missing, RunStatus, Usage, Workspace, World, open_store
from savepoint._cancel import cancel_run
from savepoint._claim import take_lock
from savepoint._conflict import MergeConflict
from savepoint._inspect import find_run_id, inspect_run, list_runs, read_receipts
from savepoint._merge_run import Settled, discard_run, merge_run
from savepoint._run_result import get_run
from savepoint._sqlite import SqliteStore
from savepoint._verify import verify_store


@tool(idempotency=Idempotency.ONCE)
async def pay(amount: int) -> int:
    """Pays, and nobody learns whether it worked."""
    raise ConnectionError("gone")


@tool(idempotency=Idempotency.CONTAINED)
async def write(path: str, text: str, context: Context[None]) -> str:
    """Writes a file."""
    system = context.world.system("files")
    assert isinstance(system, Workspace)
    (system.path / path).write_text(text)
    return "written"


def agent_of(*turns: object) -> Agent:
    return Agent(name="a", tools=(pay, write), model=ScriptedModel(list(turns)))  # pyright: ignore[reportArgumentType]


WRITER = agent_of(calls(call("write", path="new", text="n"), call("write", path="old", text="changed")), say("done"))
PAYER = agent_of(call("pay", amount=3), say("done"))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with open_store(tmp_path / "store", durability="process") as opened:
        yield opened


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "old").write_text("before")
    return tmp_path / "host"


def world_of(host: Path) -> World:
    return World({"files": Workspace(host)})


async def written(store: SqliteStore, host: Path, run_id: str = "w") -> None:
    result = await run(WRITER, "go", run_id=run_id, store=store, world=world_of(host))
    assert result.status is RunStatus.COMPLETED


async def test_a_run_is_found_by_its_id_or_a_unique_beginning(store: SqliteStore):
    for run_id in ("ab", "abc", "b-ü"):
        await run(agent_of(say("x")), "go", run_id=run_id, store=store)
    assert await find_run_id(store, "ab") == "ab"  # the whole id of one, though another begins with it
    assert await find_run_id(store, "b") == "b-ü"
    with pytest.raises(Usage, match="ab, abc"):
        await find_run_id(store, "a")
    with pytest.raises(Missing, match="zz"):
        await find_run_id(store, "zz")


async def test_runs_are_listed_and_a_restarted_one_only_once(store: SqliteStore):
    await run(agent_of(say("x")), "go", run_id="one", store=store)
    await run(agent_of(say("x")), "go", run_id="two", store=store)
    await run(agent_of(say("x")), "go", run_id="one", store=store, if_run_exists="restart")
    assert sorted(summary.record.run_id for summary in await list_runs(store)) == ["one", "two"]
    assert await find_run_id(store, "on") == "one"


async def test_a_waiting_run_shows_its_question_and_where_it_goes_on(store: SqliteStore):
    await run(PAYER, "go", run_id="p", store=store)
    view = await inspect_run(store, "p", KNOWN)
    assert view.summary.record.status is RunStatus.WAITING
    assert [(question.effect, question.arguments) for question in view.questions] == [("pay", {"amount": 3})]
    assert view.resumable_from == 0
    assert [step.step for step in view.steps] == [0]
    assert view.steps[0].savepoint == view.savepoint


async def test_a_completed_run_has_no_question_and_is_resumable_from_nowhere(store: SqliteStore):
    await run(PAYER, "go", run_id="p", store=store)
    (question,) = (await inspect_run(store, "p", KNOWN)).questions
    await decide("p", question.id, "performed", store=store, value=3)
    await resume("p", agent=PAYER, store=store)
    view = await inspect_run(store, "p", KNOWN)
    assert view.questions == ()
    assert view.resumable_from is None
    assert view.summary.step == 1


async def test_receipts_tell_the_attempt_that_wrote_them(store: SqliteStore):
    await run(PAYER, "go", run_id="p", store=store)
    (doubt,) = [view for view in await read_receipts(store, "p", KNOWN) if view.receipt.effect == "pay"]
    assert (doubt.receipt.status, doubt.arguments, doubt.attempt) == (Status.IN_DOUBT, {"amount": 3}, 1)
    (question,) = (await inspect_run(store, "p", KNOWN)).questions
    await decide("p", question.id, "performed", store=store, value=3)
    await resume("p", agent=PAYER, store=store)
    receipts = await read_receipts(store, "p", KNOWN)
    assert [(view.receipt.effect, view.receipt.step, view.attempt) for view in receipts] == [
        ("agent/model", 0, 1), ("pay", 0, 2), ("agent/model", 1, 2),
    ]  # fmt: skip


# -- merge and discard --------------------------------------------------------------------------------------------


async def test_a_merge_brings_the_changes_into_the_host_once(store: SqliteStore, host: Path):
    await written(store, host)
    assert not (host / "new").exists()
    changes = await merge_run(store, "w", world_of(host))
    assert sorted((change.path, change.kind.value) for change in changes["files"]) == [
        ("new", "added"),
        ("old", "changed"),
    ]
    assert (host / "new").read_text() == "n"
    assert (await get_run(store, "w")).settled == Settled.MERGED
    (host / "new").write_text("mine now")
    assert await merge_run(store, "w", world_of(host)) == {}
    assert (host / "new").read_text() == "mine now"


async def test_a_conflict_lists_the_paths_and_writes_nothing(store: SqliteStore, host: Path):
    await written(store, host)
    (host / "old").write_text("mine")
    with pytest.raises(MergeConflict) as caught:
        await merge_run(store, "w", world_of(host))
    assert caught.value.paths == ("files: old",)
    assert not (host / "new").exists()
    assert (await get_run(store, "w")).settled is None
    (host / "old").write_text("before")
    await merge_run(store, "w", world_of(host))
    assert (host / "old").read_text() == "changed"


async def test_a_discarded_run_is_not_merged_and_a_merged_one_not_discarded(store: SqliteStore, host: Path):
    await written(store, host, "gone")
    await written(store, host, "kept")
    await discard_run(store, "gone")
    await discard_run(store, "gone")
    with pytest.raises(Conflict, match="discarded"):
        await merge_run(store, "gone", world_of(host))
    assert not (host / "new").exists()
    await merge_run(store, "kept", world_of(host))
    with pytest.raises(Conflict, match="merged"):
        await discard_run(store, "kept")


async def test_only_an_ended_run_is_settled(store: SqliteStore, host: Path):
    await run(PAYER, "go", run_id="p", store=store, world=world_of(host))
    with pytest.raises(Conflict, match="waiting"):
        await merge_run(store, "p", world_of(host))
    with pytest.raises(Conflict, match="waiting"):
        await discard_run(store, "p")
    await run(agent_of(say("x")), "go", run_id="bare", store=store)
    with pytest.raises(Conflict, match="no world"):
        await merge_run(store, "bare", world_of(host))
    with pytest.raises(Missing):
        await merge_run(store, "none", world_of(host))


# -- cancel -------------------------------------------------------------------------------------------------------


async def test_a_stopped_run_is_cancelled_for_good(store: SqliteStore):
    await run(PAYER, "go", run_id="p", store=store)
    assert await cancel_run(store, "p") is RunStatus.CANCELLED
    assert await cancel_run(store, "p") is RunStatus.CANCELLED
    with pytest.raises(Conflict, match="cancelled"):
        await resume("p", agent=PAYER, store=store)
    assert (await verify_store(store, KNOWN)).damage == ()


async def test_a_completed_run_is_not_cancelled(store: SqliteStore):
    await run(agent_of(say("x")), "go", run_id="c", store=store)
    with pytest.raises(Conflict, match="completed"):
        await cancel_run(store, "c")
    with pytest.raises(Missing):
        await cancel_run(store, "none")


async def test_while_somebody_claims_the_run_cancelling_is_refused_and_changes_nothing(store: SqliteStore):
    await run(PAYER, "go", run_id="p", store=store)
    record = await get_run(store, "p")
    lock = take_lock(store, record.lineage, "p", None, 2)
    assert lock is not None
    with pytest.raises(Held):
        await cancel_run(store, "p")
    lock.release()
    assert (await get_run(store, "p")).status is RunStatus.WAITING


# -- verify -------------------------------------------------------------------------------------------------------


async def test_a_whole_store_has_no_damage(store: SqliteStore, host: Path):
    await written(store, host)
    await run(PAYER, "go", run_id="p", store=store)
    found = await verify_store(store, KNOWN)
    assert found.damage == ()
    assert found.objects > 0
    assert found.rows > 0


async def test_a_flipped_byte_in_a_pack_and_a_pack_that_is_gone_are_named(store: SqliteStore, host: Path):
    await written(store, host)
    (pack,) = (store.place / "packs").glob("*.pack")
    whole = pack.read_bytes()
    at = whole.index(b"changed")
    pack.write_bytes(whole[:at] + b"X" + whole[at + 1 :])
    async with open_store(store.place, read_only=True) as again:
        assert [damage.what for damage in (await verify_store(again, KNOWN)).damage] == ["content"]
    pack.unlink()
    async with open_store(store.place, read_only=True) as again:
        damage = (await verify_store(again, KNOWN)).damage
    assert damage
    assert all("not there" in each.cause and "run w" in each.cause for each in damage)
