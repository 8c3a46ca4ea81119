"""Fields that this version does not know are kept and ignored: what a newer program wrote is read, and stays as it is."""

from dataclasses import dataclass
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent._entries import TYPES, Denied, Lost, Reply, ToolCall, User, messages, paired
from savepoint import Corrupt, Foreign, Log, MemoryStore, Newer, NotPortable, Usage, _strategies
from savepoint._atoms import ARRAY, MAP, Tag, head, integer, tagged, text
from savepoint._codec import decode, digest, dumps, encode, loads
from savepoint._portable import is_immutable, normalise, portable, same
from savepoint._stored import get_value, put_value
from savepoint._types import Types, UnknownFields


@portable("test/note", keeps="unknown")
@attrs.frozen(kw_only=True)
class Note:
    text: Any
    to: Any = None
    unknown: UnknownFields = ()


@portable("test/note")
@attrs.frozen(kw_only=True)
class Closed:
    text: Any
    to: Any = None


@portable("test/loose", keeps="rest")
@dataclass
class Loose:
    """One that can be changed, with a `__dict__`."""

    text: Any
    rest: UnknownFields = ()


NOTES = Types([Note, Loose])
OURS = {"text", "to"}


def bytes_of(name: str, fields: dict[str, object], *, version: int = 1, order: list[str] | None = None) -> bytes:
    """What a program whose class has exactly these fields writes."""
    keys = sorted(fields, key=text) if order is None else order
    body = b"".join(text(key) + dumps(fields[key]) for key in keys)
    return tagged(Tag.RECORD) + head(ARRAY, 3) + text(name) + integer(version) + head(MAP, len(keys)) + body


names = st.text(max_size=6)
unknown = st.dictionaries(names.filter(lambda name: name not in OURS), _strategies.values(), max_size=4)


@given(unknown, _strategies.values())
def test_what_a_newer_class_wrote_comes_back_as_the_same_bytes(fields: dict[str, object], value: object):
    data = bytes_of("test/note", {"text": value, "to": 1, **fields})
    note = loads(data, types=NOTES)
    assert same(note.text, value)
    assert [name for name, _ in note.unknown] == sorted(fields, key=text)
    assert all(same(item, fields[name]) for name, item in note.unknown)
    assert dumps(note) == data
    assert same(loads(dumps([note]), types=NOTES), [note])
    assert same(normalise(note), note)
    assert digest(normalise(note)) == digest(note)


@given(_strategies.values())
def test_without_unknown_fields_the_bytes_are_those_of_a_class_that_keeps_none(value: object):
    assert dumps(Note(text=value)) == dumps(Closed(text=value)) == bytes_of("test/note", {"text": value, "to": None})
    assert loads(dumps(Closed(text=1)), types=NOTES) == Note(text=1)


@given(unknown.filter(bool))
def test_unknown_fields_are_content(fields: dict[str, object]):
    kept = loads(bytes_of("test/note", {"text": "a", "to": None, **fields}), types=NOTES)
    assert not same(kept, Note(text="a"))
    assert digest(kept) != digest(Note(text="a"))
    with pytest.raises(Foreign, match="other fields than"):
        loads(dumps(kept), types=Types([Closed]))


@given(unknown.filter(bool))
def test_what_is_kept_makes_an_instance_as_mutable_as_it_is(fields: dict[str, object]):
    data = bytes_of("test/note", {"text": "a", "to": None, **fields})
    note = loads(data, types=NOTES)
    assert is_immutable(note) == all(map(is_immutable, fields.values()))
    assert is_immutable(note) or normalise(note) is not note


def test_what_is_immutable_and_normal_is_not_copied():
    note = loads(bytes_of("test/note", {"text": "a", "to": None, "zz": (1, "b")}), types=NOTES)
    assert normalise(note) is note


def test_a_kept_value_is_copied_like_any_other():
    held = [1]
    note = Note(text="a", unknown=(("list", held),))
    copy = normalise(note)
    held.append(2)
    assert copy.unknown == (("list", [1]),)


def test_a_class_that_can_be_changed_keeps_them_too():
    data = bytes_of("test/loose", {"text": "a", "rest": 1, "zz": [2]})
    loose = loads(data, types=NOTES)
    assert loose == Loose("a", rest=(("zz", [2]), ("rest", 1)))
    assert dumps(loose) == data
    assert normalise(loose) is not loose


@pytest.mark.parametrize(
    ("order", "error"),
    [
        (["to", "text"], None),
        (["to", "text", "zzzzz"], None),
        (["text", "to", "zzzzz"], Corrupt),  # not canonical
        (["zzzzz", "to", "text"], Corrupt),
        (["to", "text", "zzzzz", "zzzzz"], Corrupt),  # repeated
        (["to", "to", "text", "zzzzz"], Corrupt),
        (["to", "zzzzz"], Foreign),  # a known one is missing
        (["zzzzz"], Foreign),
        ([], Foreign),
    ],
)
def test_only_the_canonical_bytes_are_read(order: list[str], error: type[Exception] | None):
    data = bytes_of("test/note", {"text": 1, "to": 2, "zzzzz": 3}, order=order)
    if error is None:
        assert dumps(loads(data, types=NOTES)) == data
    else:
        with pytest.raises(error):
            loads(data, types=NOTES)


def test_a_field_without_a_name_is_damage():
    data = tagged(Tag.RECORD) + head(ARRAY, 3) + text("test/note") + integer(1) + head(MAP, 3)
    data += integer(5) + integer(0) + text("to") + integer(0) + text("text") + integer(0)
    with pytest.raises(Corrupt, match="without names"):
        loads(data, types=NOTES)


def test_another_version_is_refused_whatever_its_fields():
    with pytest.raises(Newer):
        loads(bytes_of("test/note", {"text": 1, "to": 2}, version=2), types=NOTES)
    with pytest.raises(Foreign, match="nothing is registered"):
        loads(bytes_of("test/other", {"text": 1, "to": 2}), types=NOTES)


@pytest.mark.parametrize(
    "kept",
    [
        (("text", 1),),  # a name of a field
        (("zz", 1), ("a", 2)),  # out of order
        (("a", 1), ("a", 2)),
        (("a", 1, 2),),
        ((1, 2),),
        ("ab",),
        [("a", 1)],
        {"a": 1},
        (("\ud800", 1),),
    ],
)
def test_what_no_reader_would_have_kept_is_not_written(kept: Any):
    with pytest.raises(NotPortable) as refused:
        dumps([Note(text=1, unknown=kept)])
    assert refused.value.path == "value[0].unknown"


def test_the_path_of_an_offender_leads_into_what_is_kept():
    with pytest.raises(NotPortable) as refused:
        dumps(Note(text=1, unknown=(("a", [object()]),)))
    assert refused.value.path == "value.a[0]"


def test_a_class_says_where_it_keeps_them():
    for keeps, fields in (("unknown", {}), ("unknown", {"unknown": attrs.field(default=None)})):
        made = attrs.make_class("Made", {"x": attrs.field(), **fields}, frozen=True)
        with pytest.raises(Usage, match="keep unknown fields"):
            portable("test/made", keeps=keeps)(made)


def test_a_migration_sees_them():
    older = bytes_of("test/grown", {"text": "a", "zz": 1})

    @portable("test/grown", version=2, keeps="unknown")
    @attrs.frozen
    class Grown:
        text: str
        to: str
        unknown: UnknownFields = ()

    types = Types([Grown], migrations={("test/grown", 1): lambda fields: {**fields, "to": "b"}})
    assert loads(older, types=types) == Grown("a", "b", (("zz", 1),))


ENTRIES: list[tuple[str, dict[str, object], Any]] = [
    ("agent/user", {"content": "hi"}, User(content="hi")),
    ("agent/reply", {"text": "hi", "calls": ()}, Reply(text="hi")),
    ("agent/tool-call", {"id": "0.0", "tool": "t", "arguments": "{}"}, ToolCall(id="0.0", tool="t", arguments="{}")),
    ("agent/denied", {"reason": "no"}, Denied(reason="no")),
    ("agent/lost", {"note": "gone"}, Lost(note="gone")),
]


@pytest.mark.parametrize(("name", "fields", "entry"), ENTRIES, ids=lambda each: each if isinstance(each, str) else "")
@given(unknown=st.dictionaries(names.map(lambda name: f"new {name}"), _strategies.values(), max_size=3))
def test_entries_of_a_newer_program_are_read_and_kept(
    name: str, fields: dict[str, object], entry: Any, unknown: dict[str, object]
):
    assert dumps(entry) == bytes_of(name, fields)
    data = bytes_of(name, {**fields, **unknown})
    found = loads(data, types=TYPES)
    assert attrs.evolve(found, unknown=()) == entry
    assert dumps(found) == data


async def test_a_transcript_with_unknown_fields_goes_through_a_store():
    call = ToolCall(id="0.0", tool="t", arguments="{}", unknown=(("place", {"line": 3}),))
    entries = [
        User(content="hi", unknown=(("mood", "good"),)),
        Reply(text="so", calls=(call,), unknown=(("language", "en"),)),
        Denied(reason="no", unknown=(("by", "ada"),)),
        Reply(text="done"),
    ]
    store = MemoryStore()
    value = encode(Log(entries))
    async with store.commit() as tx:
        put_value(tx, value, store)
    fresh = MemoryStore()  # whose shelf does not know the log
    fresh._objects = store._objects
    found = await get_value(fresh, value.digest, TYPES)
    assert list(found) == entries
    assert encode(found).digest == value.digest
    assert paired(list(found)) == []
    plain = [attrs.evolve(each, unknown=()) for each in entries]
    plain[1] = attrs.evolve(plain[1], calls=(attrs.evolve(call, unknown=()),))
    assert [type(each) for each in messages(list(found))] == [type(each) for each in messages(plain)]


def test_linked_bytes_keep_them_as_well():
    note = Note(text=Log([1]), unknown=(("log", Log([2])),))
    value = encode(note)
    assert len(value.logs) == 2
    again = decode(value.body, types=NOTES, logs={log.root: log for log in value.logs})
    assert encode(again).digest == value.digest
