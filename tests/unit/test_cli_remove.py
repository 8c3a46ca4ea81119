"""`savepoint rm` and what the other commands say of a removed run, and of what a run takes."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import chdir, closing
from pathlib import Path
from typing import Any

import pytest

from agent import Agent, StoredSession, run
from agent.cli import main
from agent.cli._exit import Exit
from agent.cli._output import size
from agent.testing import ScriptedModel, say
from savepoint import Corrupt
from savepoint._claim import KernelLock, Lease, take_lock, write_lease
from savepoint._run import run_key
from savepoint._run_result import get_run
from savepoint._sqlite import open_store
from savepoint._store import Space

PROJECT = '''
from pathlib import Path
from agent import Agent, Idempotency, tool
from agent.testing import ScriptedModel, call, say

@tool(idempotency=Idempotency.ONCE)
async def pay(amount: int) -> str:
    """Pays."""
    with (Path(__file__).parent / "ledger").open("a") as file:
        file.write(f"{amount}\\n")
    return "paid"

@tool(idempotency=Idempotency.ONCE)
async def vague() -> str:
    """Nobody knows."""
    raise TimeoutError("no answer")

payer = Agent(name="payer", tools=(pay,), model=ScriptedModel([call("pay", amount=3), say("done")]))
doubter = Agent(name="doubter", tools=(vague,), model=ScriptedModel([call("vague"), say("done")]))
'''
Cli = Callable[..., tuple[int, list[Any], str]]


def test_a_removed_run_is_answered_from_its_result_and_never_runs_again(project: Path, shop: str, cli: Cli):
    assert cli("run", f"{shop}:payer", "pay", "--run-id", "paid")[0] == Exit.DONE
    code, (removed,), err = cli("rm", "pai")
    assert (code, removed) == (Exit.DONE, {"run_id": "paid", "status": "completed", "removed": True})
    assert "only its result is left" in err
    assert cli("rm", "paid")[0] == Exit.DONE, "repeating is a no-op"
    for words in (("resume", "paid"), ("run", f"{shop}:payer", "pay", "--run-id", "paid")):
        code, objects, err = cli(*words)
        assert (code, objects[-1]["output"], objects[-1]["replayed"]) == (Exit.DONE, "done", True)
        assert objects[-1]["warnings"] == ["run paid was removed: only its result is left"]
    assert (project / "ledger").read_text() == "3\n"
    assert cli("fork", "paid")[0] == Exit.NOT_FOUND
    assert cli("merge", "paid")[0] == cli("discard", "paid")[0] == cli("cancel", "paid")[0] == Exit.CONFLICT
    assert cli("verify")[0] == Exit.DONE
    with closing(sqlite3.connect(project / ".savepoint/store.db")) as database:
        assert database.execute("select count(*) from ledger").fetchone() == (1,), "no local row came back"


def test_a_call_in_doubt_must_be_abandoned(shop: str, cli: Cli):
    assert cli("run", f"{shop}:doubter", "go", "--run-id", "d")[0] == Exit.WAITING
    code, (refused,), _ = cli("rm", "d")
    assert (code, refused["error"]["code"]) == (Exit.CONFLICT, "conflict")
    assert "savepoint rm d --abandon" in refused["error"]["next"]
    code, (removed,), _ = cli("rm", "d", "--abandon")
    assert (code, removed["status"]) == (Exit.DONE, "cancelled")
    for words in (("resume", "d"), ("run", f"{shop}:doubter", "go", "--run-id", "d")):
        code, objects, _ = cli(*words)
        assert (code, "was removed" in objects[-1]["error"]["message"]) == (Exit.CONFLICT, True)
    again = cli("run", f"{shop}:payer", "go", "--run-id", "d", "--if-exists", "restart")
    assert (again[0], again[1][-1]["output"]) == (Exit.DONE, "done")


def test_an_unknown_run_and_no_store_are_not_found(project: Path, shop: str, cli: Cli):
    assert cli("rm", "nope")[0] == Exit.NOT_FOUND
    assert not (project / ".savepoint").exists()
    cli("run", f"{shop}:payer", "pay", "--run-id", "r")
    assert cli("rm", "nope")[0] == Exit.NOT_FOUND


async def answered(place: Path, run_id: str) -> None:
    async with open_store(place) as store:
        agent = Agent(name="a", model=ScriptedModel([say("fine")]))
        await run(agent, "hi", store=store, run_id=run_id, session_id="s")


async def lost_transcript(place: Path, *, landed: bool) -> None:
    """Run `r` as it looks where its transcript is damaged; or, not `landed`, where its process died before landing too."""
    await answered(place, "r")
    async with open_store(place) as store:
        state = (await get_run(store, "r")).state
        if not landed:
            await StoredSession(store).rewind("s", keep_entries=0)
            async with store.commit() as tx:
                StoredSession(store).pending(tx, "s", "r", anew=True)
    with closing(sqlite3.connect(place / "store.db")) as database, database:
        assert database.execute("delete from object where name=?", (state,)).rowcount == 1


@pytest.mark.parametrize("landed", [True, False])
def test_a_damaged_run_can_be_given_up_so_that_its_session_goes_on(project: Path, cli: Cli, landed: bool):
    place = project / ".savepoint"
    asyncio.run(lost_transcript(place, landed=landed))
    if not landed:
        with pytest.raises(Corrupt, match="run r completed, and cannot land in session s") as refused:
            asyncio.run(answered(place, "q"))
        assert "savepoint rm r --abandon" in refused.value.next
    code, (refusal,), _ = cli("rm", "r")
    assert (code, "savepoint rm r --abandon" in refusal["error"]["next"]) == (Exit.DAMAGED, True)
    assert cli("rm", "r", "--abandon")[0] == Exit.DONE
    asyncio.run(answered(place, "q"))


async def claimed(place: Path) -> KernelLock:
    """Run `r` as it looks while a process of another machine holds it."""
    async with open_store(place) as store:
        lock = take_lock(store, (await get_run(store, "r")).lineage, "r", None, 2)
        assert lock is not None
        lease = Lease(epoch=2, boot="of another machine", process=1, deadline_s=0.0)
        async with store.commit() as tx:
            tx.write(Space.LEASE, run_key("r"), write_lease(lease))
    return lock


def test_a_held_run_is_held(project: Path, shop: str, cli: Cli):
    cli("run", f"{shop}:payer", "pay", "--run-id", "r")
    lock = asyncio.run(claimed(project / ".savepoint"))
    assert cli("rm", "r", "--abandon")[0] == Exit.HELD
    lock.release()
    assert cli("rm", "r")[0] == Exit.DONE


def test_what_is_listed_says_so(project: Path, shop: str, cli: Cli, capfd: pytest.CaptureFixture[str]):
    cli("run", f"{shop}:payer", "pay", "--run-id", "r")
    cli("run", f"{shop}:payer", "pay", "--run-id", "s")
    before = cli("show", "r")[1][0]
    cli("rm", "r")
    after = cli("show", "r")[1][0]
    assert (before["removed"], after["removed"], after["status"]) == (False, True, "completed")
    assert (after["steps"], after["savepoint"], after["resumable_from"]) == ([], None, None)
    assert {each["run_id"]: each["removed"] for each in cli("runs")[1]} == {"r": True, "s": False}
    code, receipts, err = cli("log", "r")
    assert (code, receipts, "run r was removed" in err) == (Exit.DONE, [], True)
    with chdir(project):
        assert [main(["runs"]), main(["show", "r"]), main(["log", "r"])] == [Exit.DONE] * 3
    out, err = capfd.readouterr()
    assert out.count("completed (removed)") == 2
    assert "its result alone; all else was removed" in out
    assert "its receipts are gone" in err


def test_what_a_run_takes_is_told(project: Path, shop: str, cli: Cli, capfd: pytest.CaptureFixture[str]):
    cli("run", f"{shop}:payer", "pay", "--run-id", "r")
    disk = cli("show", "r")[1][0]["disk"]
    with closing(sqlite3.connect(project / ".savepoint/store.db")) as database:
        (objects,) = database.execute("select count(*), sum(length(name) + length(body)) from object")
        (rows,) = database.execute("select count(*), sum(length(place) + length(body) + length(digest)) from ledger")
        (names,) = database.execute("select sum(instr(place, x'00')) from ledger")
    assert disk["objects"] == objects[0] - 1, "all but the definition of its agent, which runs share"
    assert 0 < objects[1] - disk["object_bytes"] < 1000
    assert (disk["rows"], disk["row_bytes"]) == (rows[0], rows[1] - names[0]), "all rows, without their space"
    assert disk["bytes"] == disk["row_bytes"] + disk["object_bytes"]
    with chdir(project):
        main(["show", "r"])
    assert f"disk       {size(disk['bytes'])} ({disk['rows']} rows: {size(disk['row_bytes'])}" in capfd.readouterr().out
    cli("rm", "r")
    left = cli("show", "r")[1][0]["disk"]
    assert (left["rows"], left["objects"]) == (1, 1)
    assert left["bytes"] < disk["bytes"]


def test_bytes_are_told_in_three_figures():
    told = {
        0: "0 B",
        999: "999 B",
        1000: "1.0 kB",
        9_949: "9.9 kB",
        12_345: "12 kB",
        5 * 10**6: "5.0 MB",
        10**15: "1000 TB",
    }
    assert {count: size(count) for count in told} == told
