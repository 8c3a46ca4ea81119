"""A process that lost the outer run does nothing more in the nested one, though nobody claimed that one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = '''
import asyncio, sys
from pathlib import Path
from agent import Agent, Idempotency, as_tool, run, tool
from agent.testing import ScriptedModel, call, say
from savepoint import cancel_run, open_store

place, name, how = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

@tool(idempotency=Idempotency.ONCE)
async def pay(what: str) -> str:
    """Pays."""
    with (place / "ledger").open("a") as file:
        file.write(f"{name}\\n")
    return "paid"

@tool(idempotency=Idempotency.READ)
async def look() -> str:
    """Looks."""
    (place / f"inside-{name}").touch()
    while name == "first" and not (place / "go").exists():
        await asyncio.sleep(0.02)
    return "seen"

turns = [call("look"), call("pay", what="it"), say("done")]
inner = Agent(name="inner", model=ScriptedModel(turns), tools=[look, pay])
outer = Agent(name="outer", model=ScriptedModel([call("inner", input="go"), say("fine")]), tools=[as_tool(inner)])

async def main():
    async with open_store(place / "store", durability="process") as store:
        if how == "cancel":
            await cancel_run(store, "o")
        else:
            await run(outer, "hi", store=store, run_id="o", lease_s=1.0, if_run_exists=how)

asyncio.run(main())
'''


@pytest.mark.parametrize(("how", "ledger"), [("restart", "second\n"), ("cancel", "")])
def test_who_lost_the_outer_run_acts_no_more_in_the_nested_one(tmp_path: Path, how: str, ledger: str):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    first = subprocess.Popen([*command, "first", "resume"], stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 30
        while not (tmp_path / "inside-first").exists():
            assert time.monotonic() < until
            time.sleep(0.02)
        os.kill(first.pid, signal.SIGSTOP)
        time.sleep(1.2)  # longer than its lease
        subprocess.run([*command, "second", how], check=True, timeout=30)
    finally:
        (tmp_path / "go").touch()
        os.kill(first.pid, signal.SIGCONT)
    _, errors = first.communicate(timeout=30)
    assert first.returncode == 1
    assert "Held: run o was taken over by another attempt" in errors
    paid = tmp_path / "ledger"
    assert (paid.read_text() if paid.exists() else "") == ledger
