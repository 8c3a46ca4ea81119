"""A stored session beside plain lists, under whatever runs, people and maintenance do to it."""

import asyncio
from collections.abc import Sequence
from itertools import accumulate

from attrs import evolve, field, frozen, mutable
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from agent._contract_session import parts, whole
from agent._entries import Reply, Trimmed, User, paired
from agent._landing import Footing
from agent._render import whole_text
from agent._stored_session import StoredSession
from savepoint import Log, MemoryStore
from savepoint._store import Space

S = "u1"
RUNS = st.sampled_from([f"r{number}" for number in range(8)])


@frozen(kw_only=True)
class Told:
    """A segment as it should be."""

    run_id: str | None
    entries: list[object]
    content: list[object]
    """as it came, or as a cut left it"""
    token: int
    """stands for the mark"""
    meta: dict[str, object]


@mutable(kw_only=True)
class Live:
    """A run on its way."""

    footing: Footing
    token: int | None
    part: list[object]


@mutable(kw_only=True)
class Model:
    segments: list[Told] = field(factory=list)
    members: dict[str, str] = field(factory=dict)
    live: dict[str, Live] = field(factory=dict)
    done: dict[str, Live] = field(factory=dict)
    tokens: int = 0

    def token(self) -> int:
        self.tokens += 1
        return self.tokens

    @property
    def entries(self) -> list[object]:
        return [entry for segment in self.segments for entry in segment.entries]

    @property
    def ends(self) -> list[int]:
        return list(accumulate(len(segment.entries) for segment in self.segments))

    def stands(self, live: Live) -> bool:
        tokens = [segment.token for segment in self.segments]
        places = zip(self.ends, tokens, strict=True)
        return live.token is None or (len(live.footing.history), live.token) in places

    def add(self, run_id: str | None, entries: list[object], meta: dict[str, object]) -> None:
        told = Told(run_id=run_id, entries=entries, content=entries, token=self.token(), meta=meta)
        self.segments.append(told)
        if run_id is not None:
            self.members[run_id] = "landed"

    def repeats(self, run_id: str, entries: list[object]) -> bool:
        return any(segment.run_id == run_id and segment.content == entries for segment in self.segments)

    def rewind(self, keep: int) -> None:
        left: list[Told] = []
        for start, segment in zip([0, *self.ends], self.segments, strict=False):
            kept = segment.entries[: max(0, keep - start)]
            if kept != segment.entries:
                kept = whole(kept)
                if kept:
                    token = self.token()
                    left.append(evolve(segment, entries=kept, content=kept, token=token, meta={}))
                break
            left.append(segment)
        stay = {segment.run_id for segment in left}
        for segment in self.segments:
            if segment.run_id is not None and segment.run_id not in stay:
                self.members[segment.run_id] = "rewound"
        self.segments = left

    def trim(self, keep_chars: int, keep_runs: int) -> int:
        old = max(0, len(self.segments) - keep_runs)
        before = self.entries
        self.segments = [
            evolve(segment, entries=[_short(entry, keep_chars) for entry in segment.entries])
            if number < old
            else segment
            for number, segment in enumerate(self.segments)
        ]
        return sum(one != other for one, other in zip(before, self.entries, strict=True))


def _short(entry: object, keep_chars: int) -> object:
    match entry:
        case User() | Reply():
            return entry
        case Trimmed(text=text):
            return evolve(entry, text=text[:keep_chars])
        case _:
            text = whole_text(entry)
            return entry if len(text) <= keep_chars else Trimmed(text=text[:keep_chars], length=len(text), ref="")


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.session = StoredSession(self.store)
        self.model = Model()
        self.runner = asyncio.Runner()

    def teardown(self) -> None:
        self.runner.close()

    @rule(run_id=RUNS, part=parts())
    def begin(self, run_id: str, part: list[object]) -> None:
        if run_id not in self.model.live and run_id not in self.model.done:
            footing = self.runner.run(self._begun(run_id))
            assert list(footing.history) == self.model.entries
            token = self.model.segments[-1].token if self.model.segments else None
            self.model.live[run_id] = Live(footing=footing, token=token, part=part)

    async def _begun(self, run_id: str) -> Footing:
        async with self.store.commit() as tx:
            self.session.pending(tx, S, run_id)
        return await self.session.footing(S)

    @precondition(lambda self: self.model.live)
    @rule(data=st.data(), meta=st.sampled_from(({}, {"timing": {"started_at": 0.5}})))
    def land(self, data: st.DataObject, meta: dict[str, object]) -> None:
        run_id = data.draw(st.sampled_from(sorted(self.model.live)))
        live = self.model.live.pop(run_id)
        self.model.done[run_id] = live
        known = self.model.members.get(run_id)
        warning = self._land(run_id, live, meta)
        if known is not None:
            assert (warning == "") == (known == "landed" and self.model.repeats(run_id, live.part))
        elif self.model.stands(live):
            assert warning == ""
            self.model.add(run_id, live.part, meta)
        else:
            assert run_id in warning
            assert "rewound or cleared" in warning
            self.model.members[run_id] = "refused"

    def _land(self, run_id: str, live: Live, meta: dict[str, object]) -> str:
        history = live.footing.history
        transcript = history.extend(live.part)
        coming = self.session.land(S, run_id, transcript, history=len(history), mark=live.footing.mark, meta=meta)
        return self.runner.run(coming)

    @precondition(lambda self: self.model.done)
    @rule(data=st.data())
    def land_again(self, data: st.DataObject) -> None:
        run_id = data.draw(st.sampled_from(sorted(self.model.done)))
        live = self.model.done[run_id]
        before = self._rows()
        warning = self._land(run_id, live, {"other": 1})
        fits = self.model.members[run_id] == "landed" and self.model.repeats(run_id, live.part)
        assert (warning == "") == fits
        assert self._rows() == before

    def _rows(self) -> object:
        spaces = (Space.SESSION, Space.SEGMENT, Space.MEMBER)
        return [[(row.key, row.body) for row in self.runner.run(self.store.scan(space))] for space in spaces]

    @rule(run_id=RUNS | st.none(), entries=parts(least=0))
    def append(self, run_id: str | None, entries: list[object]) -> None:
        warning = self.runner.run(self.session.append(S, entries, run_id=run_id))
        known = None if run_id is None else self.model.members.get(run_id)
        if known is not None:
            assert run_id is not None
            assert (warning == "") == (known == "landed" and self.model.repeats(run_id, entries))
            return
        assert warning == ""
        if entries:
            self.model.add(run_id, entries, {})

    @rule(keep=st.integers(0, 30))
    def rewind(self, keep: int) -> None:
        before = len(self.model.entries)
        if keep < before:
            self.model.rewind(keep)
        removed = self.runner.run(self.session.rewind(S, keep_entries=keep))
        assert removed == before - len(self.model.entries)
        assert self.runner.run(self.session.rewind(S, keep_entries=keep)) == 0

    @rule(keep_chars=st.sampled_from((0, 3, 50)), keep_runs=st.integers(0, 2))
    def trim(self, keep_chars: int, keep_runs: int) -> None:
        for expected in (self.model.trim(keep_chars, keep_runs), 0):
            coming = self.session.trim_tool_results(S, keep_chars=keep_chars, keep_runs=keep_runs)
            assert self.runner.run(coming) == expected

    @rule()
    def clear(self) -> None:
        self.model.rewind(0)
        self.runner.run(self.session.clear(S))
        assert self.runner.run(self.session.ids()) == []

    @invariant()
    def all_is_as_told(self) -> None:
        self.runner.run(self._check(self.model.segments))

    async def _check(self, told: Sequence[Told]) -> None:
        segments = await self.session.segments(S)
        assert [(s.run_id, list(s.entries), s.meta) for s in segments] == [(t.run_id, t.entries, t.meta) for t in told]
        assert await self.session.load(S) == Log(self.model.entries)
        assert not any(paired(segment.entries) for segment in segments)
        outline = await self.session.outline(S)
        assert [info.start + info.count for info in outline] == self.model.ends
        assert [info.start for info in outline] == [0, *self.model.ends][: len(outline)]
        assert sorted(await self.session.pending_runs(S)) == sorted(self.model.live)
        for live in self.model.live.values():
            count = len(live.footing.history)
            assert await self.session.stands(count, live.footing.mark, S) == self.model.stands(live)
        for summary in await self.session.summaries():
            found = (summary.runs, summary.entries, summary.pending)
            assert found == (len(told), len(self.model.entries), len(self.model.live))


def test_it_agrees_with_plain_lists() -> None:
    run_state_machine_as_test(Machine, settings=settings(max_examples=80, stateful_step_count=30, deadline=None))
