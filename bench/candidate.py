"""The workload done by an agent of this project: a scripted model, one READ tool, the durable store.

Also a candidate of the peer benchmarks: with their folder on PYTHONPATH, their `common` runs the phases.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn, cast

from attrs import define

from agent import Agent, fork, resume, run, tool
from agent._answer import Answer, Wanted
from agent._message import AssistantMessage, ToolMessage
from agent._model import Request
from effects import Idempotency
from savepoint import open_store
from savepoint._store import Store
from trial import Pairs, Trial
from workload import fork_salt, turn

RUN = "bench"
VARIANTS = ("power", "process")
"""The store's durability; the floor `cas2` promises the first."""
RESULTS: dict[str, str] = {}
"""What `lookup` finds, by question: the model puts in what it is about to ask for."""


@tool(idempotency=Idempotency.READ)
async def lookup(q: str, turn: int) -> str:  # the arguments that every candidate's call has
    """Looks something up."""
    return RESULTS[q]


@define
class Player:
    """Plays the workload's turns up to `last`; asked for one more, it hands over to `end`."""

    last: int
    end: Callable[[Pairs], Awaitable[NoReturn]]
    mark: Callable[[], None] = lambda: None
    salt: str = ""
    name: str = "bench"
    settings: Mapping[str, object] = {}

    async def reply(self, request: Request, *, on_text: Callable[[str], None] | None = None) -> Answer:
        number = request.turn
        if number == self.last:
            await self.end(pairs_of(request))
        self.mark()
        content = turn(number, self.salt)
        RESULTS[content.question] = content.result
        arguments = json.dumps({"q": content.question, "turn": number})
        wanted = Wanted(tool=lookup.name, arguments=arguments, provider_id=content.call_id)
        return Answer(text=content.text, calls=(wanted,))


def pairs_of(request: Request) -> Pairs:
    texts = [message.text for message in request.messages if isinstance(message, AssistantMessage)]
    results = [message.text for message in request.messages if isinstance(message, ToolMessage)]
    return list(zip(texts, results, strict=True))


def agent_of(player: Player) -> Agent:
    return Agent(name="bench", model=player, tools=[lookup], max_turns=player.last + 1)


def store_of(trial: Trial) -> Any:
    return open_store(trial.path(".savepoint"), durability=cast("Any", trial.variant))


async def run_phase(trial: Trial) -> None:
    async def end(pairs: Pairs) -> NoReturn:
        trial.stop_here()

    async with store_of(trial) as store:
        trial.begin()
        await run(agent_of(Player(trial.turns, end, trial.mark)), "Begin.", run_id=RUN, store=store)


async def resume_phase(trial: Trial) -> None:
    async def end(pairs: Pairs) -> NoReturn:
        trial.resumed(pairs)

    trial.begin()
    async with store_of(trial) as store:
        await resume(RUN, agent=agent_of(Player(trial.turns, end)), store=store)


async def fork_phase(trial: Trial) -> None:
    async with store_of(trial) as store:
        trial.begin()
        many = [await one_fork(trial, store, index) for index in range(trial.forks)]
        trial.forked(many)


async def one_fork(trial: Trial, store: Store, index: int) -> Pairs:
    """A continuation until its one turn is durable; there it stays, as one that is killed would."""
    reached = asyncio.get_running_loop().create_future()

    async def end(pairs: Pairs) -> NoReturn:
        reached.set_result(pairs)
        while True:
            await asyncio.Event().wait()

    player = Player(trial.fork_at + 1, end, salt=fork_salt(index))
    going = asyncio.ensure_future(
        fork(RUN, agent=agent_of(player), store=store, at=trial.fork_at, fork_id=f"{RUN}-{fork_salt(index)}")
    )
    await asyncio.wait([going, reached], return_when=asyncio.FIRST_COMPLETED)
    if going.done():
        going.result()
    CONTINUATIONS.append(going)
    return await reached


CONTINUATIONS: list[asyncio.Future[Any]] = []
"""Keeps the forks alive until the process dies: what a task group would do, but that it would wait for them."""


def in_loop(phase: Callable[[Trial], Awaitable[None]]) -> Callable[[Trial], None]:
    async def whole(trial: Trial) -> None:
        await phase(trial)

    return lambda trial: asyncio.run(whole(trial))


if __name__ == "__main__":
    harness = import_module("common" if find_spec("common") else "harness")
    phases = [in_loop(phase) for phase in (run_phase, resume_phase, fork_phase)]
    harness.main("savepoint", list(VARIANTS), *phases, ["aiosqlite", "blake3", "cbor2"])
