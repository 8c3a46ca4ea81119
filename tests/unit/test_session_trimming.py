"""Old tool results become short: what stays, what is archived first, and who can still land."""

import re
from pathlib import Path

import pytest

from agent import (
    Denied,
    Idempotency,
    InMemorySession,
    Reply,
    StoredResults,
    StoredSession,
    Trimmed,
    User,
    recall_tool_result,
)
from agent._entries import SHOWN, TYPES, messages, paired, render
from agent._message import ToolCall, ToolMessage
from effects._failure import Failure
from savepoint import Conflict, Corrupt, MemoryStore, Missing, Usage, dumps, loads, open_store
from savepoint._errors import Stale
from savepoint._store import Space
from savepoint._unit import Unit

LONG = "x" * 1000


def part(*outcomes: object) -> list[object]:
    calls = tuple(ToolCall(id=f"0.{index}", tool="look", arguments="{}") for index in range(len(outcomes)))
    return [User(content="u" * 1000), Reply(text="r" * 1000, calls=calls), *outcomes, Reply(text="done")]


async def filled(*parts: list[object], session: StoredSession | None = None) -> StoredSession:
    session = InMemorySession() if session is None else session
    for number, entries in enumerate(parts):
        await session.append("u1", entries, run_id=f"r{number}", meta={"number": number})
    return session


def short(text: str, keep: int = 400, ref: str = "") -> Trimmed:
    return Trimmed(text=text[:keep], length=len(text), ref=ref)


async def test_outcomes_alone_become_short_and_structure_and_order_stay() -> None:
    outcomes = [LONG, "brief", {"rows": list(range(500))}, Failure(kind="KeyError", message=LONG), Denied(reason="no")]
    session = await filled(part(*outcomes), part(LONG))
    before = await session.outline("u1")
    assert await session.trim_tool_results("u1") == 3
    first, second = await session.segments("u1")
    rows = render({"rows": list(range(500))}, 10_000)
    expected = [short(LONG), "brief", short(rows), short(f"Failed: KeyError: {LONG}"), Denied(reason="no")]
    assert list(first.entries) == part(*expected)
    assert list(second.entries) == part(LONG)  # of the last run
    assert paired(first.entries) == []
    assert [(info.start, info.count, info.meta, info.at) for info in await session.outline("u1")] == [
        (info.start, info.count, info.meta, info.at) for info in before
    ]


async def test_it_is_idempotent_and_can_be_made_shorter_still() -> None:
    session = await filled(part(LONG), part(LONG), part(LONG))
    assert [await session.trim_tool_results("u1") for _ in range(2)] == [2, 0]
    before = await session.load("u1")
    assert await session.trim_tool_results("u1", keep_chars=500) == 0
    assert await session.load("u1") == before
    assert await session.trim_tool_results("u1", keep_chars=10, keep_runs=0) == 3
    assert (await session.load("u1"))[2] == Trimmed(text="x" * 10, length=1000, ref="")
    assert await session.trim_tool_results("u1", keep_chars=0, keep_runs=2) == 1
    assert await session.trim_tool_results("u1", keep_runs=3) == 0
    assert await session.trim_tool_results("nobody") == 0


async def test_a_model_is_told_what_was_cut_and_where_the_rest_is() -> None:
    plain, archived = short(LONG), short(LONG, ref="ab12")
    assert render(plain, SHOWN) == f"{'x' * 400}\n[600 of 1000 characters cut here; they were not kept]"
    said = f"{'x' * 400}\n[600 of 1000 characters cut here; call recall_tool_result with ref ab12 for all of it]"
    assert render(archived, SHOWN) == said
    tool_messages = [each for each in messages(part(archived)) if isinstance(each, ToolMessage)]
    assert tool_messages == [ToolMessage(call_id="0.0", text=said)]
    assert loads(dumps([plain, archived]), types=TYPES) == [plain, archived]


async def test_what_was_archived_comes_back_by_the_ref_that_the_model_sees(tmp_path: Path) -> None:
    async with open_store(tmp_path / "s") as store:
        session = await filled(part(LONG, ["item"] * 200), part("last"), session=StoredSession(store))
        results = StoredResults(store)
        assert await session.trim_tool_results("u1", results=results) == 2
    async with open_store(tmp_path / "s") as store:
        recall = recall_tool_result(StoredResults(store))
        assert (recall.name, recall.idempotency, recall.required) == ("recall_tool_result", Idempotency.READ, ("ref",))
        _, _, one, two, *_ = await StoredSession(store).load("u1")
        for outcome, whole in ((one, LONG), (two, render(["item"] * 200, 10_000))):
            found = re.search(r"with ref (\w+) for", render(outcome, SHOWN))
            assert found is not None
            assert await recall.body(ref=found[1]) == whole
        assert await StoredResults(store).load(two.ref) == ["item"] * 200


async def test_a_ref_that_is_none_is_told_apart_from_one_that_is_gone() -> None:
    results = StoredResults(MemoryStore())
    for bad in ("", "zz", "ab", "A" * 64, None, "0x" + "0" * 62, "00 " * 32):
        with pytest.raises(Usage, match="is not the ref of a result") as caught:
            await results.load(bad)
        assert "64" in caught.value.next
    with pytest.raises(Missing, match="0" * 64):
        await results.load("0" * 64)


async def test_an_archive_that_fails_leaves_the_session_whole() -> None:
    class Full:
        async def save(self, outcome: object) -> str:
            raise OSError("disk full")

        async def load(self, ref: str) -> object:
            raise Missing("nothing is here")

    session = await filled(part(LONG), part("last"))
    with pytest.raises(OSError, match="disk full"):
        await session.trim_tool_results("u1", results=Full())
    assert list(await session.load("u1")) == [*part(LONG), *part("last")]


async def test_a_run_that_began_before_the_trim_lands_behind_it() -> None:
    session = await filled(part(LONG), part("last"))
    footing = await session.footing("u1")
    transcript = footing.history.extend(part("mine"))
    assert await session.trim_tool_results("u1") == 1
    assert await session.stands(len(footing.history), footing.mark, "u1")
    assert await session.land("u1", "mine", transcript, history=len(footing.history), mark=footing.mark) == ""
    assert list(await session.load("u1")) == [*part(short(LONG)), *part("last"), *part("mine")]


async def test_a_repeat_of_what_was_trimmed_is_still_the_same_part() -> None:
    session = await filled(part(LONG), part("last"))
    await session.trim_tool_results("u1")
    assert await session.append("u1", part(LONG), run_id="r0") == ""
    assert "another part" in await session.append("u1", part(short(LONG)), run_id="r0")


async def test_every_segment_can_be_rewound_to_after_a_trim() -> None:
    for keep in range(4, 20):
        session = await filled(*[part(LONG)] * 5)
        await session.trim_tool_results("u1")
        assert await session.rewind("u1", keep_entries=keep) >= 20 - keep
        assert paired(list(await session.load("u1"))[:4]) == []
        assert len(await session.segments("u1")) == len(await session.outline("u1"))


async def test_a_trim_that_somebody_was_faster_than_archives_nothing_twice() -> None:
    class Busy(MemoryStore):
        """Somebody else appends just before the first commit that would trim."""

        armed = False

        async def _apply(self, unit: Unit) -> None:
            if self.armed and any(space is Space.SESSION for space, *_ in unit.expected):
                self.armed = False
                await StoredSession(self).append("u1", part("meanwhile"))
            await super()._apply(unit)

    class Counting:
        def __init__(self) -> None:
            self.saved: list[object] = []

        async def save(self, outcome: object) -> str:
            self.saved.append(outcome)
            return f"ref{len(self.saved)}"

        async def load(self, ref: str) -> object:
            return self.saved[int(ref[3:]) - 1]

    store, results = Busy(), Counting()
    session = await filled(part(LONG), part(LONG + "!"), session=StoredSession(store))
    store.armed = True
    assert await session.trim_tool_results("u1", results=results) == 2  # it was the last run, and is not any more
    assert results.saved == [LONG, LONG + "!"]
    assert len(await session.load("u1")) == 12


async def test_nobody_is_shown_an_internal_error() -> None:
    class Faster(MemoryStore):
        """Somebody else is always faster."""

        async def _apply(self, unit: Unit) -> None:
            raise Stale("somebody else was faster")

    with pytest.raises(Conflict, match="changed by others"):
        await StoredSession(Faster()).append("u1", part("x"))


async def test_damage_to_an_archived_result_is_named() -> None:
    store = MemoryStore()
    results = StoredResults(store)
    ref = await results.save(LONG)
    store._objects[bytes.fromhex(ref)] = (0, b"\x61?")
    with pytest.raises(Corrupt, match=ref):
        await results.load(ref)
