"""Stable names for user classes, and the explicit registry without which no stored class is ever built.

A class is stored under a name and a version that its author chose, never under its import path.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cached_property
from typing import TypeVar, cast

import attrs
from attrs import field, frozen

from ._atoms import ARRAY, MAP, Tag, head, integer, tagged, text
from ._errors import Corrupt, Foreign, Newer, SavepointError, Usage

C = TypeVar("C", bound=type)
Fields = dict[str, object]
Migration = Callable[[Fields], Fields]
"""Takes the fields that a version stored (of an enum: `{"member": name}`), returns those of the next version."""

UnknownFields = tuple[tuple[str, object], ...]
"""Fields that a class does not know: name and value, in canonical order, so that an instance stays immutable."""

MARK = "__portable__"
RESERVED = frozenset({"effects", "savepoint", "agent"})


@frozen(kw_only=True, eq=False)
class Plan:
    """How one class is taken apart and built again."""

    cls: type
    name: str
    version: int
    enum: bool = False
    fields: tuple[str, ...] = ()
    """attribute names in canonical order; an enum has none"""
    arguments: Mapping[str, str] = field(factory=dict[str, str])
    """attribute name -> parameter of `__init__`"""
    immutable: bool
    """instances cannot be assigned to (their fields may still hold something mutable)"""
    direct: bool = False
    """every field is a parameter of its own name"""
    derived: frozenset[str] = frozenset()
    """names that an instance's `__dict__` may hold beside the fields: cached properties"""
    start: bytes
    """the canonical bytes before the fields of every instance (of an enum: before the member's name)"""
    keys: tuple[tuple[str, bytes], ...] = ()
    """each field with the bytes of its key, in canonical order"""
    keeps: str = ""
    """the attribute that keeps fields which this version does not know; empty: there must be none"""
    keeper: str = ""
    """its parameter of `__init__`"""

    def surplus(self, value: object) -> str | None:
        """An attribute of this instance that is no field and would be lost, if there is one."""
        held: Mapping[str, object] = getattr(value, "__dict__", {})
        if len(held) <= len(self.fields) and held.keys() <= self.arguments.keys():
            return None
        return next((name for name in held if name not in self.arguments and name not in self.derived), None)

    def build(self, fields: Fields) -> object:
        """An instance with exactly these fields, through `__init__`, so that its validators see stored data too."""
        unknown: UnknownFields = ()
        if fields.keys() != self.arguments.keys():
            unknown = self._unknown(fields)
            fields = {name: fields[name] for name in self.arguments}
        taken = fields if self.direct else {a: fields[name] for name, a in self.arguments.items() if a}
        try:
            built: object = self.cls(**taken, **{self.keeper: unknown}) if unknown else self.cls(**taken)
            if len(taken) < len(fields):  # not all are parameters of `__init__`
                for name in (name for name, argument in self.arguments.items() if not argument):
                    object.__setattr__(built, name, fields[name])
        except Exception as error:
            raise Foreign(f"{self.name} does not accept these fields: {error}") from error
        self._check_kept(built, {**fields, self.keeps: unknown} if unknown else fields)
        return built

    def _unknown(self, fields: Fields) -> UnknownFields:
        """The fields that this version does not know, in canonical order. Raises `Foreign` where it cannot keep them."""
        if not self.keeps or not fields.keys() >= self.arguments.keys():
            raise Foreign(
                f"{self.name!r} version {self.version} has the fields {sorted(self.arguments)}, stored are other fields than"
                f" these: {sorted(fields)}",
                next="raise the version of the class and register a migration",
            )
        return tuple((name, fields[name]) for name in canonical(fields.keys() - self.arguments.keys()))

    def _check_kept(self, built: object, fields: Fields) -> None:
        for name, wanted in fields.items():
            kept: object = getattr(built, name)
            if kept is not wanted and (type(kept) is not type(wanted) or kept != wanted):
                raise Foreign(f"{self.name}.{name} is changed by the class's own __init__", next="make it idempotent")

    def member(self, fields: Fields) -> Enum:
        """The enum member of this name."""
        name = fields.get("member")
        found = cast("type[Enum]", self.cls).__members__.get(name) if isinstance(name, str) else None
        if found is None or found.name != name:  # an alias has its member's name, so it would not encode to itself
            raise Foreign(f"{self.name} has no member {name!r}", next="register a migration that maps it")
        return found


def plan_of(cls: type) -> Plan | None:
    """The plan of this very class; subclasses do not inherit it, they may hold more than it knows."""
    plan: Plan | None = cls.__dict__.get(MARK)
    return plan if plan is not None and plan.cls is cls else None


def portable(name: str, *, version: int = 1, keeps: str = "") -> Callable[[C], C]:
    """Gives an enum, attrs class or dataclass its stable name; stands above the decorator that makes the class.

    `keeps` names an attribute of the class (`UnknownFields`, `()` by default): fields of stored instances that this
    class does not know are kept there, and are written back as fields of the instance itself. Without it they are
    `Foreign`. A later program adds a field that earlier ones may ignore in the same way, as a property over that
    attribute, so that instances without it keep their bytes.

    Raises `Usage` for other classes, for those that their own fields cannot build, and for a name that begins like this
    project's own (`savepoint/`, ...): no user value may have the bytes of a savepoint.
    """
    if not name or not name.isprintable() or version < 1:
        raise Usage(f"portable({name!r}, version={version}): a printable name and a version of at least 1 are needed")

    def mark(cls: C) -> C:
        if name.partition("/")[0] in RESERVED and cls.__module__.partition(".")[0] not in RESERVED:
            raise Usage(f"{name!r} is a name of this project's own", next="begin it with a name of yours")
        plan = (_enum_plan if issubclass(cls, Enum) else _record_plan)(cls, name, version, keeps)
        setattr(cls, MARK, plan)
        return cls

    return mark


def canonical(names: Iterable[str]) -> list[str]:
    """Names of fields in the order of their bytes."""
    return sorted(names, key=lambda name: (len(name.encode()), name.encode()))


def _enum_plan(cls: type, name: str, version: int, keeps: str) -> Plan:
    if keeps:
        raise Usage(f"{cls.__name__} is an enum: its members have no fields to keep")
    start = stem(Tag.MEMBER, name, version)
    return Plan(cls=cls, name=name, version=version, enum=True, immutable=True, start=start)


def stem(tag: Tag, name: str, version: int) -> bytes:
    """The canonical bytes of an instance up to its version."""
    return tagged(tag) + head(ARRAY, 3) + text(name) + integer(version)


def _record_plan(cls: type, name: str, version: int, keeps: str) -> Plan:
    if "__attrs_attrs__" in cls.__dict__:
        defaults: dict[str, object] = {f.name: f.default for f in attrs.fields(cls)}
        arguments = {f.name: f.alias or f.name if f.init else "" for f in attrs.fields(cls)}
        immutable = attrs.inspect(cls).is_frozen
    elif "__dataclass_fields__" in cls.__dict__:
        defaults = {f.name: f.default for f in dataclasses.fields(cls)}
        arguments = {f.name: f.name if f.init else "" for f in dataclasses.fields(cls)}
        immutable = cls.__dict__["__dataclass_params__"].frozen
    else:
        raise Usage(
            f"{cls.__name__} is no enum, attrs class or dataclass",
            next="put @portable above the decorator that makes it one",
        )
    keeper = arguments.pop(keeps, "") if keeps else ""
    if keeps and (not keeper or defaults[keeps] != ()):
        raise Usage(
            f"{cls.__name__} has no attribute {keeps!r} to keep unknown fields in",
            next=f"give it one: {keeps}: UnknownFields = ()",
        )
    _check_buildable(cls, [argument for argument in arguments.values() if argument])
    derived = {n for base in cls.__mro__ for n, v in vars(base).items() if isinstance(v, cached_property)}
    fields = tuple(canonical(arguments))
    return Plan(
        cls=cls,
        name=name,
        version=version,
        fields=fields,
        start=stem(Tag.RECORD, name, version) + head(MAP, len(fields)),
        keys=tuple((field_name, text(field_name)) for field_name in fields),
        arguments=arguments,
        immutable=immutable,
        direct=all(name == argument for name, argument in arguments.items()),
        derived=frozenset(derived | {"__orig_class__", *([keeps] if keeps else ())}),
        keeps=keeps,
        keeper=keeper,
    )


def _check_buildable(cls: type, arguments: Iterable[str]) -> None:
    try:
        inspect.signature(cls).bind(**dict.fromkeys(arguments))
    except TypeError as error:
        raise Usage(f"{cls.__name__} cannot be built from its own fields: {error}") from error


def _index(classes: Iterable[type]) -> dict[str, Plan]:
    plans: dict[str, Plan] = {}
    for cls in classes:
        plan = plan_of(cls)
        if plan is None:
            raise Usage(f"{cls.__name__} has no stable name", next=f"decorate it: @portable({cls.__name__.lower()!r})")
        if plan.name in plans:
            raise Usage(f"{plan.name!r} names both {plans[plan.name].cls.__name__} and {cls.__name__}")
        plans[plan.name] = plan
    return plans


class Types:
    """The classes that loading may build, and the migrations from their older versions. Immutable; `a | b` joins two.

    `migrations[name, version]` turns the fields that this version stored into those of `version + 1`.
    Raises `Usage` for classes without a stable name, duplicate names and migrations of nothing.
    """

    __slots__ = ("_migrations", "_plans", "starts")

    def __init__(
        self, classes: Iterable[type] = (), *, migrations: Mapping[tuple[str, int], Migration] | None = None
    ) -> None:
        self._plans = _index(classes)
        self._migrations = dict(migrations or {})
        self.starts = {plan.start: plan for plan in self._plans.values() if not plan.enum}
        """The current record classes, by what all their instances' bytes begin with."""
        for name, version in self._migrations:
            if name not in self._plans or not 1 <= version < self._plans[name].version:
                raise Usage(f"the migration of {name!r} from version {version} leads to no registered class")

    def __or__(self, other: "Types") -> "Types":
        classes = dict.fromkeys(plan.cls for plan in (*self._plans.values(), *other._plans.values()))
        for key in self._migrations.keys() & other._migrations.keys():
            if self._migrations[key] is not other._migrations[key]:
                raise Usage(f"two migrations of {key[0]!r} from version {key[1]}")
        return Types(classes, migrations=self._migrations | other._migrations)

    def __eq__(self, other: object) -> bool:
        """Whether both read every value alike: the same classes (not just equal names) and migrations."""
        if not isinstance(other, Types):
            return NotImplemented
        return self._plans == other._plans and self._migrations == other._migrations

    def __hash__(self) -> int:
        return hash(frozenset(self._plans))

    def __repr__(self) -> str:
        return f"Types({', '.join(sorted(self._plans))})"

    def record(self, name: str, version: int, fields: Fields) -> object:
        """What was stored under this name. Raises `Foreign` (unknown, does not fit) and `Newer`; builds nothing then."""
        plan, fields = self._upgraded(name, version, fields)
        if plan.enum:
            raise Foreign(f"{name!r} is an enum here, a record is stored")
        return plan.build(fields)

    def member(self, name: str, version: int, member: str) -> Enum:
        """The enum member stored under this name. Raises as `record` does."""
        plan, fields = self._upgraded(name, version, {"member": member})
        if not plan.enum:
            raise Foreign(f"{name!r} is a record here, an enum is stored")
        return plan.member(fields)

    def _upgraded(self, name: str, version: int, fields: Fields) -> tuple[Plan, Fields]:
        plan = self._plans.get(name)
        if plan is None:
            raise Foreign(
                f"nothing is registered as {name[:100]!r}", next="add its class to the Types given to the reader"
            )
        if version > plan.version:
            raise Newer(f"{name!r} was stored in version {version}, known is {plan.version}", next="upgrade")
        if version < 1:
            raise Corrupt(f"{name!r} was stored in version {version}")
        for old in range(version, plan.version):
            fields = self._migrate(name, old, fields)
        return plan, fields

    def _migrate(self, name: str, old: int, fields: Fields) -> Fields:
        migration = self._migrations.get((name, old))
        if migration is None:
            raise Foreign(
                f"{name!r} was stored in version {old}, and there is no migration from it", next="register one in Types"
            )
        try:
            return dict(migration(dict(fields)))
        except SavepointError:
            raise
        except Exception as error:
            raise Foreign(f"the migration of {name!r} from version {old} failed: {error}") from error
