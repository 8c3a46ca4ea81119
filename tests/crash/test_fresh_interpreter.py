"""Resuming needs nothing of the process that died: a new interpreter, with another order of hashes, at every point."""

from pathlib import Path

from attrs import frozen
from explorer import Explorer, Kill, Plan
from rig import Json, Server, fresh

PROBED = (Plan(kills=((0, ("body.after", 1)), (1, (point, 1)))) for point in ("settle.before", "settle.after"))
PLANS = {"ambiguous beside COMPOSITE": (), "ONCE with a final probe": tuple(PROBED)}


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
    for index, (scenario, more) in enumerate(PLANS.items()):
        new = [FreshAfterwards(server, seed) for seed, server in enumerate(servers, 1)]
        explorer = Explorer(servers=new, scenario=scenario, place=memory / str(index))  # type: ignore[arg-type]
        plans = [*more] or once_each(Explorer(servers=servers, scenario=scenario, place=memory / "plans").singles())
        complaints = explorer.judge_all(plans)
        assert not complaints, "\n".join(complaints)
