"""How a run's part lands: nothing is written twice, once for each run id, and only behind what the run stood on."""

import asyncio
from pathlib import Path

import pytest

from agent import InMemorySession, Reply, StoredSession, User
from agent._entries import TYPES, paired
from agent._landing import Footing
from agent._message import ToolCall
from savepoint import Log, MemoryStore, Usage, open_store
from savepoint._resumable import OURS
from savepoint._store import Space, Store
from savepoint._stored import load_log, put_log
from savepoint._unit import Unit
from savepoint.testing import CrashPoint, arm


class WatchedStore(MemoryStore):
    """Notes what each commit puts, and which rows are read."""

    def __init__(self) -> None:
        super().__init__()
        self.put: list[bytes] = []
        self.bodies = 0
        self.reads: list[Space] = []
        self.scans: list[Space] = []

    async def _apply(self, unit: Unit) -> None:
        self.put += unit.objects
        await super()._apply(unit)

    async def read(self, space, key):
        self.reads.append(space)
        return await super().read(space, key)

    async def scan(self, space, prefix=b"", *, after=b"", limit=None):
        self.scans.append(space)
        return await super().scan(space, prefix, after=after, limit=limit)

    async def objects(self, names):
        self.bodies += 1
        return await super().objects(names)

    async def segments(self, root, *, until):
        self.bodies += 1
        return await super().segments(root, until=until)

    def forget(self) -> None:
        self.put, self.reads, self.scans, self.bodies = [], [], [], 0


def turn(text: str, step: int = 0) -> list[object]:
    call = ToolCall(id=f"{step}.0", tool="look", arguments="{}")
    return [User(content=text), Reply(calls=(call,)), f"found {text} " * 20, Reply(text=f"answer to {text} " * 20)]


async def lived(store: Store, footing: Footing, *texts: str) -> Log:
    """The transcript of a run, stored turn by turn as its savepoints do."""
    transcript = footing.history
    for step, text in enumerate(texts):
        transcript = transcript.extend(turn(text, step))
        async with store.commit() as tx:
            durable = put_log(tx, transcript, store)
        durable()
    return transcript


async def landed(session: StoredSession, run_id: str, footing: Footing, transcript: Log, **meta: object) -> str:
    history = len(footing.history)
    return await session.land("u1", run_id, transcript, history=history, mark=footing.mark, meta=meta)


async def test_the_part_of_a_run_is_not_written_again() -> None:
    store = WatchedStore()
    session = StoredSession(store)
    for number in range(3):
        footing = await session.footing("u1")
        transcript = await lived(store, footing, "one", "two")
        store.forget()
        assert await landed(session, f"r{number}", footing, transcript) == ""
        assert store.put == []
        assert store.bodies == 0
        assert await session.load("u1") == transcript


async def test_nor_by_another_process_that_lands_what_it_reads_from_the_store(tmp_path: Path) -> None:
    async with open_store(tmp_path / "s") as store:
        session = StoredSession(store)
        await session.append("u1", turn("before"))
        footing = await session.footing("u1")
        transcript = await lived(store, footing, "one", "two")
    async with open_store(tmp_path / "s") as store:
        read = await load_log(store, transcript.root, len(transcript), TYPES | OURS)
        count = "select count(*), sum(length(body)) from object"
        before = await store.look(lambda engine: engine.tables._run(count).fetchone())
        assert await landed(StoredSession(store), "r", footing, read) == ""
        assert await store.look(lambda engine: engine.tables._run(count).fetchone()) == before
        assert await StoredSession(store).load("u1") == transcript


async def test_a_run_that_another_one_overtook_is_chained_to_the_new_end_by_name() -> None:
    store = WatchedStore()
    session = StoredSession(store)
    one, two = await session.footing("u1"), await session.footing("u1")
    first, second = await lived(store, one, "one"), await lived(store, two, "two")
    known = set(store._objects)
    assert await landed(session, "r1", one, first) == ""
    store.forget()
    assert await landed(session, "r2", two, second) == ""
    assert store.bodies == 0
    assert len(set(store.put) - known) == 1  # the segment that chains them
    assert list(await session.load("u1")) == [*turn("one"), *turn("two")]


async def test_an_overtaken_run_stands_on_what_it_saw() -> None:
    session = InMemorySession()
    await session.append("u1", turn("before"))
    footing = await session.footing("u1")
    await session.append("u1", turn("meanwhile"))
    transcript = footing.history.extend(turn("mine"))
    assert await landed(session, "r", footing, transcript) == ""
    assert [info.count for info in await session.outline("u1")] == [4, 4, 4]
    assert list(await session.load("u1"))[-4:] == turn("mine")


@pytest.mark.parametrize("how", ["rewound", "rewound and filled again", "cut", "cleared"])
async def test_what_a_run_stood_on_is_gone_so_it_does_not_land(how: str) -> None:
    session = InMemorySession()
    await session.append("u1", turn("one"), run_id="r1")
    await session.append("u1", turn("two"), run_id="r2")
    footing = await session.footing("u1")
    transcript = footing.history.extend(turn("mine"))
    match how:
        case "cleared":
            await session.clear("u1")
        case "cut":
            await session.rewind("u1", keep_entries=7)
        case _:
            await session.rewind("u1", keep_entries=4)
    if how == "rewound and filled again":  # equal content is not the same segment
        await session.append("u1", turn("two"), run_id="again")
        assert await session.load("u1") == footing.history
    before = await session.load("u1")
    assert not await session.stands(len(footing.history), footing.mark, "u1")
    for _ in range(2):
        warning = await landed(session, "mine", footing, transcript)
        assert warning == "session 'u1' changed (rewound or cleared) since run 'mine' began: its part was not appended"
        assert await session.load("u1") == before
    assert "its part was not appended" in await session.append("u1", turn("mine"), run_id="mine")


async def test_a_rewound_part_does_not_come_back_with_a_repeat() -> None:
    session = InMemorySession()
    footing = await session.footing("u1")
    transcript = footing.history.extend(turn("one"))
    await landed(session, "r1", footing, transcript)
    await session.rewind("u1", keep_entries=0)
    assert "'r1' was rewound" in await landed(session, "r1", footing, transcript)
    assert "'r1' was rewound" in await session.append("u1", turn("one"), run_id="r1")
    assert list(await session.load("u1")) == []


async def test_a_repeat_of_a_part_that_was_cut_is_told_apart_from_an_equal_one() -> None:
    session = InMemorySession()
    await session.append("u1", turn("one"), run_id="r1")
    await session.rewind("u1", keep_entries=1)
    assert "another part of run 'r1'" in await session.append("u1", turn("one"), run_id="r1")
    assert await session.append("u1", turn("one")[:1], run_id="r1") == ""
    assert list(await session.load("u1")) == turn("one")[:1]


async def test_a_cut_segment_has_a_new_mark_and_one_that_stays_keeps_its_own() -> None:
    session = InMemorySession()
    marks: list[bytes] = []
    for name in ("one", "two"):
        await session.append("u1", turn(name), run_id=name)
        marks.append((await session.footing("u1")).mark)
    await session.rewind("u1", keep_entries=5)
    cut = await session.footing("u1")
    assert cut.mark not in marks
    assert await session.stands(5, cut.mark, "u1")
    await session.rewind("u1", keep_entries=4)
    assert (await session.footing("u1")).mark == marks[0]


async def test_who_reads_while_others_write_sees_one_state_or_another(tmp_path: Path) -> None:
    async with open_store(tmp_path / "s", durability="process") as store:
        session = StoredSession(store)
        done = False

        async def write() -> None:
            nonlocal done
            for number in range(60):
                await session.append("u1", turn(f"{number}"), run_id=f"r{number}")
                if number % 3 == 2:
                    await session.rewind("u1", keep_entries=4 * (number % 5) + number % 4)
            done = True

        async def read() -> int:
            looks = 0
            while not done:
                looks += 1
                segments = await session.segments("u1")
                assert not any(paired(segment.entries) for segment in segments)
                outline = await session.outline("u1")
                assert [info.start + info.count for info in outline[:-1]] == [info.start for info in outline[1:]]
                footing = await session.footing("u1")
                await session.stands(len(footing.history) // 2, footing.mark, "u1")
            return looks

        _, looks = await asyncio.gather(write(), read())
        assert looks > 5


async def test_a_run_is_pending_from_its_creation_until_it_landed_or_was_refused() -> None:
    store = MemoryStore()
    session = StoredSession(store)
    footing = await session.footing("u1")
    async with store.commit() as tx:
        for run_id in ("r1", "r2", "r3", "r4"):
            session.pending(tx, "u1", run_id)
    await landed(session, "r1", footing, footing.history.extend(turn("one")))
    second = await session.footing("u1")
    await session.rewind("u1", keep_entries=0)
    await landed(session, "r2", second, second.history.extend(turn("two")))
    await session.forget_pending("u1", "r4")
    assert await session.pending_runs("u1") == ["r3"]
    assert await session.pending_runs("u10") == []
    async with store.commit() as tx:
        session.pending(tx, "u1", "r1")  # a crash before its creator knew: the repeat of the landing takes it off
    assert "rewound" in await landed(session, "r1", footing, footing.history.extend(turn("one")))
    assert await session.pending_runs("u1") == ["r3"]


async def test_what_a_run_did_not_add_lands_as_nothing() -> None:
    store = MemoryStore()
    session = StoredSession(store)
    await session.append("u1", turn("one"))
    footing = await session.footing("u1")
    async with store.commit() as tx:
        session.pending(tx, "u1", "r")
    assert await landed(session, "r", footing, footing.history) == ""
    assert await session.pending_runs("u1") == []
    assert len(await session.outline("u1")) == 1


async def test_it_stands_only_at_the_end_of_the_very_segment() -> None:
    session = InMemorySession()
    marks = [b""]
    for number in range(20):
        await session.append("u1", turn(str(number)))
        marks.append((await session.footing("u1")).mark)
    assert len(set(marks)) == 21
    for number, mark in enumerate(marks):
        found = [count for count in range(90) if await session.stands(count, mark, "u1")]
        assert found == [4 * number]
    assert not await session.stands(-1, b"", "u1")
    assert await session.stands(0, b"", "nobody")
    assert not await session.stands(4, marks[1], "nobody")


async def test_landing_says_where_it_is() -> None:
    store = MemoryStore()
    session = StoredSession(store)
    footing = await session.footing("u1")
    reached: list[tuple[CrashPoint, int]] = []
    former = arm(lambda point: reached.append((point, len(store._rows))))
    try:
        await landed(session, "r", footing, footing.history.extend(turn("one")))
    finally:
        arm(former)
    assert reached == [(CrashPoint.LAND_BEFORE, 0), (CrashPoint.LAND_AFTER, 3)]


async def test_runs_that_land_at_once_all_land() -> None:
    store = WatchedStore()
    session = StoredSession(store)
    footings = [await session.footing("u1") for _ in range(30)]
    ends = await asyncio.gather(
        *(
            landed(session, f"r{number}", footing, footing.history.extend(turn(str(number))))
            for number, footing in enumerate(footings)
            for _ in range(2)
        )
    )
    assert set(ends) == {""}
    assert sorted(str(info.run_id) for info in await session.outline("u1")) == sorted(f"r{n}" for n in range(30))
    assert len(await session.load("u1")) == 120


async def test_a_footing_that_the_transcript_cannot_have_is_refused() -> None:
    session = InMemorySession()
    for history in (-1, 5):
        with pytest.raises(Usage, match="cannot begin with"):
            await session.land("u1", "r", Log(turn("one")), history=history, mark=b"")
    assert await session.ids() == []


async def test_reading_costs_what_is_read() -> None:
    store = WatchedStore()
    session = StoredSession(store)
    for number in range(1000):
        await session.append("u1", [User(content=f"{number}")], run_id=f"r{number}")
    assert store.bodies == 0  # nor does appending read what is there
    store.forget()
    footing = await session.footing("u1")
    assert len(footing.history) == 1000
    assert (store.reads, store.scans) == ([Space.SESSION], [])
    store.forget()
    assert await session.stands(1000, footing.mark, "u1")
    assert not await session.stands(333, footing.mark, "u1")
    assert store.reads.count(Space.SEGMENT) <= 10
    assert len(await session.outline("u1")) == 1000
    assert await session.ids() == ["u1"]
    (summary,) = await session.summaries()
    assert (summary.runs, summary.entries, summary.pending) == (1000, 1000, 0)
    assert await session.rewind("u1", keep_entries=999) == 1
    assert store.scans.count(Space.MEMBER) == 0
    assert await session.rewind("u1", keep_entries=5) == 994
    await session.clear("u1")
    assert store.bodies == 0
