"""What the demo shows: that two runs killed inside their one post ended like the run that nobody disturbed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from agent._agent import Agent
from savepoint import RunStatus, open_store

from ._actor import PACKAGE, STORE
from ._ending import Ending, ending, tree
from ._outside import LEDGER, posts
from ._package import FILES
from ._story import Story

RESULTS = "results"


@frozen(kw_only=True)
class Proof:
    """Stories and endings by run id; the first one is the run that nobody disturbed."""

    stories: Mapping[str, Story]
    endings: Mapping[str, Ending]
    host_untouched: bool
    """the directory that the runs were started on holds what it held"""

    @property
    def equal(self) -> Mapping[str, Mapping[str, bool]]:
        """Run id -> what was compared with the first run -> whether it is equal."""
        first = next(iter(self.endings.values()))
        return {run_id: each.equals(first) for run_id, each in self.endings.items()}

    @property
    def mended(self) -> bool:
        return all(each.mended for each in self.endings.values())

    @property
    def holds(self) -> bool:
        return self.mended and self.host_untouched and all(all(each.values()) for each in self.equal.values())

    def summary(self) -> dict[str, Any]:
        """For scripts. `run_id` is the last run's; `outside_calls` is each run's count, the worst one if they differ."""
        stories, ends = self.stories.values(), [each.status for each in self.endings.values()]
        counts = [each.outside_calls for each in self.endings.values()]
        return {
            "run_id": list(self.stories)[-1],
            "kills": sum(each.kills for each in stories),
            "questions": [question for each in stories for question in each.questions],
            "decisions": [decision for each in stories for decision in each.decisions],
            "status": next((each for each in ends if each is not RunStatus.COMPLETED), RunStatus.COMPLETED),
            "outside_calls": max(counts, key=lambda count: abs(count - 1)),
            "equal_to_unkilled": self.holds,
        }

    def rows(self) -> list[Sequence[str]]:
        """The comparison as a table."""
        stories = list(self.stories.values())
        rows: list[Sequence[str]] = [
            ["", *self.stories],
            ["kills", *(str(each.kills) for each in stories)],
            ["question", *(_joined(each.questions, "kind") for each in stories)],
            ["decision", *(_joined(each.decisions, "verdict") for each in stories)],
            ["posts outside", *(str(each.outside_calls) for each in self.endings.values())],
        ]
        first, *others = self.endings.items()
        for what, shown in _shown(first[1]).items():
            rows.append([what, shown, *("equal" if self.equal[run_id][what] else "DIFFERENT" for run_id, _ in others)])
        return rows


def _joined(each: Sequence[Mapping[str, Any]], name: str) -> str:
    return ", ".join(str(one[name]) for one in each) or "-"


def _shown(first: Ending) -> dict[str, str]:
    """A few characters for each thing that is compared."""
    ids = " ".join(each.id.hex()[:12] for each in first.world.values())
    return {
        "status": first.status,
        "answer": f"{len(first.output or '')} characters",
        "transcript": f"{len(first.transcript)} entries",
        "world": f"snapshot {ids}",
        "files": f"{len(first.files)} files",
    }


async def prove(place: Path, agent: Agent, stories: Mapping[str, Story]) -> Proof:
    """Reads what is left of the runs in the demo's directory `place`."""
    results = place / RESULTS
    results.mkdir()
    async with open_store(place / STORE, create=False) as store:
        endings = {
            run_id: await ending(
                store, agent, run_id, results=results, outside_calls=len(posts(place / LEDGER, run_id))
            )
            for run_id in stories
        }
    left = {name: content.decode() for name, (_, content) in tree(place / PACKAGE).items()}
    return Proof(stories=stories, endings=endings, host_untouched=left == FILES)
