"""What runs must be after any rules of the state machine: plain dicts, told only what the outside saw of each process.

A trail is what a process wrote outside the store as it went: crash points that it reached, steps that it began, values
that it read. What was committed follows from the points behind commits. Nothing here knows how recovery works.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

Json = dict[str, Any]
State = dict[str, Any]
"""`said` (the transcript), `kv`, `files` (name -> text)."""
WINDOW_S = 1000.0
DOUBTFUL = {"o": "send", "k": "machine/pay", "s": "sure", "t": "machine/tool", "g": "gone"}
"""The last part of a tag -> its effect: what is performed at most once."""
LEAVES = {
    "pure": "p", "read": "r", "bump": "b", "line": "l", "idem": "i", "keyed": "k", "once": "o", "sure": "s",
    "tool": "t", "gone": "g", "team": "m", "both": "",
}  # fmt: skip
"""Kind of a step -> the last part of its call's tag."""


def new_run(name: str, script: Sequence[str] = (), first: int = 0, parent: str = "") -> Json:
    """A run that is not there yet. `first`: the program's step at its savepoint 0."""
    return {
        "name": name, "script": [*script], "first": first, "parent": parent, "status": None, "done": first,
        "points": set(), "calls": {}, "at": {}, "landed": [], "touched": set(), "fresh": {}, "read": {}, "asked": set(),
        "said": {}, "failed": set(), "damaged": None, "told": False, "ends": None, "ending": 0, "parked": False,
        "now": first, "extra": set(), "lost": set(), "wanted": "",
    }  # fmt: skip


def forked(parent: Json, name: str, step: int) -> Json:
    """A run that starts at the parent's savepoint `step`, with what was observed and decided up to there."""
    run = new_run(name, parent["script"][:step], step, parent["name"])
    run["origin"] = deepcopy({each: parent[each] for each in ("read", "fresh", "failed", "lost", "name")})
    run["origin"]["origin"] = parent.get("origin")
    run["origin"]["first"] = parent["first"]
    return run


def may_repeat(parent: Json, step: int) -> list[str]:
    """The effects of calls that a fork at `step` may do again."""
    return sorted({DOUBTFUL[tag[-1]] for tag in parent["calls"] if step_of(tag) >= step})


def step_of(tag: str) -> int:
    return int(tag.split(".")[1])


# -- what a process did -----------------------------------------------------------------------------------------------


def lived(run: Json, trail: Sequence[Sequence[Any]], clock_s: float, acts: Mapping[str, Any]) -> None:
    """Brings a run to where its process came. `acts`: what the outside performed, by tag."""
    for word, tag, *more in trail:
        if word in ("create.after", "claim.after"):
            run.update(status="running", landed=[], parked=False, ends=None, ending=0, now=run["first"], wanted="")
            run["points"] |= {run["first"]}
        elif word.endswith(".after") and word not in ("body.after", "fork.after"):
            _commit(run, snapshot=word == "snapshot.after")
            run["wanted"] = "" if word == "intent.after" else run["wanted"]
            _committed(run, word, tag, clock_s, acts)
        else:
            _went(run, word, tag, more)


def _went(run: Json, word: str, tag: str, more: Sequence[Any]) -> None:
    match word:
        case "step":
            run["now"] = step_of(tag)
        case "read":
            run["fresh"][tag] = more[0]
        case "landed":
            run["landed"].append(tag)
        case "stop" | "finish":
            run["ends"] = word
        case "intent.before":
            run["wanted"] = tag
        case "end.before":
            run["ending"] += 1
            run["lost"] |= {tag for tag in run["landed"] if tag[-1] == "t"}
        case _:
            pass


def _committed(run: Json, word: str, tag: str, clock_s: float, acts: Mapping[str, Any]) -> None:
    match word:
        case "intent.after" if tag[-1] in DOUBTFUL:
            _intended(run, tag, clock_s)
        case "settle.after":
            _settled(run, acts)
        case "park.after":
            run["parked"] = True
            run["asked"] |= set(doubts(run))
        case "gap.after":
            _passed(run)
        case "end.after":
            if run["wanted"]:  # there was no room for the intent, and there is for saying that it is withdrawn
                run["touched"].add(step_of(run["wanted"]))
            run["status"] = _ended(run)
        case _:
            pass


def _commit(run: Json, *, snapshot: bool) -> None:
    """What landed becomes durable with whatever is committed next; what changed the world only with a snapshot of it."""
    for tag in [tag for tag in run["landed"] if snapshot or tag[-1] != "t"]:
        run["landed"].remove(tag)
        if tag[-1] in DOUBTFUL:
            run["calls"][tag] = "performed"
        if tag in run["fresh"]:
            run["read"].setdefault(tag, run["fresh"][tag])
        run["touched"].add(step_of(tag))


def _intended(run: Json, tag: str, clock_s: float) -> None:
    """A new try of a call: what was decided of the former one is used up."""
    run["calls"][tag] = "intended"
    run["touched"].add(step_of(tag))
    run["at"][tag] = clock_s
    run["asked"].discard(tag)
    run["said"].pop(tag, None)


def _settled(run: Json, acts: Mapping[str, Any]) -> None:
    for tag in doubts(run):
        said = run["said"].get(tag) or ("performed" if tag in acts else "redo")
        if said != "redo":
            run["calls"][tag] = "performed" if said == "performed" else "failed"
            run["asked"].discard(tag)


def _passed(run: Json) -> None:
    step = run["now"]
    run["done"] = max(run["done"], step + 1)
    if not run["script"][step].endswith("!") and not any(each > step for each in run["touched"]):
        run["points"].add(step + 1)


def _ended(run: Json) -> str:
    if run["ending"] > 1:  # there was no room for more
        return "interrupted"
    if run["ends"] == "finish":
        return "completed"
    return "waiting" if run["parked"] or waits_for(run) else "interrupted"


# -- what must be ----------------------------------------------------------------------------------------------------


def doubts(run: Json) -> list[str]:
    """Tags of calls with an intent and no outcome."""
    return [tag for tag, status in run["calls"].items() if status == "intended"]


def waits_for(run: Json) -> set[str]:
    """Tags that are asked about and not answered. Where receipts were not readable once: `damaged`, and "N EFFECT" for
    calls whose outcome could not be read then.
    """
    open_now = {tag for tag in run["asked"] if tag not in run["said"]}
    return open_now | run["extra"] | ({"damaged"} if run["damaged"] == "open" else set())


def foreseen(run: Json, clock_s: float, acts: Mapping[str, Any]) -> tuple[str, set[str]]:
    """Status and questions after a process that nobody disturbs."""
    if run["status"] == "completed":
        return "completed", set()
    if first := asks_first(run, clock_s):
        return "waiting", first
    for step in range(run["done"], len(run["script"])):
        tag = f"{run['name']}.{step}.g"
        if run["script"][step].startswith("gone") and run["calls"].get(tag) in (None, "intended") and tag not in acts:
            return "waiting", {tag}
    return ("completed" if run["script"][-1:] == ["end"] else "interrupted"), set()


def asks_first(run: Json, clock_s: float) -> set[str]:
    """What must be answered before the program is entered."""
    if run["status"] == "waiting" and waits_for(run):
        return waits_for(run)  # it stands: nobody looks for more
    return waits_for(run) | {tag for tag in doubts(run) if tag not in run["said"] and _unclear(run, tag, clock_s)}


def _unclear(run: Json, tag: str, clock_s: float) -> bool:
    """Whether nobody but the outside can know: no probe, and no remote that still knows the key."""
    return tag[-1] != "s" and not (tag[-1] == "k" and 0 <= clock_s - run["at"][tag] < WINDOW_S)


def state_at(run: Json, step: int) -> State:
    """Transcript and world when `step` begins, by a plain replay of the script."""
    state: State = {"said": [], "kv": {}, "files": {}}
    for number, line in enumerate(run["script"][:step]):
        owner = run
        while number < owner["first"]:
            owner = owner["origin"]
        state["said"].append(_performed(owner, number, line.rstrip("!"), state))
    return state


def _performed(run: Json, step: int, kind: str, state: State) -> Any:
    root, text = f"{run['name']}.{step}", f"{run['name']}.{step}"
    if kind == "both":
        return ["error" if f"{root}.o" in run["failed"] else f"{root}.o![{step}]", _bump(state)]
    tag = f"{root}.{LEAVES[kind]}"
    if tag in run["failed"]:
        return "error"
    if kind == "pure":
        return 2 * step
    if kind == "tool":
        state["files"] |= {} if tag in run["lost"] else {"tool.txt": text}
        return f"{tag}!['{text}']"
    if kind == "team":
        first, seen = _bump(state), _read(run, f"{tag}.r")
        if f"{tag}.o" in run["failed"]:
            return "error"
        return [first, seen, f"{tag}.o!['{seen}']", _line(state, text)]
    if kind in ("read", "bump", "line"):
        return {"read": lambda: _read(run, tag), "bump": lambda: _bump(state), "line": lambda: _line(state, text)}[
            kind
        ]()
    return f"{tag}![{step}]"


def _read(run: Json, tag: str) -> str:
    return run["read"].get(tag, run["fresh"].get(tag))


def _bump(state: State) -> str:
    state["kv"]["n"] = state["kv"].get("n", 0) + 1
    return f"n={state['kv']['n']}"


def _line(state: State, text: str) -> int:
    state["files"]["notes.txt"] = state["files"].get("notes.txt", "") + text + "\n"
    return state["files"]["notes.txt"].count("\n")


def expected_acts(run: Json) -> Iterator[str]:
    """Tags that the outside must have seen: of the steps that are done."""
    for step in range(run["first"], run["done"]):
        kind, root = run["script"][step].rstrip("!"), f"{run['name']}.{step}"
        leaf = {"team": "m.o", "both": "o"}.get(kind, LEAVES.get(kind, ""))
        if leaf[-1:] in {*DOUBTFUL, "i"} and f"{root}.{leaf}" not in run["failed"]:
            yield f"{root}.{leaf}"
