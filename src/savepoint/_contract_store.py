"""What every `Store` must do, as tests: subclass `StoreContract`, say how to open yours, and run pytest."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from ._digest import SIZE, Domain, seal
from ._errors import Corrupt, Missing, SavepointError, Stale, Usage
from ._store import Kind, Row, Space, Store, Transaction, row_digest

SPACES = st.sampled_from((Space.HEAD, Space.EVENT, Space.RUN))
KEYS = st.binary(min_size=1, max_size=3) | st.sampled_from((b"\xff", b"\xff\xff", b"\xff\x00", b"\x00", b"a\xff"))
BODIES = st.binary(max_size=40) | st.binary(min_size=3000, max_size=6000)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), BODIES),
        st.tuples(st.just("write"), SPACES, KEYS, BODIES),
        st.tuples(st.just("delete"), SPACES, KEYS),
        st.tuples(st.just("expect"), SPACES, KEYS, st.booleans()),
    ),
    max_size=6,
)


def name_of(body: bytes) -> bytes:
    return seal(Domain.OBJECT, body)


class StoreMachine(RuleBasedStateMachine):
    """A store beside two dictionaries: whatever is done to both, both must say the same."""

    contract: ClassVar["StoreContract"]

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.known: dict[bytes, bytes] = {}
        self.rows: dict[tuple[Space, bytes], bytes] = {}
        self.store = self._opened()

    def _opened(self) -> Store:
        return self.runner.run(
            self.stack.enter_async_context(self.contract.open_at(Path(self.directory.name) / "store"))
        )

    def teardown(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()
        self.directory.cleanup()

    @rule(operations=OPERATIONS, sync=st.booleans())
    def commit(self, operations: Sequence[tuple[object, ...]], sync: bool) -> None:
        known, rows = dict(self.known), dict(self.rows)
        fits = True

        async def work() -> None:
            nonlocal fits
            async with self.store.commit(sync=sync) as tx:
                for operation in operations:
                    fits &= self._both(tx, operation, known, rows)

        try:
            self.runner.run(work())
        except Stale:
            assert not fits
        else:
            assert fits
            self.known, self.rows = known, rows

    def _both(
        self,
        tx: Transaction,
        operation: tuple[object, ...],
        known: dict[bytes, bytes],
        rows: dict[tuple[Space, bytes], bytes],
    ) -> bool:
        """Does it to both; says whether the store may accept the unit."""
        match operation:
            case "put", bytes(body):
                tx.put(name_of(body), body)
                known[name_of(body)] = body
            case "write", Space() as space, bytes(key), bytes(body):
                assert tx.write(space, key, body) == row_digest(space, key, body)
                rows[space, key] = body
            case "delete", Space() as space, bytes(key):
                tx.delete(space, key)
                rows.pop((space, key), None)
            case "expect", Space() as space, bytes(key), bool(right):
                body = self.rows.get((space, key))  # expectations are about the state before the unit
                now = None if body is None else row_digest(space, key, body)
                tx.expect(space, key, now if right else name_of(b"something else"))
                return right
            case _:
                raise AssertionError(operation)
        return True

    @rule(body=BODIES, space=SPACES, key=KEYS)
    def fail_inside(self, body: bytes, space: Space, key: bytes) -> None:
        async def work() -> None:
            async with self.store.commit() as tx:
                tx.put(name_of(body), body)
                tx.write(space, key, body)
                raise LookupError

        with pytest.raises(LookupError):
            self.runner.run(work())

    @rule(space=SPACES, key=KEYS)
    def read(self, space: Space, key: bytes) -> None:
        body = self.rows.get((space, key))
        expected = None if body is None else Row(key=key, body=body, digest=row_digest(space, key, body))
        assert self.runner.run(self.store.read(space, key)) == expected

    @rule(space=SPACES, prefix=KEYS | st.just(b""), after=KEYS | st.just(b""), limit=st.none() | st.integers(0, 4))
    def scan(self, space: Space, prefix: bytes, after: bytes, limit: int | None) -> None:
        keys = sorted(key for where, key in self.rows if where == space and key.startswith(prefix) and key > after)
        found = self.runner.run(self.store.scan(space, prefix, after=after, limit=limit))
        assert [(row.key, row.body) for row in found] == [(k, self.rows[space, k]) for k in keys[:limit]]

    @rule(data=st.data())
    def objects(self, data: st.DataObject) -> None:
        names = data.draw(st.lists(st.sampled_from(sorted(self.known)), max_size=5)) if self.known else []
        assert list(self.runner.run(self.store.objects(names))) == [self.known[n] for n in names]

    @precondition(lambda self: self.contract.durable)
    @rule()
    def reopen(self) -> None:
        self.runner.run(self.stack.aclose())
        self.stack = AsyncExitStack()
        self.store = self._opened()


class StoreContract:
    """Subclass it as `TestMine(StoreContract)` with an `open_at`; `durable`: opened again, it holds what it held."""

    durable: ClassVar[bool] = False

    def open_at(self, place: Path) -> AbstractAsyncContextManager[Store]:
        raise NotImplementedError

    @asynccontextmanager
    async def fresh(self) -> AsyncGenerator[Store]:
        with TemporaryDirectory() as directory:
            async with self.open_at(Path(directory) / "store") as store:
                yield store

    def test_it_agrees_with_two_dictionaries(self) -> None:
        class Machine(StoreMachine):
            contract = self

        run_state_machine_as_test(Machine, settings=settings(max_examples=40, stateful_step_count=20, deadline=None))

    async def test_of_many_who_expect_the_same_exactly_one_wins(self) -> None:
        async with self.fresh() as store:

            async def claim(who: int) -> bool:
                try:
                    async with store.commit() as tx:
                        tx.expect(Space.LEASE, b"run", None)
                        tx.write(Space.LEASE, b"run", bytes((who,)))
                        tx.put(name_of(bytes((who,))), bytes((who,)))
                except Stale:
                    return False
                return True

            won = await asyncio.gather(*(claim(who) for who in range(20)))
            assert won.count(True) == 1
            row = await store.read(Space.LEASE, b"run")
            assert row is not None
            assert row.body == bytes((won.index(True),))
            for who in range(20):  # a loser contributes nothing, not even an object
                if not won[who]:
                    with pytest.raises(Missing):
                        await store.objects([name_of(bytes((who,)))])

    async def test_a_failing_unit_does_not_fail_those_it_is_grouped_with(self) -> None:
        async with self.fresh() as store:

            async def write(number: int) -> None:
                async with store.commit() as tx:
                    if number % 3 == 0:
                        tx.expect(Space.RUN, b"nobody", name_of(b""))
                    tx.write(Space.RUN, bytes((number,)), b"")

            ends = await asyncio.gather(*(write(number) for number in range(30)), return_exceptions=True)
            assert [isinstance(end, Stale) for end in ends] == [n % 3 == 0 for n in range(30)]
            assert {row.key[0] for row in await store.scan(Space.RUN)} == {n for n in range(30) if n % 3}

    async def test_an_object_is_written_once(self) -> None:
        async with self.fresh() as store:
            for _ in range(2):
                async with store.commit() as tx:
                    tx.put(name_of(b"body"), b"body")
                    tx.put(name_of(b"body"), b"body")
            assert await store.objects([name_of(b"body"), name_of(b"body")]) == [b"body", b"body"]

    async def test_what_is_absent_is_missing_by_name(self) -> None:
        async with self.fresh() as store:
            with pytest.raises(Missing, match=name_of(b"never put").hex()):
                await store.objects([name_of(b"never put")])

    async def test_bytes_under_a_wrong_name_are_damage(self) -> None:
        async with self.fresh() as store:
            async with store.commit() as tx:
                tx.put(name_of(b"one"), b"other")
            with pytest.raises(Corrupt, match=name_of(b"one").hex()):
                await store.objects([name_of(b"one")])

    async def test_a_thousand_objects_come_in_the_order_asked(self) -> None:
        async with self.fresh() as store:
            bodies = [number.to_bytes(2, "big") for number in range(1001)]
            async with store.commit() as tx:
                for body in bodies:
                    tx.put(name_of(body), body)
            backwards = bodies[::-1]
            assert await store.objects([name_of(body) for body in backwards]) == backwards

    async def test_segments_are_walked_newest_first_to_where_the_caller_is(self) -> None:
        async with self.fresh() as store:
            roots, bodies = await _chain(store, 5)
            assert list(await store.segments(roots[5], until=roots[0])) == bodies[::-1]
            assert list(await store.segments(roots[5], until=roots[3])) == bodies[:2:-1]
            assert list(await store.segments(roots[5], until=roots[5])) == []

    async def test_a_chain_that_breaks_off_is_missing(self) -> None:
        async with self.fresh() as store:
            roots, _ = await _chain(store, 3)
            with pytest.raises(Missing, match=roots[0].hex()):
                await store.segments(roots[3], until=name_of(b"elsewhere"))

    async def test_a_chain_that_leads_back_to_itself_is_damage(self) -> None:
        async with self.fresh() as store:
            one, two = name_of(b"1"), name_of(b"2")
            async with store.commit() as tx:
                tx.put(one, two + b"x", Kind.SEGMENT)
                tx.put(two, one + b"y", Kind.SEGMENT)
            with pytest.raises(Corrupt):
                await store.segments(one, until=name_of(b"elsewhere"))

    async def test_a_row_without_a_key_is_refused(self) -> None:
        async with self.fresh() as store:
            with pytest.raises(Usage):
                async with store.commit() as tx:
                    tx.write(Space.RUN, b"", b"")

    async def test_an_empty_unit_is_nothing(self) -> None:
        async with self.fresh() as store, store.commit():
            pass

    async def test_a_cancelled_commit_is_applied_before_the_cancellation_goes_on(self) -> None:
        async with self.fresh() as store:

            async def write(key: bytes) -> None:
                async with store.commit() as tx:
                    tx.write(Space.RUN, key, b"")

            tasks = [asyncio.ensure_future(write(bytes((number,)))) for number in range(10)]
            await asyncio.sleep(0)  # every unit is handed over
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            assert len(await store.scan(Space.RUN)) == len(tasks)
            assert not any(isinstance(end, SavepointError) for end in ends)


async def _chain(store: Store, length: int) -> tuple[list[bytes], list[bytes]]:
    roots = [name_of(b"the beginning")]
    bodies = list[bytes]()
    for number in range(length):
        bodies.append(roots[-1] + bytes((number,)) * 3000)
        roots.append(seal(Domain.LOG, bodies[-1]))
        async with store.commit() as tx:
            tx.put(roots[-1], bodies[-1], Kind.SEGMENT)
    assert all(len(root) == SIZE for root in roots)
    return roots, bodies
