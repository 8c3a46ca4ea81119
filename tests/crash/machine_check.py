"""What must hold of what is seen of processes, stores and the outside, by the model. Pure: raises `AssertionError`."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import machine_model as model
import outside
from rig import Json


def check_life(run: Json, said: Json, foreseen: tuple[str, set[str]], *, warned: bool = False) -> None:
    status, must = foreseen
    assert said.get("status") == status, f"{run['name']} must be {status} {sorted(must)}, it is {said}"
    expected = sorted(_question(tag) for tag in must)
    assert said["questions"] == expected, f"{run['name']} must ask {expected}, it asks {said['questions']}"
    if status == "completed":
        right = model.state_at(run, len(run["script"]) - 1)["said"]
        assert said["value"] == right, f"{run['name']} ended with {said['value']}, not {right}"
    without = set(range(run["first"], run["done"] + 1)) - run["points"]
    # A map in memory dies with its process: of a call that may change the world, its part is always said to be lost.
    warnings = [each for each in said["warnings"] if not each.startswith("what machine/tool changed")]
    assert warned or len(warnings) <= len(without), f"{run['name']} warns: {warnings}"


def check_outside(runs: Sequence[Json], acts: Sequence[outside.Act]) -> None:
    counts = Counter(act.tag for act in acts if act.tag[-1] in model.DOUBTFUL)
    for tag, count in counts.items():
        assert count == 1, f"{tag} was performed {count} times"
    keys: dict[str, tuple[Any, ...]] = {}
    for act in acts:
        assert keys.setdefault(act.key, (act.tag, act.arguments)) == (act.tag, act.arguments), (
            f"{act.tag}{act.arguments} went out under the key of {keys[act.key]}"
        )
    by_tag: dict[str, Any] = {}
    for act in acts:
        assert by_tag.setdefault(act.tag, act.key) == act.key, f"{act.tag} went out under two keys"
    for run in runs:
        for tag in model.expected_acts(run):
            assert tag in by_tag, f"{tag} is behind a savepoint, and the outside never saw it"


def check_run(run: Json, seen: Json | None, known: dict[str, Json], acts: Sequence[outside.Act]) -> None:
    name = run["name"]
    assert (seen and seen["status"]) == run["status"], f"{name} is {seen and seen['status']}, not {run['status']}"
    if seen is None:
        return
    expected = sorted(_question(tag) for tag in model.waits_for(run))
    assert seen["open"] == expected, f"{name} asks {seen['open']}, not {expected}"
    steps = {int(mark) + run["first"]: each for mark, each in seen["points"].items()}
    assert steps.keys() == run["points"], f"{name} has savepoints {sorted(steps)}, not {sorted(run['points'])}"
    for step, (point, content) in steps.items():
        right = with_host(model.state_at(run, step))
        found = known.setdefault(point, content)
        assert found == right, f"savepoint {step} of {name} holds {found}, not {right}"
    if seen["final"] is not None:
        right = with_host(model.state_at(run, len(run["script"]) - 1))
        assert seen["final"] == right, f"{name} ended as {seen['final']}, not {right}"
    _check_receipts(run, seen["receipts"], acts)


def _check_receipts(run: Json, receipts: Json, acts: Sequence[outside.Act]) -> None:
    for act in acts:
        if act.tag.split(".")[0] == run["name"] and act.tag[-1] in model.DOUBTFUL:
            known, found = run["calls"].get(act.tag), receipts.get(act.key, [None])[0]
            assert known is not None, f"{act.tag} was performed without a durable intent"
            right = {"intended", "in_doubt"} if known == "intended" else {known}
            assert found in right, f"{act.tag} was performed, its receipt says {found}, not {known}"
    open_now = in_doubt(receipts)
    assert len(open_now) == len(model.doubts(run)), f"{run['name']}: in doubt {open_now}, not {model.doubts(run)}"


def in_doubt(receipts: Json) -> list[Any]:
    """Status and effect of the calls with an intent and no outcome."""
    doubtful = [*model.DOUBTFUL.values()]
    return [each for each in receipts.values() if each[0] in ("intended", "in_doubt") and each[1] in doubtful]


def _question(tag: str) -> list[str]:
    if tag == "damaged":
        return ["damaged", ""]
    return ["in_doubt", tag.split()[1] if " " in tag else model.DOUBTFUL[tag[-1]]]


def with_host(state: Json) -> Json:
    return {**state, "files": {"host.txt": "the user's own", **state["files"]}}
