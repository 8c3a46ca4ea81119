"""The demo's agent: the worker, a scripted model, and one tool that cannot be taken back."""

import asyncio
import json
from pathlib import Path

from attrs import evolve

from agent._agent import Agent
from agent._context import Context
from agent._scripted import ScriptedModel
from agent._tool import tool
from agent.worker import worker
from effects import Idempotency

from ._outside import GREETING
from ._package import turns


class NotSent(Exception):
    """The outside never said that it is ready, so it was sent nothing: known to have failed, no doubt."""


@tool(idempotency=Idempotency.ONCE)
async def post_report(context: Context[Path], text: str) -> dict[str, str]:
    """Posts the report of finished work to those who wait for it. It cannot be taken back."""
    reader, writer = await _connected(context.deps)
    try:
        writer.write(json.dumps({"channel": context.run_id, "text": text}).encode() + b"\n")
        answer = await reader.readline()
    finally:
        writer.close()
    if not answer.endswith(b"\n"):
        raise ConnectionResetError("the outside did not answer")
    return json.loads(answer)


async def _connected(socket: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that the outside has greeted. Raises `NotSent`."""
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
        greeting = await reader.readline()
    except OSError as error:
        raise NotSent(f"the outside cannot be reached: {error}") from None
    if greeting != GREETING:
        writer.close()
        raise NotSent("the outside is not ready")
    return reader, writer


def demo_agent(tests: str) -> Agent:
    """`tests` is the command that runs the package's tests. Its deps are the path of the outside's socket."""
    hired = worker()
    return evolve(hired, name="demo", tools=(*hired.tools, post_report), model=ScriptedModel(turns(tests)))
