"""The process that a run of the demo lives in, and that is killed: `run` or `resume`, then its end.

It tells what happens as JSON lines. It works in the demo's directory, and ends when its input does.
"""

import asyncio
import json
import os
import sys
import threading
from pathlib import Path

from attrs import asdict

from agent._progress import Progress
from agent._result import Result
from agent._resume import resume
from agent._runner import run
from agent.worker._tools import SYSTEM
from savepoint import Workspace, World, open_store

from ._agent import demo_agent
from ._outside import SOCKET
from ._package import TASK

STORE = ".savepoint"
PACKAGE = "package"


async def act(verb: str, run_id: str, tests: str) -> None:
    """One attempt at a run. Everything it knows of earlier ones is in the store."""
    agent, world = demo_agent(tests), World({SYSTEM: Workspace(Path(PACKAGE))})
    async with open_store(STORE) as store:
        if verb == "run":
            result = await run(
                agent, TASK, run_id=run_id, store=store, world=world, deps=Path(SOCKET), on_event=progress
            )
        else:
            result = await resume(run_id, agent=agent, store=store, world=world, deps=Path(SOCKET), on_event=progress)
    end(result)


def progress(event: Progress) -> None:
    tell(type(event).__name__, asdict(event))


def end(result: Result) -> None:
    tell(
        "Result",
        {
            "status": result.status,
            "output": result.output,
            "error": result.error and result.error.message,
            "questions": [
                {
                    "id": each.id,
                    "kind": each.kind,
                    "effect": each.effect,
                    "arguments": each.arguments,
                    "verdicts": each.verdicts,
                    "why": each.why,
                }
                for each in result.questions
            ],
        },
    )


def tell(event: str, fields: dict[str, object]) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def outlive_nobody() -> None:
    """Ends this process when the one that started it is gone, however that ended."""
    while os.read(0, 1):  # not through sys.stdin, whose lock this thread would hold when the interpreter ends
        pass
    os._exit(1)


def main() -> None:
    """Arguments: `run` or `resume`, the run's id, the command that runs the package's tests."""
    threading.Thread(target=outlive_nobody, daemon=True).start()
    asyncio.run(act(*sys.argv[1:]))
