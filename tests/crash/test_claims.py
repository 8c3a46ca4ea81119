"""A claim whose resume fails before its first durable step is given back: the cause is mended and the run goes on."""

import shutil
from pathlib import Path

import outside
import programs
import pytest
from rig import RUN, Server
from scenarios import SCENARIOS

from savepoint import Foreign, Registry, SavepointError, open_store, resumable, resume_program
from savepoint._run_result import get_run


@pytest.fixture
def stopped(servers: list[Server], memory: Path) -> Path:
    """A run that was killed behind its first savepoint, in a world of files."""
    reply = servers[0].attempt({"scenario": "workspace", "place": str(memory), "kill": ["gap.after", 1]})
    assert reply["killed"]
    outside.live_at(memory / "outside")
    return memory


async def resumed(place: Path, registry: Registry = programs.REGISTRY) -> str:
    async with open_store(place / "store", durability="process") as store:
        world = programs.host(SCENARIOS["workspace"], place / "files")
        result = await resume_program(RUN, store=store, world=world, registry=registry)
        assert [each for each in outside.ledger(place / "outside") if each.kind == "once"]
        return result.status.value


async def attempts(place: Path) -> int:
    async with open_store(place / "store", read_only=True) as store:
        return (await get_run(store, RUN)).attempts


@resumable("crash/program")
async def renamed(world: object, name: str) -> None:
    """The same name, and not the function that the savepoint knows."""


async def test_a_missing_resume_function_costs_nothing(stopped: Path) -> None:
    with pytest.raises(Foreign) as raised:
        await resumed(stopped, Registry([]))
    assert "crash/program" in str(raised.value)
    assert await attempts(stopped) == 1
    assert await resumed(stopped) == "completed"


async def test_a_function_that_does_not_fit_is_refused_and_the_right_one_finishes_the_run(stopped: Path) -> None:
    with pytest.raises(Foreign):
        await resumed(stopped, Registry([renamed]))
    assert await attempts(stopped) == 1
    assert await resumed(stopped) == "completed"


async def test_a_snapshot_that_is_gone_is_named_and_the_run_goes_on_when_it_is_back(stopped: Path) -> None:
    packs = stopped / "store" / "packs"
    shutil.move(packs, stopped / "elsewhere")
    packs.mkdir()
    with pytest.raises(SavepointError):
        await resumed(stopped)
    async with open_store(stopped / "store", read_only=True) as store:
        assert (await get_run(store, RUN)).status.value == "interrupted"
    shutil.rmtree(packs)
    shutil.move(stopped / "elsewhere", packs)
    assert await resumed(stopped) == "completed"


async def test_a_world_of_another_kind_is_refused_and_the_claim_given_back(stopped: Path) -> None:
    async with open_store(stopped / "store", durability="process") as store:
        with pytest.raises(SavepointError):
            await resume_program(RUN, store=store, registry=programs.REGISTRY)
    assert await resumed(stopped) == "completed"


@pytest.mark.parametrize("point", ["claim.before", "claim.after", "fork.before", "fork.after", "enter"])
async def test_a_kill_between_claim_and_first_step_leaves_the_run_to_the_next(
    point: str, servers: list[Server], stopped: Path
) -> None:
    reply = servers[0].attempt({"scenario": "workspace", "place": str(stopped), "kill": [point, 1], "first": False})
    assert reply["killed"]
    assert await resumed(stopped) == "completed"
