"""Resuming needs nothing of the process that died: a new interpreter, with another order of hashes, at every point."""

from pathlib import Path

from attrs import frozen
from explorer import Explorer, Kill, Plan
from rig import Json, Server, fresh

MOST = "each class in turn"
"""Its first process gets to all points but those of questions and probes."""
OTHERS = {
    "ambiguous, performed": [Plan(kills=((0, (f"park.{side}", 1)),)) for side in ("before", "after")],
    "ONCE with a final probe": [
        Plan(kills=((0, ("body.after", 1)), (1, (f"settle.{side}", 1)))) for side in ("before", "after")
    ],
}


@frozen
class FreshAfterwards:
    """The first process of a run is forked; every later one is started anew."""

    server: Server
    seed: int

    def attempt(self, request: Json) -> Json:
        return self.server.attempt(request) if request["first"] else fresh(request, self.seed)


def once_each(plans: list[Plan]) -> list[Plan]:
    """The first plan for each named point."""
    first: dict[str, Plan] = {}
    for plan in plans:
        point: Kill = plan.kills[0][1]
        first.setdefault(point[0], plan)
    return list(first.values())


def test_a_run_that_died_at_any_point_is_finished_by_new_interpreters(servers: list[Server], memory: Path) -> None:
    most = once_each(Explorer(servers=servers, scenario=MOST, place=memory / "plans").singles())
    for index, (scenario, plans) in enumerate({MOST: most, **OTHERS}.items()):
        new = [FreshAfterwards(server, seed) for seed, server in enumerate(servers, 1)]
        explorer = Explorer(servers=new, scenario=scenario, place=memory / str(index))  # type: ignore[arg-type]
        complaints = explorer.judge_all(plans)
        assert explorer.died >= len(plans)
        assert not complaints, "\n".join(complaints)
