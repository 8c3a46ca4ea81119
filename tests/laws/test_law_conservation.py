"""Law 6: budgets are neither made nor lost. What exists of them is the limit of turns, over all processes together.

A reply that died with its process before it was recorded is asked for again: it is no turn (`design/laws.md`).
"""

# pyright: reportMissingImports=false
# The crash suite's modules: `conftest.py` puts them on the path.

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import outside
from agent_task import agent_for
from agent_tasks import TASKS
from attrs import define, field, frozen
from hypothesis import example, given
from hypothesis import strategies as st
from law_kills import RECOVERY, WAL, Kills, few

from agent._nested import registry_for
from effects._question import QuestionKind
from savepoint import open_store
from savepoint._run_result import find_run
from savepoint.crash import ForkServer, Kill
from savepoint.crash._observe import decided_questions
from savepoint.crash._oracle import asked_again

TASK = "many turns"
LAST = len(TASKS[TASK].turns)  # type: ignore[arg-type]
"""Replies after which the agent is done whatever its limit."""


@frozen(kw_only=True, repr=False)
class Process:
    """What one process is told."""

    grant: int = 0
    """turns that it grants if it is asked, before it goes on"""
    kill: Kill | None = None

    def __repr__(self) -> str:
        return f"Process(grant={self.grant}, kill={self.kill and f'Kill.parse({str(self.kill)!r})'})"


@define
class Told:
    """The run, process by process."""

    server: ForkServer
    place: Path
    limit: int
    wal: bool | None
    lives: int = field(default=0, init=False)

    def live(self, process: Process) -> Mapping[str, Any]:
        """Its report; empty where it was killed."""
        request = {
            "scenario": TASK,
            "task": {"max_turns": self.limit},
            "place": str(self.place),
            "first": self.lives == 0,
            "wal": self.wal,
            **({"answer": "all", "grant": process.grant} if process.grant else {}),
        }
        self.lives += 1
        return self.server.attempt(request, process.kill).report

    @property
    def asked(self) -> list[Any]:
        return outside.asked(self.place / "outside")

    def granted(self) -> int:
        """Turns, as the store has the decisions."""
        return asyncio.run(self._granted())

    async def _granted(self) -> int:
        registry = registry_for(agent_for(TASKS[TASK]))
        async with open_store(self.place / "store", durability="process", wal=self.wal) as store:
            record = await find_run(store, "run")
            decided = [] if record is None else await decided_questions(store, record, registry)
        return sum(said.value for question, said in decided if question.kind is QuestionKind.BUDGET)


KILLS = st.builds(Kill, st.sampled_from(RECOVERY), st.integers(1, 4))
PROCESSES = st.lists(
    st.builds(Process, grant=st.sampled_from([0, 0, 1, 2, 5]), kill=st.none() | KILLS), min_size=1, max_size=6
)


@example(limit=1, processes=[Process(), Process(grant=2, kill=Kill("reply.after", 1)), Process()], wal=None)
@example(limit=2, processes=[Process(), Process(grant=1, kill=Kill("claim.before", 1)), Process(grant=1)], wal=False)
@few(20)
@given(limit=st.integers(1, 6), processes=PROCESSES, wal=WAL)
def test_law_6_conservation_of_turns_over_all_processes(
    kills: Kills, limit: int, processes: Sequence[Process], wal: bool | None
) -> None:
    told = Told(kills.server("agent_rig:live"), kills.room(), limit, wal)
    granted = 0
    for process in processes:
        said = told.live(process)
        before, granted = granted, told.granted()
        if said:  # it lived: what it says that it granted counts, and nothing else
            answered = said["answered"]
            assert granted - before == process.grant * len(answered), "a grant was made or lost"
        assert granted - before in (0, process.grant)
        replies = {each for each in told.asked if isinstance(each, int)}
        assert len(replies) <= limit + granted, "a turn too many"
        assert replies == set(range(len(replies)))
        assert not list(asked_again(told.asked)), "a reply that is durable was paid for again"
    allowed = limit + granted
    last = told.live(Process())
    if allowed >= LAST:
        assert (last["status"], last["step"]) in [("completed", LAST), ("completed", LAST - 1)]
    else:
        assert (last["status"], last["step"]) == ("waiting", allowed), "a turn was lost"
        assert [each["kind"] for each in last["shown"]] == ["budget"]
    assert {each for each in told.asked if isinstance(each, int)} == set(range(min(allowed, LAST)))
    assert len({act.tag for act in outside.ledger(told.place / "outside")}) == min(allowed, LAST - 1)
