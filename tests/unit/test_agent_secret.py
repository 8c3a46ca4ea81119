"""A secret travels by name; the value is nowhere but in the body."""

from agent import Agent, Idempotency, Secret, run, tool
from agent.testing import ScriptedModel, call, say
from savepoint import open_store

SEEN: list[str] = []


@tool(idempotency=Idempotency.ONCE)
async def pay(key: Secret, cents: int) -> str:
    """Pays."""
    SEEN.append(key.reveal())
    return f"paid {cents}"


def agent() -> Agent:
    return Agent(
        name="a", tools=(pay,), model=ScriptedModel([call("pay", key={"name": "stripe"}, cents=3), say("done")])
    )


def bytes_under(place) -> bytes:
    return b"".join(path.read_bytes() for path in place.rglob("*") if path.is_file())


async def test_the_body_gets_the_secret_and_the_store_its_name_only(tmp_path):
    SEEN.clear()
    async with open_store(tmp_path / "store") as store:
        result = await run(agent(), "go", store=store, deps={"secrets": {"stripe": "sk-CANARY-1"}})
        assert result.output == "done"
    assert SEEN == ["sk-CANARY-1"]
    stored = bytes_under(tmp_path)
    assert b"stripe" in stored
    assert b"CANARY" not in stored


async def test_a_secret_that_is_not_there_is_said_and_never_replaced(tmp_path):
    SEEN.clear()
    async with open_store(tmp_path / "store") as store:
        result = await run(agent(), "go", store=store, deps={})
        outcome = result.transcript[2]
    assert not SEEN
    assert "stripe" in outcome.message
