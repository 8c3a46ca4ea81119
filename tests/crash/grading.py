"""The rig is graded: which planted fault is caught how, and how many are."""

from collections.abc import Callable, Mapping, Sequence

from attrs import frozen
from graded_power import After, Making, PowerCut
from graded_stories import (
    cut_receipts,
    damaged_receipt,
    damaged_result,
    damaged_world,
    first_answer_stands,
    fork_asks_itself,
    fork_pays_itself,
    full_disk,
    half_merged,
    held_while_alive,
    interrupted_is_asked_about,
    limit_holds,
    next_run_heals,
    old_answer,
    one_owner,
    parent_keeps_its_world,
    restart_begins_anew,
    undone_stays_undone,
)
from graded_ways import Bench, Elsewhere, FaultyAgent, Hosted, Killed, Parking, Told, Way, bench
from sabotage import SABOTAGES

from savepoint.crash._trace import refused


@frozen
class Catch:
    """Where a fault shows, and what is said of it then."""

    way: Way
    words: str
    """the verdict, and what tells it from another one of that name"""


CAUGHT: Mapping[str, Catch] = {
    # receipts
    "no intent": Catch(Killed("composite", "0@body.after:2"), "duplicate: once 0.rs.send was performed twice"),
    "receipt before effect": Catch(Killed("composite", "0@body.before:3"), "lost: the outside never saw"),
    "unordered": Catch(
        Killed("READ, then IDEMPOTENT of it", "0@body.after:3"), "diverged: idempotent 0.m.put was repeated"
    ),
    "position": Catch(Killed("perturbed body", "0@outcome.after:1"), "got 0.m.send"),
    "arguments alone": Catch(Killed("siblings, equal ONCE", "0@outcome.after:1"), "got 0."),
    "no occurrence": Catch(Killed("equal ONCE, one after the other", "-"), "got 0.t.first"),
    "no lineage in the key": Catch(Told("KEYED", fork_pays_itself, "agent"), "lost"),
    "attempt in the key": Catch(
        Killed("KEYED, window may expire", "0@body.after:2"), "duplicate: keyed 0.k was performed twice"
    ),
    "ambiguous is failed": Catch(
        Killed("ambiguous, performed", "-"), "lost: once 0.x was performed, its receipt says failed"
    ),
    "interrupted is failed": Catch(Told("ONCE", interrupted_is_asked_about, "agent"), "lost"),
    "damaged receipt is none": Catch(Told("COMPOSITE: ONCE, CONTAINED, ONCE of it", damaged_receipt), "duplicate"),
    "no chain": Catch(Told("composite", cut_receipts), "undetected corruption"),
    # recovery
    "doubt is redone": Catch(Killed("composite", "0@body.after:2"), "duplicate"),
    "contained reuse": Catch(Killed("READ, ONCE, CONTAINED", "0@outcome.after:1"), "it ended with"),
    "no guard": Catch(Killed("perturbed body", "0@outcome.after:1"), "nobody was asked"),
    "decision twice": Catch(Killed("ambiguous, not performed", "1@body.after:1"), "performed twice"),
    "no window": Catch(Killed("KEYED, window may expire", "0@body.after:2", jump_s=100), "duplicate"),
    "old answer read again": Catch(
        Killed("READ with max_age, then IDEMPOTENT", "0@body.after:3", jump_s=100), "diverged"
    ),
    "not performed is final": Catch(Killed("a request that arrives late", "-"), "duplicate"),
    "not asked first": Catch(Killed("siblings, READ then ONCE", "0@body.after:3"), "were entered before the question"),
    "parked goes on": Catch(Killed("ambiguous beside a long way", "-", Parking), "after its process had parked"),
    "savepoint past doubt": Catch(Killed("an end that is swallowed", "-"), "lost: once 0.x was performed"),
    "restart inherits": Catch(Told("composite", restart_begins_anew), "lost"),
    "model asked again": Catch(Killed("ONCE", "0@body.after:2", FaultyAgent), "duplicate: the model was asked"),
    "max_age ignored": Catch(Told("READ with max_age, refused", old_answer), "diverged: an answer of 100 s ago"),
    # owners
    "claim without compare-and-set": Catch(Told("claimants", one_owner, "race"), "double owner"),
    "no fencing": Catch(Told("stop", one_owner, "race"), "double owner"),
    "no lease check": Catch(Told("late", one_owner, "race"), "double owner: a former owner entered a body"),
    "living owner ignored": Catch(Told("beside", held_while_alive, "race"), "double owner"),
    # identity
    "modes left out": Catch(Killed("modes", "0@gap.after:1"), "diverged"),
    "dict order in the hash": Catch(Killed("any order", "0@enter:1", Elsewhere), "hash drift"),
    "clock in the hash": Catch(Killed("any order", "-"), "hash drift"),
    # worlds
    "hard links": Catch(Killed("workspace", "-", Hosted), "leak"),
    "no fork": Catch(Killed("workspace", "-", Hosted), "leak"),
    "shared place": Catch(Told("undeclared", parent_keeps_its_world, "agent"), "leak"),
    "no ctime": Catch(Killed("equal stats", "0@gap.after:2"), "diverged"),
    "merge not journaled": Catch(Told("workspace", half_merged), "leak"),
    # disk
    "full disk swallowed": Catch(Told("much", full_disk), "duplicate"),
    "digest unchecked": Catch(Told("READ, then IDEMPOTENT of it", damaged_result), "undetected corruption"),
    "pack unchecked": Catch(Told("workspace", damaged_world), "undetected corruption"),
    # the power is cut
    "intent not synced": Catch(PowerCut(After("ledger"), "process"), "duplicate"),
    "normal sync": Catch(PowerCut(After("ledger")), "duplicate"),
    "no directory sync": Catch(PowerCut(After("ledger")), "duplicate"),
    "store made in place": Catch(PowerCut(Making(10)), "stuck"),
    "pack not synced": Catch(PowerCut(After("acknowledged")), "stuck"),
    "sync swallowed": Catch(PowerCut(After("acknowledged"), disk="pack"), "stuck"),
    "sync retried": Catch(PowerCut(After("acknowledged"), disk="pack"), "stuck"),
    # agents
    "limit counted anew": Catch(Told("many turns", limit_holds, "agent"), "budget"),
    "approvals revived": Catch(Told("ONCE, approved", fork_asks_itself, "agent"), "duplicate"),
    "last answer wins": Catch(Told("ONCE, approved", first_answer_stands, "agent"), "diverged: one question"),
    # sessions, handoffs, runs inside runs
    "landed twice": Catch(Killed("session", "0@land.after:1", FaultyAgent), "it ended with"),
    "landing not healed": Catch(Told("session", next_run_heals, "agent"), "lost"),
    "mark unchecked": Catch(Told("session", undone_stays_undone, "agent"), "diverged"),
    "transfer in memory": Catch(Killed("handoffs", "0@gap.after:1", FaultyAgent), "the model was asked for"),
    "transfer before the calls beside it": Catch(
        Killed("handoffs", "0@body.before:2", FaultyAgent), "the model was asked for"
    ),
    "nested run begun anew": Catch(Killed("nested", "0@gap.after:1", FaultyAgent), "was performed twice"),
    "nested world not merged": Catch(Killed("nested", "0@end.after:1", FaultyAgent), "it ended with"),
    "inside not asked first": Catch(
        Killed("nested beside others", "0@reply.after:2", FaultyAgent), "were entered before the question"
    ),
}


@frozen
class Grade:
    """What became of one planted fault."""

    name: str
    caught: bool
    verdict: str
    """what was said, the first of it"""
    schedule: str


IN_AGENTS: Mapping[str, Catch] = {
    "no intent": Catch(Killed("COMPOSITE with branches", "0@body.after:2", FaultyAgent), "performed twice"),
    "unordered": Catch(Killed("COMPOSITE", "0@body.after:3", FaultyAgent), "performed twice"),
    "contained reuse": Catch(
        Killed("KEYED, IDEMPOTENT, CONTAINED file", "0@gap.before:1", FaultyAgent), "it ended with"
    ),
    "doubt is redone": Catch(Killed("ONCE", "0@body.after:2", FaultyAgent), "performed twice"),
}
"""Again, where the program is an agent's loop: of these nothing counts for the figure."""
WAYS = tuple(dict.fromkeys(catch.way for catch in (*CAUGHT.values(), *IN_AGENTS.values())))


def graded(bench: Bench, name: str, catch: Catch) -> Grade:
    """Plants one fault and looks for it where it shows."""
    if why := untried(catch.way):
        return Grade(name, caught=False, verdict=why, schedule="")
    seen = catch.way(bench, name)
    fitting = [each for each in seen if catch.words in str(each.what)]
    for shown in (*fitting, *seen):
        return Grade(name, caught=bool(fitting), verdict=str(shown.what), schedule=shown.schedule)
    return Grade(name, caught=False, verdict="nothing was wrong", schedule="")


def untried(way: Way) -> str:
    """Why there is no such way here; empty where there is."""
    why = refused() if isinstance(way, PowerCut) else None
    return f"not tried, no power can be cut: {why}" if why else ""


def grade(heard: Callable[[Grade], None] = lambda _: None) -> list[Grade]:
    """Plants every fault, one after the other; `heard` is told of each."""
    with bench() as place:
        found: list[Grade] = []
        for name in SABOTAGES:
            found.append(graded(place, name, CAUGHT[name]))
            heard(found[-1])
        return found


def figure(grades: Sequence[Grade]) -> str:
    """One line: how many are caught."""
    missed = [each.name for each in grades if not each.caught]
    caught = f"sabotages: {len(grades) - len(missed)} of {len(grades)} caught"
    return f"{caught}; not {', '.join(missed)}" if missed else caught
