"""Names, versions and migrations: what is built on reading, and what is refused before anything is built."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import attrs
import pytest

from savepoint._codec import dumps, loads
from savepoint._errors import Corrupt, Foreign, Newer, Usage
from savepoint._portable import portable
from savepoint._types import Types


def person(version: int, *names: str, name: str = "test/person") -> type[Any]:
    return portable(name, version=version)(attrs.make_class("Person", list(names), frozen=True))


OLD = person(1, "name")
NEW = person(3, "first", "last")
MIGRATIONS = {
    ("test/person", 1): lambda fields: {"first": fields["name"], "family": ""},
    ("test/person", 2): lambda fields: {"first": fields["first"], "last": fields["family"]},
}


def test_migrations_are_applied_one_version_after_the_other():
    built = loads(dumps([OLD("Ada")]), types=Types([NEW], migrations=MIGRATIONS))
    assert built == [NEW("Ada", "")]
    assert type(built[0]) is NEW


def test_a_missing_or_failing_migration_is_foreign():
    stored = dumps(OLD("Ada"))
    with pytest.raises(Foreign, match="no migration"):
        loads(stored, types=Types([NEW]))
    failing = {**MIGRATIONS, ("test/person", 2): lambda fields: fields["nothing"]}
    with pytest.raises(Foreign, match="from version 2 failed"):
        loads(stored, types=Types([NEW], migrations=failing))
    wrong = {**MIGRATIONS, ("test/person", 2): lambda fields: {"first": 1}}
    with pytest.raises(Foreign, match="has the fields"):
        loads(stored, types=Types([NEW], migrations=wrong))


def test_unknown_names_and_newer_versions_build_nothing():
    built = []

    @portable("test/loud", version=2)
    @attrs.frozen
    class Loud:
        x: int

        def __attrs_post_init__(self) -> None:
            built.append(self.x)

    older = portable("test/loud", version=1)(attrs.make_class("Loud", ["x"]))
    stored = dumps(Loud(1))
    built.clear()
    with pytest.raises(Foreign, match="nothing is registered as 'test/loud'"):
        loads(stored)
    with pytest.raises(Newer, match="version 2, known is 1"):
        loads(stored, types=Types([older]))
    assert built == []


def test_validators_see_stored_data():
    @portable("test/person")
    @attrs.frozen
    class Strict:
        name: str = attrs.field(validator=attrs.validators.instance_of(str))

    with pytest.raises(Foreign, match="does not accept"):
        loads(dumps(OLD(5)), types=Types([Strict]))


def test_other_fields_in_the_same_version_are_foreign():
    for fields in (["nam"], ["name", "x"], [], ["a", "name"]):
        with pytest.raises(Foreign, match="other fields than"):
            loads(dumps(OLD("a")), types=Types([person(1, *fields)]))


def test_a_class_whose_init_changes_its_fields_is_refused_not_altered():
    @portable("test/person")
    @attrs.frozen
    class Growing:
        name: int = attrs.field(converter=lambda n: n + 1)

    with pytest.raises(Foreign, match="changed by the class's own __init__"):
        loads(dumps(Growing(1)), types=Types([Growing]))


def test_registries_fail_when_they_are_built():
    with pytest.raises(Usage, match="names both"):
        Types([OLD, NEW])
    with pytest.raises(Usage, match="names both"):
        Types([OLD]) | Types([NEW])
    with pytest.raises(Usage, match="no stable name"):
        Types([int])
    with pytest.raises(Usage, match="leads to no registered class"):
        Types([OLD], migrations=MIGRATIONS)
    both = Types([NEW], migrations=MIGRATIONS)
    assert loads(dumps(OLD("x")), types=both | both | Types([person(1, "a", name="test/other")])) == NEW("x", "")
    with pytest.raises(Usage, match="two migrations"):
        both | Types([NEW], migrations={("test/person", 1): lambda fields: fields})


def test_only_fitting_classes_can_be_named():
    with pytest.raises(Usage, match="no enum, attrs class or dataclass"):
        portable("test/x")(type("Plain", (), {}))

    @dataclass
    class Odd:
        x: int

        def __init__(self) -> None:
            self.x = 1

    with pytest.raises(Usage, match="cannot be built"):
        portable("test/x")(Odd)
    for name, version in (("", 1), ("a", 0)):
        with pytest.raises(Usage):
            portable(name, version=version)


def test_subclasses_do_not_inherit_the_name():
    with pytest.raises(Usage, match="no stable name"):
        Types([type("Child", (OLD,), {})])


def test_enum_members_are_stored_by_name_and_can_be_migrated():
    old = portable("test/colour")(Enum("Colour", {"RED": 1, "GREY": 2}))
    new = portable("test/colour", version=2)(Enum("Colour", {"RED": 9, "GRAY": 3, "ROSSO": 9}))

    def renamed(fields: dict[str, object]) -> dict[str, object]:
        return {"member": "GRAY"} if fields["member"] == "GREY" else fields

    types = Types([new], migrations={("test/colour", 1): renamed})
    assert loads(dumps([*old]), types=types) == [new.RED, new.GRAY]
    with pytest.raises(Foreign, match="no member 'GREY'"):
        loads(dumps(old.GREY), types=Types([portable("test/colour")(Enum("Colour", {"RED": 1}))]))
    aliased = dumps(new.RED).replace(b"\x63RED", b"\x65ROSSO")
    with pytest.raises(Foreign, match="no member 'ROSSO'"):
        loads(aliased, types=Types([new]))


def test_a_record_is_no_enum():
    colour = portable("test/person")(Enum("Colour", {"RED": 1}))
    with pytest.raises(Foreign, match="is an enum here"):
        loads(dumps(OLD(1)), types=Types([colour]))
    with pytest.raises(Foreign, match="is a record here"):
        loads(dumps(colour.RED), types=Types([OLD]))


def test_version_zero_is_corrupt():
    with pytest.raises(Corrupt):
        loads(dumps(OLD(1)).replace(b"test/person\x01", b"test/person\x00"), types=Types([OLD]))


def test_a_user_class_cannot_take_the_name_of_a_savepoint():
    with pytest.raises(Usage, match="project's own"):
        portable("savepoint/form")(Enum("Form", {"RED": 1}))
