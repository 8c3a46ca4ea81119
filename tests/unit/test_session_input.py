"""What bad input and damage get: refused by name, before anything is written."""

from typing import Any

import pytest
from attrs import frozen

from agent import InMemorySession, Reply, StoredSession, User
from agent._entries import TYPES
from agent._message import ToolCall
from effects._failure import Failure
from savepoint import (
    Corrupt,
    Foreign,
    Log,
    MemoryStore,
    Newer,
    NotPortable,
    SavepointError,
    Types,
    Usage,
    dumps,
    loads,
    portable,
)
from savepoint._store import Space


@portable("test/shape")
@frozen(kw_only=True)
class Shape:
    sides: int


def reply(*ids: str) -> Reply:
    return Reply(calls=tuple(ToolCall(id=each, tool="look", arguments="{}") for each in ids))


HELLO = [User(content="hello"), Reply(text="hi")]


async def filled(*, types: Types = TYPES) -> tuple[MemoryStore, StoredSession]:
    store = MemoryStore()
    session = StoredSession(store, types)
    for number in range(3):
        await session.append("u1", HELLO, run_id=f"r{number}", meta={"number": number})
    return store, session


async def rewritten(store: MemoryStore, space: Space, number: int, **fields: object) -> None:
    """Changes fields of a row as somebody who can write to the store could: its digest is right."""
    row = (await store.scan(space))[number]
    async with store.commit() as tx:
        tx.write(space, row.key, dumps({**loads(row.body), **fields}))


BAD_IDS = ["", "x" * 257, "a\nb", "a\0b", "\ud800", 7, None, b"u1"]


@pytest.mark.parametrize("bad", BAD_IDS)
async def test_a_session_id_that_is_none_is_refused_everywhere(bad: Any) -> None:
    store = MemoryStore()
    session = StoredSession(store)

    async def begin() -> None:
        async with store.commit() as tx:
            session.pending(tx, bad, "r")

    tries = [
        lambda: session.append(bad, HELLO),
        lambda: session.land(bad, "r", Log(HELLO), history=0, mark=b""),
        lambda: session.load(bad),
        lambda: session.segments(bad),
        lambda: session.outline(bad),
        lambda: session.footing(bad),
        lambda: session.stands(0, b"", bad),
        lambda: session.rewind(bad, keep_entries=0),
        lambda: session.trim_tool_results(bad),
        lambda: session.clear(bad),
        lambda: session.pending_runs(bad),
        begin,
    ]
    for attempt in tries:
        with pytest.raises(Usage, match="is not a session id") as caught:
            await attempt()
        assert caught.value.next
    assert store._rows == {}


@pytest.mark.parametrize("bad", [each for each in BAD_IDS if each is not None])
async def test_a_run_id_that_is_none_is_refused(bad: Any) -> None:
    session = InMemorySession()
    with pytest.raises(Usage, match="is not a run id"):
        await session.append("u1", HELLO, run_id=bad)
    with pytest.raises(Usage, match="is not a run id"):
        await session.land("u1", bad, Log(HELLO), history=0, mark=b"")
    assert await session.ids() == []


@pytest.mark.parametrize(
    ("entries", "words", "move"),
    [
        ([reply("0.0")], r"call 0\.0 \(look\) of entry 0 has no outcome", "drop_dangling_tool_calls"),
        (["stray"], r"entry 0 \(str\) is an outcome without a call", "drop_dangling_tool_calls"),
        ([reply("0.0"), "a", reply("0.0"), "b"], "has the id of an earlier call", "id"),
        ([reply("0.1"), "a"], "stands at index 0", "id"),
    ],
)
async def test_entries_that_do_not_pair_are_refused_by_name(entries: list[object], words: str, move: str) -> None:
    session = InMemorySession()
    for attempt in (
        lambda: session.append("u1", entries, run_id="r"),
        lambda: session.land("u1", "r", Log(entries), history=0, mark=b""),
    ):
        with pytest.raises(Usage, match=words) as caught:
            await attempt()
        assert move in caught.value.next
    assert await session.ids() == []


async def test_what_is_not_portable_is_refused_with_its_place() -> None:
    session = InMemorySession()
    with pytest.raises(NotPortable, match=r"entries\[2\]"):
        await session.append("u1", [User(content="x"), reply("0.0"), object()])
    with pytest.raises(NotPortable, match=r"meta\.socket"):
        await session.append("u1", HELLO, meta={"socket": object()})
    with pytest.raises(Usage, match="meta"):
        await session.append("u1", HELLO, meta={1: "one"})
    with pytest.raises(Foreign, match="meta"):
        await session.append("u1", HELLO, meta={"shape": Shape(sides=3)})
    assert await session.ids() == []


async def test_an_entry_of_a_kind_that_nobody_knows_is_an_error_of_that_session_alone() -> None:
    store = MemoryStore()
    knowing = StoredSession(store, TYPES | Types([Shape]))
    entries = [User(content="x"), reply("0.0"), Shape(sides=3)]
    await knowing.append("u1", entries, run_id="r1")
    assert list(await knowing.load("u1")) == entries
    other = StoredSession(store)
    await other.append("u2", HELLO)
    for reading in (other.load, other.segments, other.footing):
        with pytest.raises(Foreign, match="test/shape") as caught:
            await reading("u1")
        assert caught.value.next
    assert await other.ids() == ["u1", "u2"]
    assert [info.count for info in await other.outline("u1")] == [3]
    assert list(await other.load("u2")) == HELLO


async def test_a_failed_call_is_an_outcome_that_any_session_knows() -> None:
    session = InMemorySession()
    entries = [User(content="x"), reply("0.0"), Failure(kind="KeyError", message="no")]
    await session.append("u1", entries)
    assert list(await session.load("u1")) == entries


@pytest.mark.parametrize("space", [Space.SESSION, Space.SEGMENT, Space.MEMBER, Space.PENDING])
async def test_a_row_of_a_newer_format_is_refused_and_stays(space: Space) -> None:
    store, session = await filled()
    async with store.commit() as tx:
        session.pending(tx, "u1", "r2")
    await rewritten(store, space, -1, format=2)
    rows = dict(store._rows)
    touched = {
        Space.SESSION: (session.load, session.outline, session.clear),
        Space.SEGMENT: (session.segments, session.outline, session.clear),
        Space.MEMBER: (session.clear, lambda name: session.append(name, HELLO, run_id="r2")),
        Space.PENDING: (session.pending_runs,),
    }
    for attempt in touched[space]:
        with pytest.raises(Newer, match="format 2") as caught:
            await attempt("u1")
        assert "upgrade" in caught.value.next
    assert store._rows == rows


async def test_fields_that_are_not_known_are_kept() -> None:
    store, session = await filled()
    await rewritten(store, Space.SESSION, 0, colour="red")
    await rewritten(store, Space.SEGMENT, 2, colour="green")
    await rewritten(store, Space.MEMBER, 1, colour="blue")
    await session.append("u1", HELLO)
    assert await session.rewind("u1", keep_entries=5) == 3  # inside the third
    assert await session.rewind("u1", keep_entries=2) == 3
    (head,) = await store.scan(Space.SESSION)
    assert loads(head.body)["colour"] == "red"
    members = [loads(row.body) for row in await store.scan(Space.MEMBER)]
    assert [(each["standing"], each.get("colour")) for each in members] == [
        ("landed", None),
        ("rewound", "blue"),
        ("rewound", None),
    ]
    store, session = await filled()
    await rewritten(store, Space.SEGMENT, 2, colour="green")
    assert await session.rewind("u1", keep_entries=5) == 1
    rows = [loads(row.body) for row in await store.scan(Space.SEGMENT)]
    assert [(each.get("colour"), each["meta"]) for each in rows] == [
        (None, {"number": 0}),
        (None, {"number": 1}),
        ("green", {}),
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"start": 1},
        {"count": 3},
        {"count": -2},
        {"count": True},
        {"root": b"x" * 32},
        {"mark": "text"},
        {"meta": []},
        {"format": "1"},
        {"at": None},
        {"run_id": 7},
    ],
)
async def test_a_segment_row_that_does_not_fit_is_damage_and_named(fields: dict[str, object]) -> None:
    store, session = await filled()
    await rewritten(store, Space.SEGMENT, 1, **fields)
    with pytest.raises(Corrupt, match="session 'u1'"):
        await session.segments("u1")
    store, session = await filled()
    await rewritten(store, Space.SEGMENT, 2, **fields)
    with pytest.raises(Corrupt, match="session 'u1'"):
        await session.outline("u1")


async def test_a_flipped_byte_and_a_lost_row_are_named() -> None:
    store, session = await filled()
    (place,) = [place for place in store._rows if place[0] == "segment" and place[1].endswith(b"\1")]
    body, digest = store._rows[place]
    store._rows[place] = (body[:-1] + bytes((body[-1] ^ 1,)), digest)
    for reading in (session.segments, session.outline):
        with pytest.raises(Corrupt, match="row segment"):
            await reading("u1")
    del store._rows[place]
    with pytest.raises(Corrupt, match="session 'u1'"):
        await session.outline("u1")
    with pytest.raises(Corrupt, match="segment 1 of 3 is not there"):
        await session.stands(2, b"12345678", "u1")
    with pytest.raises(Corrupt, match="session 'u1'"):
        await session.rewind("u1", keep_entries=2)
    assert len(await session.load("u1")) == 6  # the entries do not depend on it


async def test_rows_that_are_no_rows_are_damage() -> None:
    for body in (dumps([1]), dumps("x"), dumps(Shape(sides=3)), b"\xff"):
        store, session = await filled()
        row = (await store.scan(Space.SESSION))[0]
        async with store.commit() as tx:
            tx.write(Space.SESSION, row.key, body)
        with pytest.raises(SavepointError):
            await session.load("u1")
        with pytest.raises(Corrupt):
            await session.append("u1", HELLO)


async def test_what_a_rewind_and_a_trim_do_not_take() -> None:
    _, session = await filled()
    for keep in (-1, 1.0, True, None, "2"):
        with pytest.raises(Usage, match="keep_entries"):
            await session.rewind("u1", keep_entries=keep)
        for name in ("keep_chars", "keep_runs"):
            with pytest.raises(Usage, match=name):
                await session.trim_tool_results("u1", **{name: keep})
    assert len(await session.load("u1")) == 6
