"""What changed in an agent since a savepoint was taken, in words: from the two definitions, never from a guess."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from savepoint._errors import Missing
from savepoint._store import Store
from savepoint._stored import get_value
from savepoint._types import Types

Definition = Mapping[str, Any]


async def changes_since(store: Store, fingerprint: str, now: Definition) -> list[str]:
    """What differs between the definition of this digest and `now`, apart from what the run is held to."""
    try:
        before: Definition = await get_value(store, bytes.fromhex(fingerprint), Types())
    except (Missing, ValueError):
        return ["its definition (the former one is not on record, so nothing can be said of what changed)"]
    return list(compare(before, now))


def compare(before: Definition, now: Definition) -> Iterator[str]:
    """The names of what differs."""
    for part in ("name", "instructions", "model", "settings", "handoffs"):
        if before.get(part) != now.get(part):
            yield part
    old, new = _by_name(before), _by_name(now)
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"tool {name}: gone"
        elif name not in old:
            yield f"tool {name}: new"
        elif parts := [part for part in new[name] if old[name].get(part) != new[name][part]]:
            yield f"tool {name}: {', '.join(parts)}"
    if [*old] != [*new] and old.keys() == new.keys():
        yield "the order of the tools"


def _by_name(definition: Definition) -> dict[str, dict[str, object]]:
    tools = cast("list[dict[str, object]]", definition.get("tools", []))
    return {str(each["name"]): each for each in tools}
