"""What a run is held to: given at its start, kept in its record, and in force for every attempt, agent and nested run."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from attrs import evolve, field, frozen

from effects import Idempotency
from savepoint._errors import Usage
from savepoint._run import RunRecord

from ._graph import Graph

META = "held"


@frozen(kw_only=True)
class Wanted:
    """What a caller asks for; None holds what held before."""

    max_turns: int | None = None
    allowed_tools: Iterable[str] | None = None
    read_only: bool | None = None
    classes: Mapping[str, Idempotency | str] | None = None


@frozen(kw_only=True)
class Held:
    """The limits of one run."""

    max_turns: int
    allowed_tools: tuple[str, ...] | None = None
    """sorted; None: all"""
    read_only: bool = False
    """what is changed in the run's world is undone"""
    classes: Mapping[str, Idempotency] = field(factory=dict[str, Idempotency])
    """idempotency classes that effects have in this run instead of their own"""

    def allows(self, tool: str) -> bool:
        return self.allowed_tools is None or tool in self.allowed_tools

    @property
    def plain(self) -> dict[str, object]:
        """What a record keeps beside the number of turns, and a fingerprint names; empty where nothing is held."""
        found: dict[str, object] = {}
        if self.allowed_tools is not None:
            found["allowed_tools"] = list(self.allowed_tools)
        if self.read_only:
            found["read_only"] = True
        if self.classes:
            found["classes"] = {name: each.value for name, each in sorted(self.classes.items())}
        return found

    @property
    def meta(self) -> dict[str, object]:
        """As a run's record keeps it."""
        return {"max_turns": self.max_turns, **({META: self.plain} if self.plain else {})}

    def within(self, outer: "Held") -> "Held":
        """Of a run inside another one, as that one is held now."""
        return evolve(self, allowed_tools=outer.allowed_tools, classes=outer.classes)

    def changed(self, wanted: Wanted, graph: Graph) -> "Held":
        """With what is asked for. Raises `Usage` for tools and classes that the graph does not know, and no number."""
        allowed, classes = wanted.allowed_tools, wanted.classes
        return evolve(
            self,
            max_turns=self.max_turns if wanted.max_turns is None else _a_number(wanted.max_turns),
            allowed_tools=self.allowed_tools if allowed is None else _known_tools(allowed, graph),
            read_only=self.read_only if wanted.read_only is None else wanted.read_only,
            classes=self.classes if classes is None else _known_classes(classes, graph),
        )


def held_by(record: RunRecord, graph: Graph) -> Held:
    """What the record says."""
    limit = record.meta.get("max_turns")
    plain = cast("dict[str, Any]", record.meta.get(META, {}))
    allowed: list[str] | None = plain.get("allowed_tools")
    return Held(
        max_turns=limit if isinstance(limit, int) else graph.entry.max_turns,
        allowed_tools=None if allowed is None else tuple(allowed),
        read_only=bool(plain.get("read_only")),
        classes={name: Idempotency(each) for name, each in plain.get("classes", {}).items()},
    )


def widened(record: RunRecord, before: Held, after: Held) -> dict[str, object] | None:
    """The record's `meta` with who changed what it is held to, from which attempt on; None where nothing changed."""
    changes = {
        name: [_plain(getattr(before, name)), _plain(getattr(after, name))]
        for name in ("max_turns", "allowed_tools", "read_only", "classes")
        if getattr(before, name) != getattr(after, name)
    }
    if not changes:
        return None
    former = cast("list[object]", record.meta.get("widened", []))
    meta = {name: value for name, value in record.meta.items() if name != META}
    return {**meta, **after.meta, "widened": [*former, {"attempt": record.attempts + 1, "changes": changes}]}


def _plain(value: object) -> object:
    match value:
        case tuple():
            return list(cast("tuple[object, ...]", value))
        case Mapping():
            return {name: str(each) for name, each in cast("Mapping[str, object]", value).items()}
        case _:
            return value


def _a_number(turns: int) -> int:
    if type(turns) is not int or turns < 1:
        raise Usage(f"max_turns={turns!r}: not a number of model replies", next="give 1 or more")
    return turns


def _known_tools(names: Iterable[str], graph: Graph) -> tuple[str, ...]:
    wanted = (names,) if isinstance(names, str) else tuple(names)
    for name in wanted:
        if name not in graph.tools:
            known = ", ".join(sorted(graph.tools)) or "none"
            raise Usage(f"allowed_tools names {name!r}, which no agent has", next=f"the tools are: {known}")
    return tuple(sorted(set(wanted)))


def _known_classes(classes: Mapping[str, Idempotency | str], graph: Graph) -> dict[str, Idempotency]:
    effects = {each.name: each for agent in graph.agents.values() for each in (*agent.tools, *agent.effects)}
    found: dict[str, Idempotency] = {}
    for name, wanted in classes.items():
        if name not in effects:
            raise Usage(f"classes names {name!r}, which no agent has", next=f"known: {', '.join(sorted(effects))}")
        try:
            found[name] = Idempotency(wanted)
        except ValueError:
            raise Usage(f"{wanted!r} is no idempotency class", next=f"one of: {', '.join(Idempotency)}") from None
        effects[name].reclassified(found[name])  # raises where it cannot have that class
    return found
