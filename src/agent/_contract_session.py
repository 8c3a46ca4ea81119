"""What every `Session` must do, as tests: subclass `SessionContract`, say how to open yours, and run pytest."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, cast

import pytest
from attrs import evolve, frozen
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from ._entries import Reply, ToolCall, User, paired
from ._session import Rewindable, Segment, Session

SESSIONS = st.sampled_from(("u1", "u10", "ü 1"))
RUNS = st.sampled_from(("a", "b", "c", "d")) | st.none()
METAS = st.sampled_from(({}, {"timing": {"started_at": 1.5, "finished_at": 2.0}}))


@st.composite
def parts(draw: st.DrawFn, least: int = 1) -> list[object]:
    """What one run says: whole turns, whose calls are `step.index`."""
    entries: list[object] = []
    for step in range(draw(st.integers(least, 3))):
        entries.append(User(content=draw(st.sampled_from(("hello", "go on", "x" * 100)))))
        count = draw(st.integers(0, 3))
        calls = tuple(ToolCall(id=f"{step}.{index}", tool="look", arguments="{}") for index in range(count))
        entries.append(Reply(text=draw(st.sampled_from(("", "so"))), calls=calls))
        entries += [draw(st.sampled_from(("found", 7, "y" * 300))) for _ in range(count)]
    return entries


def whole(entries: Sequence[object]) -> list[object]:
    """The longest beginning of `entries` that is paired."""
    return list(next(entries[:length] for length in range(len(entries), -1, -1) if not paired(entries[:length])))


@frozen(kw_only=True)
class Told:
    """What a session should hold, as plain lists."""

    segments: tuple[Segment, ...] = ()

    @property
    def entries(self) -> list[object]:
        return [entry for segment in self.segments for entry in segment.entries]

    def rewound(self, keep: int) -> "Told":
        kept: list[Segment] = []
        for segment in self.segments if keep < len(self.entries) else ():
            left = segment.entries[: max(0, keep - sum(len(each.entries) for each in kept))]
            if len(left) < len(segment.entries):
                cut = tuple(whole(left))
                return Told(segments=(*kept, *([evolve(segment, entries=cut, meta={})] if cut else ())))
            kept.append(segment)
        return self


class SessionMachine(RuleBasedStateMachine):
    """A session beside plain lists: whatever is done to both, both must say the same."""

    contract: ClassVar["SessionContract"]

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        opened = self.contract.open_at(Path(self.directory.name) / "sessions")
        self.session = self.runner.run(self.stack.enter_async_context(opened))
        self.told: dict[str, Told] = {}
        self.gone: set[tuple[str, str]] = set()
        """runs whose part was dropped: what a repeat of them does is the implementation's own"""

    def teardown(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()
        self.directory.cleanup()

    @rule(session_id=SESSIONS, run_id=RUNS, entries=parts(), meta=METAS)
    def append(self, session_id: str, run_id: str | None, entries: list[object], meta: dict[str, object]) -> None:
        told = self.told.get(session_id, Told())
        assume((session_id, run_id) not in self.gone)
        known = next((each for each in told.segments if run_id is not None and each.run_id == run_id), None)
        warning = self.runner.run(self.session.append(session_id, entries, run_id=run_id, meta=meta))
        if known is None:
            added = Segment(run_id=run_id, entries=tuple(entries), meta=meta)
            self.told[session_id] = Told(segments=(*told.segments, added))
        assert bool(warning) == (known is not None and list(known.entries) != entries)

    @rule(session_id=SESSIONS)
    def clear(self, session_id: str) -> None:
        self.runner.run(self.session.clear(session_id))
        self._becomes(session_id, Told())
        self.told.pop(session_id, None)

    @precondition(lambda self: isinstance(self.session, Rewindable))
    @rule(session_id=SESSIONS, keep=st.integers(0, 20))
    def rewind(self, session_id: str, keep: int) -> None:
        assert isinstance(self.session, Rewindable)
        before = self.told.get(session_id, Told())
        after = before.rewound(keep)
        removed = self.runner.run(self.session.rewind(session_id, keep_entries=keep))
        assert removed == len(before.entries) - len(after.entries)
        if removed:
            self._becomes(session_id, after)

    def _becomes(self, session_id: str, after: Told) -> None:
        before = self.told.get(session_id, Told())
        left = {segment.run_id for segment in after.segments}
        self.gone |= {(session_id, each.run_id) for each in before.segments if each.run_id and each.run_id not in left}
        self.told[session_id] = after

    @rule(session_id=SESSIONS)
    def read(self, session_id: str) -> None:
        told = self.told.get(session_id, Told())
        entries = list(self.runner.run(self.session.load(session_id)))
        assert entries == told.entries
        segments = self.runner.run(self.session.segments(session_id))
        assert [(s.run_id, list(s.entries), dict(s.meta)) for s in segments] == [
            (s.run_id, list(s.entries), dict(s.meta)) for s in told.segments
        ]
        assert not any(paired(segment.entries) for segment in segments)

    @rule()
    def list_ids(self) -> None:
        held = {session_id for session_id, told in self.told.items() if told.segments}
        ids = self.runner.run(self.session.ids())
        assert list(ids) == sorted(ids)
        assert held <= set(ids) <= self.told.keys()


class SessionContract:
    """Subclass it as `TestMine(SessionContract)` with an `open_at`. A rewind is tried where there is one."""

    def open_at(self, place: Path) -> AbstractAsyncContextManager[Session]:
        raise NotImplementedError

    @asynccontextmanager
    async def fresh(self) -> AsyncGenerator[Session]:
        with TemporaryDirectory() as directory:
            async with self.open_at(Path(directory) / "sessions") as session:
                yield session

    @asynccontextmanager
    async def rewindable(self) -> AsyncGenerator[tuple[Session, Rewindable]]:
        async with self.fresh() as session:
            if not isinstance(session, Rewindable):
                pytest.skip("this session cannot be rewound, which is allowed")
            yield session, session

    def test_it_agrees_with_plain_lists(self) -> None:
        class Machine(SessionMachine):
            contract = self

        run_state_machine_as_test(Machine, settings=settings(max_examples=40, stateful_step_count=20, deadline=None))

    async def test_an_unknown_session_is_empty(self) -> None:
        async with self.fresh() as session:
            assert list(await session.load("nobody")) == []
            assert list(await session.segments("nobody")) == []
            assert list(await session.ids()) == []
            await session.clear("nobody")

    async def test_what_was_appended_comes_back_run_by_run(self) -> None:
        async with self.fresh() as session:
            assert await session.append("u1", _turn("one"), run_id="r1", meta={"note": ["kept"]}) == ""
            assert await session.append("u1", _turn("two")) == ""
            first, second = await session.segments("u1")
            assert (first.run_id, list(first.entries), dict(first.meta)) == ("r1", _turn("one"), {"note": ["kept"]})
            assert (second.run_id, list(second.entries), dict(second.meta)) == (None, _turn("two"), {})
            assert list(await session.load("u1")) == [*_turn("one"), *_turn("two")]

    async def test_a_repeat_is_nothing_and_a_differing_one_says_so(self) -> None:
        async with self.fresh() as session:
            await session.append("u1", _turn("one"), run_id="r1", meta={"first": True})
            assert await session.append("u1", _turn("one"), run_id="r1") == ""
            assert "r1" in await session.append("u1", _turn("other"), run_id="r1")
            (segment,) = await session.segments("u1")
            assert (list(segment.entries), dict(segment.meta)) == (_turn("one"), {"first": True})

    async def test_a_part_without_a_run_id_is_another_part_each_time(self) -> None:
        async with self.fresh() as session:
            for _ in range(2):
                assert await session.append("u1", _turn("one")) == ""
            assert len(await session.segments("u1")) == 2

    async def test_no_entries_are_no_segment(self) -> None:
        async with self.fresh() as session:
            assert await session.append("u1", [], run_id="r1") == ""
            assert list(await session.segments("u1")) == []
            assert await session.append("u1", _turn("one"), run_id="r1") == ""
            assert len(await session.segments("u1")) == 1

    async def test_one_run_id_may_be_in_two_sessions(self) -> None:
        async with self.fresh() as session:
            for session_id in ("u1", "u10"):
                await session.append(session_id, _turn(session_id), run_id="r1")
            assert list(await session.ids()) == ["u1", "u10"]
            await session.clear("u1")
            assert list(await session.load("u1")) == []
            assert list(await session.load("u10")) == _turn("u10")

    async def test_what_was_read_is_no_way_to_change_it(self) -> None:
        async with self.fresh() as session:
            given = [*_turn("one"), User(content="more")]
            await session.append("u1", given, meta={"list": [1]})
            given.clear()
            (segment,) = await session.segments("u1")
            cast("list[object]", segment.meta["list"]).append(2)
            (again,) = await session.segments("u1")
            assert (len(again.entries), dict(again.meta)) == (len(_turn("one")) + 1, {"list": [1]})

    async def test_of_many_who_append_at_once_none_is_lost_or_torn(self) -> None:
        async with self.fresh() as session:
            names = [f"r{number}" for number in range(20)]
            await asyncio.gather(*(session.append("u1", _turn(name), run_id=name) for name in names for _ in range(2)))
            segments = await session.segments("u1")
            assert sorted(str(segment.run_id) for segment in segments) == sorted(names)
            assert all(list(segment.entries) == _turn(str(segment.run_id)) for segment in segments)
            assert list(await session.load("u1")) == [entry for segment in segments for entry in segment.entries]

    async def test_a_rewind_drops_later_runs_whole(self) -> None:
        async with self.rewindable() as (session, rewindable):
            for name in ("one", "two", "three"):
                await session.append("u1", _turn(name), run_id=name, meta={"name": name})
            size = len(_turn("one"))
            assert await rewindable.rewind("u1", keep_entries=size) == 2 * size
            (segment,) = await session.segments("u1")
            assert (segment.run_id, dict(segment.meta)) == ("one", {"name": "one"})

    async def test_a_run_that_is_cut_stays_paired_and_loses_its_meta(self) -> None:
        async with self.rewindable() as (session, rewindable):
            entries = [*_turn("one"), *_turn("two", step=1)]
            await session.append("u1", entries, run_id="r1", meta={"timing": {"started_at": 0.0}})
            size = len(_turn("one"))
            assert (
                await rewindable.rewind("u1", keep_entries=size + 3) == size - 1
            )  # inside the outcomes: the reply goes
            (segment,) = await session.segments("u1")
            assert (segment.run_id, dict(segment.meta)) == ("r1", {})
            assert list(segment.entries) == [*_turn("one"), User(content="two")]

    async def test_a_rewind_to_nothing_empties_and_past_the_end_is_nothing(self) -> None:
        async with self.rewindable() as (session, rewindable):
            await session.append("u1", _turn("one"), run_id="r1")
            size = len(_turn("one"))
            assert [await rewindable.rewind("u1", keep_entries=keep) for keep in (size, size + 1)] == [0, 0]
            assert await rewindable.rewind("nobody", keep_entries=0) == 0
            assert await rewindable.rewind("u1", keep_entries=0) == size
            assert list(await session.load("u1")) == []
            await session.append("u1", _turn("two"), run_id="r2")
            assert list(await session.load("u1")) == _turn("two")


def _turn(text: str, *, step: int = 0) -> list[object]:
    """Five entries: a user, a reply with two calls and their outcomes, and the answer."""
    calls = tuple(ToolCall(id=f"{step}.{index}", tool="look", arguments="{}") for index in range(2))
    return [User(content=text), Reply(calls=calls), "found", "nothing", Reply(text=f"answer to {text}")]
