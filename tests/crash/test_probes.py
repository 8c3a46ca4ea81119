"""A probe that could not tell is asked again, and what it says then closes the question that was asked meanwhile."""

import asyncio
from pathlib import Path

import pytest
from rig import RUN, Json, Server

from savepoint import open_store
from savepoint._questions import open_questions
from savepoint._run_result import get_run
from savepoint._types import Types


def attempt(server: Server, place: Path, **more: object) -> Json:
    request = {"scenario": "ONCE with a probe that tells late", "place": str(place), "first": False, **more}
    return server.attempt(request)


async def still_open(place: Path) -> int:
    async with open_store(place / "store", read_only=True) as store:
        return len(await open_questions(store, (await get_run(store, RUN)).lineage, Types()))


@pytest.mark.parametrize("died", ["body.before", "body.after"])
def test_a_late_answer_of_a_probe_closes_the_question(died: str, servers: list[Server], memory: Path) -> None:
    assert attempt(servers[0], memory, kill=[died, 1], first=True)["killed"]
    assert attempt(servers[0], memory, kill=["park.after", 1])["killed"]
    assert attempt(servers[0], memory)["report"]["status"] == "completed"
    assert asyncio.run(still_open(memory)) == 0
