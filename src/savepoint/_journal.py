"""The layer around every body of a run: the receipts of one lineage in one attempt, and their durable boundaries.

One path: a redone step is not a mode. What happens to one call is `_passage.py`; the rules are pure and live in
`effects`. See `design/0002-recovery.md`.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, NoReturn

from attrs import field, mutable

from effects import Call, Effect, Idempotency, Parked
from effects._divergence import covered, may_depend
from effects._key import ROOT, at_or_below, below
from effects._question import Choice, Decision, Question, QuestionKind
from effects._receipt import UNSETTLED, Receipt, Status
from effects._recovery import Facts, Rules, Verdict, decide

from ._ambient import wall_clock_s
from ._claim import Claim
from ._codec import Encoded, dumps, encode
from ._crashpoint import CrashPoint, reach
from ._digest import Domain, seal
from ._errors import Halted, SavepointError, Superseded
from ._events import Called, Event, Snapshotted
from ._form import plain_ids
from ._frame import COMPENSATING, FRAME, Frame, in_frame
from ._gate import Gate
from ._guard import Guard
from ._passage import Passage
from ._questions import ask, question_about, question_id
from ._store import Store, Transaction
from ._types import Types
from ._world import EMPTY, Snapshot, World
from ._writer import OUTCOME, PARK, REPLY, SNAPSHOT, Boundary, Writer

Body = Callable[[], Awaitable[object]]
Asking = tuple[Question, Receipt]
WINDOW_MARGIN = 0.1
"""The part of a KEYED effect's window that is not trusted."""


@mutable(kw_only=True, eq=False)
class Journal:
    """One attempt's receipts of one lineage; implements `effects.Layer`."""

    store: Store
    writer: Writer
    claim: Claim
    world: World
    types: Types
    strict: bool = False
    step: int = 0
    forked: int = 0
    """the event that this attempt's world was forked at"""
    base: Snapshot = EMPTY
    """the newest durable snapshot of the world"""
    receipts: dict[tuple[int, bytes], Receipt] = field(factory=dict[tuple[int, bytes], Receipt])
    """(step, key) -> newest receipt, of the steps from the savepoint on"""
    decisions: dict[str, Decision] = field(factory=dict[str, Decision])
    """by question id"""
    parked: list[str] = field(factory=list[str])
    """ids of the questions that this attempt waits for; it enters no further body"""
    ended: bool = False
    """the attempt is over: a task that the program left behind does nothing any more"""
    root: Frame = field(factory=Frame)
    guard: Guard = field(factory=Guard)
    gate: Gate = field(factory=Gate)
    mine: dict[bytes, Receipt] = field(factory=dict[bytes, Receipt], init=False)
    """intents that this attempt wrote and whose body it has not entered, by key"""
    claimed: int = field(init=False)
    """events before this number were written by earlier attempts"""
    closing: asyncio.Event | None = field(default=None, init=False)
    """a gap is being passed: calls wait for it, so that each lies on one side of the savepoint"""
    lookup: Callable[[str], Effect[..., Any] | None] = field(default=lambda _: None)
    """the registered effect of a name, for its compensation"""
    held: Callable[[Effect[..., Any]], Effect[..., Any]] = field(default=lambda effect: effect)
    """an effect as this run holds it: its class may be another one here"""
    _unsure: dict[tuple[int, bytes], Receipt] = field(factory=dict[tuple[int, bytes], Receipt], init=False)
    """earlier changes of the world that the fork does not contain and that were not done again yet"""

    def __attrs_post_init__(self) -> None:
        self.claimed = self.writer.head.count
        self.guard.past = tuple(
            receipt
            for receipt in self.receipts.values()
            if receipt.idempotency.doubtful and not below(receipt.key, COMPENSATING)
        )
        self.guard.new_step(self.step)
        self._unsure = {
            place: receipt
            for place, receipt in self.receipts.items()
            if receipt.touches_world and not covered(receipt.key, [receipt], self.forked)
        }
        self.writer.numbered = self._numbered

    # -- the layer ------------------------------------------------------------------------------------------------

    async def settle(self, call: Call, body: Body) -> object:
        """A call that reached its body: enters it, or returns or raises what is known of it."""
        if not call.effect.receipted:
            return await body()
        await self._between_gaps()
        frame = self.frame()
        frame.reached = True
        arguments = _arguments(call)
        passage = Passage(self, call, frame.next_key(call.name, arguments.digest), frame, arguments)
        return await passage.settle(body)

    async def answer(self, call: Call, ask: Body) -> object:
        """A call that handlers handle: what they answer without reaching a body is recorded as a READ."""
        await self._between_gaps()
        frame = self.frame()
        arguments = _arguments(call)
        key = frame.next_key(f"answer {call.name}", arguments.digest)
        passage = Passage(self, call, key, frame, arguments, Idempotency.READ)
        with self.guard.running(passage.inner):
            return await passage.answer(ask)

    async def _between_gaps(self) -> None:
        while self.closing is not None:
            await self.closing.wait()

    @contextlib.contextmanager
    def branch(self, name: str) -> Generator[None]:
        """The calls of the block get a parent of their own."""
        with in_frame(self.frame().branch(name)) as frame, self.guard.running(frame):
            yield

    def frame(self) -> Frame:
        return FRAME.get() or self.root

    # -- what is known --------------------------------------------------------------------------------------------

    def receipt(self, key: bytes) -> Receipt | None:
        return self.receipts.get((self.step, key))

    def verdict(self, effect: Effect[..., Any] | None, receipt: Receipt | None) -> Verdict:
        """What the table says of this call. Without the effect (it is not registered) the receipt's own class counts."""
        if receipt is None:
            return Verdict.DO
        rules = rules_of(effect, receipt)
        return decide(rules, receipt, self.facts(receipt, rules))

    def facts(self, receipt: Receipt, rules: Rules) -> Facts:
        """What the table needs to know; what would take a look at every receipt is only found out where it counts."""
        said = self.said(receipt) if receipt.idempotency.doubtful else frozenset[Choice]()
        return Facts(
            # What this attempt did itself is in its world, whatever that was forked at.
            covered=not any(step == receipt.step and at_or_below(key, receipt.key) for step, key in self._unsure),
            age_s=wall_clock_s() - receipt.at,
            depended=rules.max_age_s is not None and may_depend(receipt, self.receipts.values()),
            before_claim=0 < receipt.number < self.claimed,
            strict=self.strict,
            redo=Choice.REDO in said,
            # Who answered that a call in doubt happened has reviewed it.
            reviewed=Choice.PERFORMED in said,
        )

    def said(self, receipt: Receipt) -> frozenset[Choice]:
        """What was decided about this try of a call."""
        kinds = (QuestionKind.IN_DOUBT, QuestionKind.PERFORMED)
        found = (self.decisions.get(question_id(self.writer.lineage, kind, receipt)) for kind in kinds)
        return frozenset(each.choice for each in found if each is not None)

    def begun(self, key: bytes) -> bool:
        """Whether this attempt's intent of the call is durable and its body was not entered.

        An intent whose commit was cancelled is in `mine` and nowhere else.
        """
        receipt = self.receipt(key)
        return key in self.mine and receipt is not None and receipt.number > 0 and receipt.status is Status.INTENDED

    def doubts(self) -> list[Receipt]:
        """The calls of this step and attempt of which nobody knows, though no savepoint may pass them.

        Those of earlier attempts were asked about before the program was entered, or diverged.
        """
        return [
            receipt
            for (step, key), receipt in self.receipts.items()
            if step == self.step
            and receipt.idempotency.doubtful
            and receipt.status in UNSETTLED
            and not 0 < receipt.number < self.claimed
            and key not in self.mine
        ]

    def must_go_on(self) -> None:
        """Raises `Parked` once this attempt waits for a decision, `Superseded` once it is over."""
        if self.parked:
            raise Parked(tuple(self.parked))
        if self.ended:
            raise Superseded

    async def finish(self) -> None:
        """The attempt is about to end: nothing starts any more, and what is under way is waited for and recorded."""
        self.ended = True
        await self.gate.emptied()

    def idempotency_key(self, key: bytes, step: int | None = None) -> str:
        """The same in every attempt of this lineage, another one in a fork."""
        at = self.step if step is None else step
        return seal(Domain.IDEMPOTENCY, dumps([self.writer.lineage, at, key])).hex()

    def keep(self, receipt: Receipt) -> None:
        """The newest that is known of a call."""
        self.receipts[receipt.step, receipt.key] = receipt
        self._unsure.pop((receipt.step, receipt.key), None)

    def _numbered(self, receipt: Receipt) -> None:
        """A receipt became durable. Only one event of a call is under way at a time, so it is the newest."""
        if receipt.step >= self.step or (receipt.step, receipt.key) in self.receipts:
            self.keep(receipt)

    # -- durable boundaries ---------------------------------------------------------------------------------------

    async def durable(self, boundary: Boundary, events: Sequence[Event] = (), **more: Any) -> None:
        """A commit without which the attempt must not go on. Raises `Halted`."""
        try:
            await self.writer.commit(boundary, events, **more)
        except SavepointError as error:
            raise Halted(error) from error

    async def begin_reply(self, calls: Sequence[Passage]) -> None:
        """Commits a model's reply together with the intents of the calls that start at once."""
        intents = [call.new(Status.INTENDED, tried=1) for call in calls]
        self.mine.update({intent.key: intent for intent in intents})
        values = [value for intent, call in zip(intents, calls, strict=True) for value in call.apart(intent)]
        await self.durable(REPLY, [Called(receipt=intent) for intent in intents], values=values)

    async def snapshot(self, key: bytes, outcome: Sequence[Event] = (), values: Sequence[Encoded] = ()) -> None:
        """Commits all that landed, and the `outcome` of the call `key`, with a snapshot of the world, where a recovery
        will fork it. No body runs meanwhile: what it changed would be in the commit and not in the snapshot.
        """
        if not self.world.systems:
            await self.durable(OUTCOME, outcome, values=values)
            return
        async with self.gate.running(key, alone=True):
            try:
                reach(CrashPoint.SNAPSHOT_BEFORE)
                taken = await self.world.snapshot(self.store.contents)
            except SavepointError as error:
                raise Halted(error) from error
            ids = encode(plain_ids(taken))
            await self.durable(SNAPSHOT, [*outcome, Snapshotted(world=ids.digest)], values=[*values, ids])
            self.base = taken

    async def put_back(self) -> Sequence[str]:
        """Undoes what a body changed in a read-only world, where it ran alone; returns the paths."""
        try:
            taken = await self.world.snapshot(self.store.contents)
            if taken == self.base:
                return ()
            changes = await self.world.diff(self.store.contents, self.base, taken)
            await self.world.apply(self.store.contents, taken, self.base)
        except SavepointError as error:
            raise Halted(error) from error
        return [f"{name}: {change.path}" for name, found in changes.items() for change in found]

    async def park(self, asking: Sequence[Asking], events: Sequence[Event] = (), **more: Any) -> NoReturn:
        """Asks: the questions and what led to them in one commit; from here on no body is entered."""

        def rows(tx: Transaction, _: object) -> None:
            for question, receipt in asking:
                ask(tx, self.writer.lineage, question, receipt)

        self.parked.extend(question.id for question, _ in asking)
        await self.durable(PARK, events, also=rows, **more)
        raise Parked(tuple(self.parked))

    def asking(
        self,
        kind: QuestionKind,
        receipt: Receipt,
        effect: Effect[..., Any] | None = None,
        why: str = "",
        evidence: Mapping[str, object] | None = None,
    ) -> Asking:
        """A question about the call of `receipt`."""
        effect = effect or self.lookup(receipt.effect)
        compensation = effect is not None and effect.compensation is not None
        question = question_about(
            self.writer.lineage, kind, receipt, compensation=compensation, why=why, evidence=evidence
        )
        return question, receipt

    async def decided(self, kind: QuestionKind, receipt: Receipt, *, why: str = "") -> Decision:
        """The decision on this question, or the question: then the run waits."""
        asking = self.asking(kind, receipt, None, why)
        decision = self.decisions.get(asking[0].id)
        if decision is None:
            await self.park([asking])
        return decision

    async def guarded(self, frame: Frame, levels: tuple[bytes, ...]) -> None:
        """Returns once all that has a receipt below `levels` was asked for again; parks where nobody will."""
        if missing := await self.guard.missing(frame, levels):
            self.must_go_on()
            await self.park([self.asking(QuestionKind.DIVERGED, receipt) for receipt in missing])

    async def close_step(self) -> None:
        """All that has a receipt in this step was asked for again. Called before a gap and before the program ends."""
        await self.guarded(self.root, (ROOT,))
        self.must_go_on()

    def next_step(self, *, persisted: bool) -> None:
        """Goes on to the next step; once its savepoint is durable, what lies before it is past."""
        self.step += 1
        self.root.new_step()
        self.guard.new_step(self.step)
        if persisted:
            self.receipts = {place: receipt for place, receipt in self.receipts.items() if place[0] >= self.step}


def _arguments(call: Call) -> Encoded:
    return encode(dict(call.arguments), f"the arguments of {call.name}")


def rules_of(effect: Effect[..., Any] | None, receipt: Receipt) -> Rules:
    """What recovery must know of an effect; of one that is not registered, what its receipt kept."""
    if effect is None or receipt.effect != effect.name:
        return Rules(idempotency=receipt.idempotency, version=receipt.version)
    return Rules(
        idempotency=effect.idempotency,
        version=effect.version,
        probe=effect.prober is not None,
        window_s=(effect.window_s or 0.0) * (1 - WINDOW_MARGIN),
        max_age_s=effect.max_age_s,
    )
