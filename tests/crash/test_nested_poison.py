"""A probe of a nested run that kills its process is no way around the question `poison` of the outer one."""

import subprocess
import sys
from pathlib import Path

PROGRAM = '''
import asyncio, os, sys
from pathlib import Path
from agent import Agent, Idempotency, as_tool, resume_all, run, tool
from agent.testing import ScriptedModel, call, say
from savepoint import open_store

place = Path(sys.argv[1])

def die(word):
    with (place / "log").open("a") as file:
        file.write(f"{word}\\n")
    os._exit(9)

@tool(idempotency=Idempotency.ONCE)
async def pay(what: str) -> str:
    """Pays."""
    die("body")

@pay.probe
async def was_paid(_):
    die("probe")

inner = Agent(name="inner", model=ScriptedModel([call("pay", what="it"), say("done")]), tools=[pay])
outer = Agent(name="outer", model=ScriptedModel([call("inner", input="go"), say("fine")]), tools=[as_tool(inner)])

async def main():
    async with open_store(place / "store", durability="process") as store:
        if sys.argv[2] == "run":
            await run(outer, "hi", store=store, run_id="o")
        for each in await resume_all(outer, store=store, poison_after=3):
            print(each.result.status, *(question.kind for question in each.result.questions))

asyncio.run(main())
'''


def test_a_probe_inside_that_kills_is_not_entered_for_ever(tmp_path: Path):
    def life(how: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path), how]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert [life(how).returncode for how in ("run", "resume", "resume")] == [9, 9, 9]
    last = life("resume")
    assert (last.returncode, last.stdout) == (0, "waiting poison\n"), last.stderr
    assert (tmp_path / "log").read_text().split() == ["body", "probe", "probe"]
