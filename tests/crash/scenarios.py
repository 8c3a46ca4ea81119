"""The scenarios by name: what the recovery model explores, as programs of this package."""

from typing import Any

from programs import (
    Scenario,
    Setting,
    bad,
    bump,
    bump_send,
    bumps,
    cat,
    clock,
    gone,
    klost,
    late_branch,
    line,
    lost,
    moody,
    moody_deep,
    note,
    old_put,
    old_send,
    other_send,
    pay,
    pure,
    put,
    put_and_send,
    read_put,
    read_send,
    same_send,
    send,
    send_bump_send,
    shy,
    slow_bumps,
    sure,
    teams,
    tool,
    try_send,
    turn,
    weak,
)
from scenarios_more import MORE


def _last(said: list[Any]) -> Any:
    return said[-1]


def _moody_call(performed: Any) -> Any:
    return lambda said: (f"s {Setting.first}", performed, "a" if Setting.first else "b")


BUMP_THEN_SEND = (turn(("b", bump, "n")), turn(lambda said: ("s", send, _last(said))))

SCENARIOS: dict[str, Scenario] = {
    "each class in turn": Scenario(
        turns=[
            turn(("p", pure, 2)),
            turn(("c", clock, ())),
            turn(("b", bump, "n")),
            turn(("i", put, 1)),
            turn(("k", pay, 1)),
            turn(("o", send, 1)),
        ]
    ),
    "several calls a turn": Scenario(turns=[turn(("a", bump_send, 1)), turn(("b", read_send, 2))]),
    "composite": Scenario(turns=[turn(("rs", read_send, 1))]),
    "ONCE, ONCE": Scenario(turns=[turn(("a", send, 1), ("b", send, 2))]),
    "equal ONCE, ONCE": Scenario(turns=[turn(("a", send, 1), ("b", send, 1))]),
    "IDEMPOTENT, ONCE": Scenario(turns=[turn(("a", put, 1), ("b", send, 2))]),
    "READ, ONCE, CONTAINED": Scenario(turns=[turn(("a", clock, ()), ("b", send, 2), ("c", bump, "n"))]),
    "body gathers IDEMPOTENT, ONCE": Scenario(turns=[turn(("g", put_and_send, 1))]),
    "body gathers COMPOSITE, COMPOSITE": Scenario(turns=[turn(("g", teams, 1))]),
    "branches that open late": Scenario(turns=[turn(("a", late_branch, 1), ("b", send, 2), ("c", late_branch, 3))]),
    "CONTAINED, then ONCE of it": Scenario(turns=BUMP_THEN_SEND),
    "CONTAINED, then ONCE of it, refused": Scenario(turns=BUMP_THEN_SEND, refused=frozenset({1})),
    "COMPOSITE: CONTAINED, ONCE of it": Scenario(turns=[turn(("bs", bump_send, 1))]),
    "COMPOSITE: ONCE, CONTAINED, ONCE of it": Scenario(turns=[turn(("s", send_bump_send, 1))]),
    "COMPOSITE of CONTAINED, ONCE": Scenario(turns=[turn(("bs", bumps, 1), ("s", send, 1))]),
    "COMPOSITEs of CONTAINED side by side": Scenario(turns=[turn(("a", slow_bumps, 1), ("b", slow_bumps, 2))]),
    "undeclared tool, then its file": Scenario(
        turns=[turn(("t", tool, ("f", 7))), turn(("c", cat, "f"))], loses_world=True
    ),
    "undeclared tool beside CONTAINED": Scenario(
        turns=[turn(("b", bump, "n"), ("t", tool, ("f", 7))), turn(("c", cat, "f"))], loses_world=True
    ),
    "undeclared tool, refused": Scenario(
        turns=[turn(("t", tool, ("f", 7))), turn(("c", cat, "f")), turn(("d", cat, "f"))],
        refused=frozenset({1}),
        loses_world=True,
    ),
    "siblings, equal ONCE": Scenario(turns=[turn(("A", same_send, 1), ("B", same_send, 2))]),
    "siblings, READ then ONCE": Scenario(turns=[turn(("A", read_send, 1), ("B", read_send, 2))]),
    "ONCE fails, another one": Scenario(turns=[turn(("x", bad, 1)), turn(lambda said: ("y", send, _last(said)))]),
    "ONCE fails, another one, refused": Scenario(
        turns=[turn(("x", bad, 1)), turn(lambda said: ("y", send, _last(said)))], refused=frozenset({1})
    ),
    "COMPOSITE: ONCE fails, another one": Scenario(turns=[turn(("x", try_send, 1))]),
    "ambiguous, performed": Scenario(turns=[turn(("x", gone, 1)), turn(("y", send, 1))]),
    "ambiguous, not performed": Scenario(turns=[turn(("x", lost, 1)), turn(("y", send, 1))]),
    "ambiguous beside ONCE": Scenario(turns=[turn(("x", gone, 1), ("y", send, 2))]),
    "ambiguous beside READ": Scenario(turns=[turn(("x", lost, 1), ("r", clock, ())), turn(("y", send, 1))]),
    "ambiguous beside COMPOSITE": Scenario(turns=[turn(("x", lost, 1), ("b", bump_send, 1))]),
    "KEYED ambiguous": Scenario(turns=[turn(("x", klost, 1))], jumps=(0, 7)),
    "KEYED, window may expire": Scenario(turns=[turn(("k", pay, 1), ("r", clock, ()))], jumps=(0, 7, 100)),
    "two turns, one refused": Scenario(turns=[turn(("a", send, 1)), turn(("b", send, 1))], refused=frozenset({1})),
    "refused in the first process": Scenario(
        turns=[turn(("a", send, 1)), turn(("b", send, 1)), turn(("c", put, 1))],
        refused=frozenset({1}),
        refused_first=True,
    ),
    "refused in the first process, undeclared tool": Scenario(
        turns=[turn(("a", note, ("a", "1"))), turn(("t", tool, ("f", 7))), turn(("c", cat, "f"))],
        refused=frozenset({1}),
        refused_first=True,
        loses_world=True,
    ),
    "three turns, two refused": Scenario(
        turns=[turn(("r", clock, ())), turn(lambda said: ("b", send, _last(said))), turn(("c", bump, "n"))],
        refused=frozenset({1, 2}),
    ),
    "perturbed program": Scenario(turns=[turn(_moody_call(send)), turn(("c", clock, ()))], perturbed=True),
    "perturbed program, IDEMPOTENT": Scenario(turns=[turn(_moody_call(put))], perturbed=True),
    "perturbed body": Scenario(turns=[turn(("m", moody, 1))], perturbed=True),
    "perturbed inner COMPOSITE": Scenario(turns=[turn(("m", moody_deep, 1))], perturbed=True),
    "READ with max_age, then ONCE": Scenario(turns=[turn(("m", old_send, 1))], jumps=(0, 100, -100), retried=True),
    "READ with max_age, then IDEMPOTENT": Scenario(turns=[turn(("m", old_put, 1))], jumps=(0, 100), retried=True),
    "READ, then IDEMPOTENT of it": Scenario(turns=[turn(("m", read_put, 1))]),
    "ONCE with a final probe": Scenario(
        turns=[turn(("a", sure, 1), ("b", sure, 2)), turn(("c", sure, 3))], no_questions=True
    ),
    "ONCE with a probe that is not final": Scenario(turns=[turn(("a", weak, 1)), turn(("b", weak, 2))]),
    "ONCE with a probe that tells late": Scenario(turns=[turn(("a", shy, 1))]),
    "strict": Scenario(
        turns=[turn(("a", send, 1)), turn(("r", clock, ())), turn(("b", other_send, 2))],
        refused=frozenset({1, 2}),
        strict=True,
    ),
    "workspace": Scenario(turns=[turn(("l", line, "one")), turn(("s", send, 1)), turn(("m", line, "two"))], files=True),
    "workspace, refused": Scenario(
        turns=[turn(("l", line, "one")), turn(("s", send, 1)), turn(("m", line, "two"))],
        files=True,
        refused=frozenset({1, 2}),
    ),
    **MORE,
}
