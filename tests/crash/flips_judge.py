"""What is to be thought of a damaged store, of what was read of it, and of how its runs ended: pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from flips_read import PLANS, Content
from small_program import Json

from savepoint.crash._damage import Damage, Hurt, Stock, page_size

EQUAL, NAMED, EARLIER, HIDDEN, WRONG = "equal", "named", "earlier", "hidden", "wrong"


def leaks(content: Mapping[str, Any]) -> list[str]:
    """What was raised without a name or a next move."""
    raised = {name: said for name, said in content.items() if isinstance(said, dict)}
    return [
        f"{name}: {said.get('leak') or 'no next move: ' + said['message']}"
        for name, said in raised.items()
        if "leak" in said or not said["next"]
    ]


def judged(damage: Damage, stock: Stock, whole: Content, earlier: Sequence[Content], seen: Content, found: Any) -> Json:
    """One verdict on what was read of a damaged store, and why."""
    bad = leaks({**seen, "verify": found if isinstance(found, dict) else ""})
    if bad:
        return {"verdict": WRONG, "why": f"raised without a name: {bad[:3]}"}
    raised = {name: f"{said['error']}: {said['message']}" for name, said in seen.items() if isinstance(said, dict)}
    other = [name for name, said in seen.items() if name not in raised and said != whole[name]]
    if other and damage.file.endswith("-wal") and any(is_state(seen, state) for state in earlier):
        return {"verdict": EARLIER, "why": other}
    if other:
        first = other[0]
        why = f"{other} differ: {first}: {seen[first][:600]}; whole: {whole[first][:600]}; verify: {found}"
        return {"verdict": HIDDEN if found and in_page_header(damage, stock) else WRONG, "why": why}
    if raised and not found:
        return {"verdict": WRONG, "why": f"verify finds nothing, and yet {raised}"}
    return {"verdict": NAMED if raised else EQUAL, "why": list(raised.values())[:1], "found": bool(found)}


def in_database(damage: Damage | None) -> bool:
    """Whether the contents of worlds cannot change with it: they lie in packs, and only their names are here."""
    return damage is not None and damage.file.startswith("store.db")


def is_state(seen: Content, state: Content) -> bool:
    """Whether all of it is what an earlier commit left."""
    return {**seen} == {**state}


def in_page_header(damage: Damage, stock: Stock) -> bool:
    """Whether the byte lies in the header of a page: its kind, its free blocks, its count of cells, its fragments."""
    content = stock.contents[damage.file]
    size = page_size(content)
    if damage.how is not Hurt.FLIP or not size:
        return False
    offset = damage.at % size - (100 if damage.at < size else 0)
    return 0 <= offset < 12


def commits(log: bytes) -> list[int]:
    """Where each commit of a write-ahead log ends."""
    if len(log) < 32:
        return []
    size, salts = int.from_bytes(log[8:12], "big"), log[16:24]
    frames = range(32, len(log) - 24 - size + 1, 24 + size)
    return [at + 24 + size for at in frames if log[at + 8 : at + 16] == salts and any(log[at + 4 : at + 8])]


def resumed_wrong(said: Json, reference: Json) -> list[str]:
    """What must not be, whatever was damaged."""
    found = [f"{act} was performed {count} times" for act, count in Counter(said["ledger"]).items() if count > 1]
    if other := set(said["ledger"]) - set(reference["ledger"]):
        found.append(f"{sorted(other)} were performed, and never in a whole store")
    for run in PLANS:
        one = said[run]
        if {**one, "warnings": []} == reference[run]:
            continue
        if "leak" in one:
            found.append(f"{run}: {one['leak']}\n{one['trace']}")
        elif "error" in one:
            found += [] if one["next"] else [f"{run}: no next move: {one['message']}"]
        elif one["status"] == "waiting":
            # It may have gone back to an earlier savepoint, and says so; what was in doubt still is.
            back = one["warnings"] and one["questions"] == reference[run]["questions"]
            found += [] if back or "damaged" in one["questions"] else [f"{run} waits for {one['questions']}"]
        else:
            found.append(f"{run} ended as {one}, whole: {reference[run]}")
    if all("error" not in said[run] and said[run]["status"] == "completed" for run in PLANS):
        missing = Counter(reference["ledger"]) - Counter(said["ledger"])
        found += [f"{act} was never performed" for act in missing]
    return found
