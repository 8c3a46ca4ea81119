"""One call on its way through the journal: known, or intended, entered, and landed."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from effects import Call, ConcurrentCalls, CurrentCall, Idempotency, NotPerformed, Refused
from effects._call import CURRENT
from effects._divergence import changes_decisions, guarded_levels
from effects._failure import error_of, failure_of
from effects._key import below
from effects._question import Choice, Decision, QuestionKind
from effects._receipt import Receipt, Status
from effects._recovery import Verdict

from ._ambient import wall_clock_s
from ._codec import Encoded, encode
from ._crashpoint import CrashPoint, reach
from ._errors import NotPortable
from ._events import Called, Event
from ._frame import Frame, in_frame
from ._recall import LOST_NOTE, recall
from ._tries import perform
from ._writer import INTENT, OUTCOME, Also

if TYPE_CHECKING:
    from ._journal import Journal

Body = Callable[[], Awaitable[object]]
_UNDONE = frozenset({Idempotency.CONTAINED, Idempotency.COMPOSITE})
"""What a body of these classes did inside the world is done again where a fork lacks it."""
SHOWN = 5
"""Paths that an error lists."""
INLINE_ARGUMENTS = 512
"""Bytes of arguments that stand in the receipt itself."""


class Passage:
    """What one performed effect goes through; lives as long as the call."""

    __slots__ = (
        "arguments",
        "call",
        "effect",
        "frame",
        "held",
        "idempotency",
        "inner",
        "journal",
        "key",
        "receipt",
        "settled",
        "step",
        "tried",
    )

    def __init__(
        self,
        journal: "Journal",
        call: Call,
        key: bytes,
        frame: Frame,
        arguments: Encoded,
        idempotency: Idempotency | None = None,
    ) -> None:
        self.journal = journal
        self.step = journal.step
        """of the call: a gap that was passed while its body ran does not move it"""
        self.call = call
        self.effect = journal.held(call.effect)
        self.key = key
        self.frame = frame
        self.arguments = arguments
        self.idempotency = idempotency or self.effect.idempotency
        self.inner = frame.inside(key, self.idempotency)
        self.receipt = journal.receipt(key)
        """what was known when the call was made"""
        self.tried = 0 if self.receipt is None else self.receipt.tried
        self.held: tuple[list[Event], list[Encoded]] = ([], [])
        """an outcome that must become durable together with the world that it changed, and what it names"""
        self.settled: tuple[Decision, Also] | None = None
        """what a probe decided about a try of this living process, not yet recorded"""

    # -- the way in -----------------------------------------------------------------------------------------------

    async def settle(self, body: Body) -> object:
        """Enters the body, or returns or raises what is known. Raises `Parked`, `Superseded`, `Halted`."""
        self.journal.must_go_on()
        self.journal.guard.ask(self.key)
        # All the way: who waits for what was not asked for yet must know that somebody still moves.
        with self.journal.guard.running(self.inner):
            return await self._settled(body)

    async def _settled(self, body: Body) -> object:
        journal, receipt = self.journal, self.receipt
        verdict = Verdict.DO if journal.begun(self.key) else journal.verdict(self.effect, receipt)
        if receipt is None or verdict is Verdict.DO:
            if self.effect.idempotency.outside:
                return await self._outside(body)
            return await self._enter(body)
        if verdict in (Verdict.REUSE, Verdict.RAISE):
            return await self._recalled(receipt)
        # After a resume all questions were asked before the program was entered; a version that changed is seen here.
        kind = QuestionKind.DIVERGED if verdict is Verdict.DIVERGED else QuestionKind.IN_DOUBT
        await journal.park([journal.asking(kind, receipt, self.effect)])

    async def answer(self, ask: Body) -> object:
        """A call that handlers handle: recorded only where they answer it without reaching a body."""
        self.journal.must_go_on()
        if self.receipt is not None:
            return await self._recalled(self.receipt)
        with in_frame(self.frame.handled()) as seen:
            try:
                value = await ask()
            except Exception as error:
                if seen.reached:
                    raise
                raise self._fail(error) from error
        return value if seen.reached else self._perform(value)

    async def _recalled(self, receipt: Receipt) -> object:
        self.journal.guard.reuse(self.key)
        return await recall(self.journal, receipt, self.effect, self.frame)

    # -- the body -------------------------------------------------------------------------------------------------

    async def _outside(self, body: Body) -> object:
        """A call that changes the outside: after all that was asked before, alone under its parent."""
        tally = self.frame.tally
        if tally.running:
            refused = ConcurrentCalls(self.effect.name, tally.running)
            # With a receipt: a resumed program must not find its way free where it was refused.
            raise refused if self.receipt is not None else self._fail(refused, entered=False)
        tally.running = self.effect.name
        try:
            if self.receipt is None or self.receipt.status is Status.WITHDRAWN:
                levels = guarded_levels(self.key, recorded=self.frame.under_reply)
                await self.journal.guarded(self.inner, levels)
                self.journal.must_go_on()
            return await self._enter(body)
        finally:
            tally.running = ""

    async def _enter(self, body: Body) -> object:
        if self.idempotency is Idempotency.COMPOSITE:
            value, raised = await self._entered(body)
        else:
            value, raised = await self._through_the_gate(body)
        await self._boundary()
        if raised is not None:
            raise raised
        return value

    async def _through_the_gate(self, body: Body) -> tuple[object, Exception | None]:
        journal = self.journal
        world = journal.world
        gate, entry = journal.gate, (self.key, (self.effect.writes_world or world.read_only) and bool(world.systems))
        if gate.blocks(self.key, alone=entry[1]):
            with journal.guard.held(self.inner):
                await gate.enter(entry)
        else:
            await gate.enter(entry)
        try:
            journal.must_go_on()
            return await self._entered(body)
        finally:
            gate.leave(entry)

    async def _entered(self, body: Body) -> tuple[object, Exception | None]:
        """Intent, lease, body, outcome: the result, or the error as a resumed program meets it."""
        journal = self.journal
        await self.intend()
        journal.must_go_on()
        await journal.claim.ensure()
        journal.mine.pop(self.key, None)
        try:
            value, raised = await perform(self, body), None
        except Exception as error:  # noqa: BLE001  whatever the body raises is its outcome
            value, raised = None, error
        if journal.world.read_only:
            raised = await self._only_reads(raised)
        try:
            await journal.guarded(self.inner, (self.key,))
        except asyncio.CancelledError:
            if self.effect.idempotency.doubtful:
                self._land_result(value, raised)  # what is known must not become a doubt
            raise
        return self._land_result(value, raised)

    async def _only_reads(self, raised: Exception | None) -> Exception | None:
        """In a read-only world a body's changes are undone; one that does nothing else has failed by them."""
        if self.idempotency is Idempotency.COMPOSITE:
            async with self.journal.gate.running(self.key, alone=True):  # it is not at the gate itself
                changed = await self.journal.put_back()
        else:
            changed = await self.journal.put_back()
        if not changed:
            return raised
        if self.idempotency.outside:
            self.inner.note, self.frame.lost = LOST_NOTE, True
            return raised
        return Refused(self.effect.name, f"the world of this run is read-only; undone: {', '.join(changed[:SHOWN])}")

    async def intend(self) -> None:
        """Makes the intent durable where the class needs one. A decision `redo` is consumed by the next try's intent."""
        journal, receipt = self.journal, self.receipt
        if journal.begun(self.key) or not self._needs_intent():
            return
        if receipt is not None and receipt.status is Status.INTENDED and self._same_try(receipt):
            return  # KEYED within its window, or IDEMPOTENT: the try that its first intent began
        self.tried += 1
        intent = self.new(Status.INTENDED, tried=self.tried)
        journal.mine[self.key] = intent
        await journal.durable(INTENT, [Called(receipt=intent)], values=self.apart(intent))

    def _same_try(self, receipt: Receipt) -> bool:
        if self.idempotency.doubtful:
            return Choice.REDO not in self.journal.said(receipt)
        return not self.frame.approved

    def _needs_intent(self) -> bool:
        """ONCE and KEYED always, and what was approved; IDEMPOTENT where its arguments are not those of a recorded
        reply.
        """
        idempotency = self.effect.idempotency
        if self.frame.approved:
            return True
        return idempotency.doubtful or (idempotency is Idempotency.IDEMPOTENT and not self.frame.recorded)

    def doubt(self) -> Receipt:
        """That nobody knows how this try ended."""
        return self.new(Status.IN_DOUBT, tried=self.tried)

    def record_probe(self) -> None:
        """The next commit holds what a probe decided; it counts from now on."""
        if self.settled is not None:
            decision, rows = self.settled
            self.settled = None
            self.journal.decisions[decision.question] = decision
            self.journal.writer.add(rows)

    async def run(self, body: Body) -> object:
        token = CURRENT.set(self.current())
        try:
            # A body that is tried again makes the same calls again.
            self.inner.new_step()
            with in_frame(self.inner):
                reach(CrashPoint.BODY_BEFORE)
                value = await body()
                reach(CrashPoint.BODY_AFTER)
                return value
        finally:
            CURRENT.reset(token)

    def current(self) -> CurrentCall:
        return CurrentCall(
            call=self.call,
            keyed=partial(self.journal.idempotency_key, self.key, self.step),
            attempt=self.journal.claim.epoch,
            tried=max(0, self.tried - 1),
        )

    def settle_cancelled(self, found: object) -> None:
        """What a probe knows of a call whose caller gave up: recorded, for nobody is there to return it to."""
        if isinstance(found, NotPerformed):
            self.record_probe()
            self.journal.keep(withdrawn := self.new(Status.WITHDRAWN, tried=self.tried))
            self.journal.writer.land(withdrawn)
        else:
            self._land_result(found, None)

    # -- the outcome ----------------------------------------------------------------------------------------------

    def _land_result(self, value: object, raised: Exception | None) -> tuple[object, Exception | None]:
        if raised is not None:
            return None, self._fail(raised)
        try:
            return self._perform(value), None
        except NotPortable as error:
            # It happened, and its result is lost: the program is told so, now and on every resume.
            return None, self._fail(error)

    def _perform(self, value: object) -> object:
        """Lands a result; returns it in normal form, as a resumed program sees it."""
        outcome = encode(value, f"the result of {self.effect.name}")
        self._land(Status.PERFORMED, outcome)
        return outcome.value

    def _fail(self, error: Exception, *, entered: bool = True) -> Exception:
        """Lands an observed error; returns it as a resumed program meets it."""
        failure = failure_of(error)
        self._land(Status.FAILED, encode(failure), entered=entered)
        rebuilt = error_of(failure, self.effect.raises)
        return error if type(rebuilt) is type(error) else rebuilt

    def _land(self, status: Status, outcome: Encoded, *, entered: bool = True) -> None:
        note = None if self.inner.note is None else encode(self.inner.note, f"the note of {self.effect.name}")
        receipt = self.new(status, tried=self.tried, outcome=outcome.digest, note=None if note is None else note.digest)
        self.journal.keep(receipt)
        self.record_probe()
        self.frame.outcome = outcome
        values = [outcome, *self.apart(receipt), *(() if note is None else (note,))]
        # What a handler answered, or what was refused, entered no body.
        self.inner.writes_world = entered and self.idempotency is not Idempotency.READ and self._wrote_world()
        if self.inner.writes_world:
            self.held = [Called(receipt=receipt)], values
        else:
            self.journal.writer.land(receipt, *values)
        reach(CrashPoint.LANDED)

    def _wrote_world(self) -> bool:
        """Whether one snapshot must hold the world with this outcome: by declaration, or because the body, which no
        fork undoes, performed a CONTAINED effect.
        """
        if self.effect.writes_world or self.idempotency in _UNDONE or not self.inner.called:
            return self.effect.writes_world
        return any(
            receipt.idempotency is Idempotency.CONTAINED and below(receipt.key, self.key)
            for receipt in self.journal.receipts.values()
            if receipt.step == self.step
        )

    async def _boundary(self) -> None:
        """Commits an outcome that must not wait for the gap, after a look at what rests on an older one."""
        journal, contained = self.journal, self.idempotency is Idempotency.CONTAINED
        if contained:
            await self._check_same()
        nested = not self.frame.recorded
        if self.inner.writes_world:
            await journal.snapshot(self.key, *self.held)
        elif contained and nested and journal.gate.idle and journal.world.systems:
            await journal.snapshot(self.key)
        elif nested and self.idempotency.doubtful:
            await self.journal.durable(OUTCOME)

    async def _check_same(self) -> None:
        """A redone CONTAINED call with another result: what later calls did may rest on the old one."""
        journal, before, now = self.journal, self.receipt, self.journal.receipts.get((self.step, self.key))
        if before is None or now is None or before.status is not Status.PERFORMED or before.outcome == now.outcome:
            return
        later = changes_decisions(before, journal.receipts.values(), journal.guard.excused)
        if later:
            why = f"{self.effect.name} gave another result than before, and this call came after it"
            await journal.park([journal.asking(QuestionKind.DIVERGED, receipt, None, why) for receipt in later])

    def apart(self, receipt: Receipt) -> tuple[Encoded, ...]:
        """What must be stored beside a receipt of this call: arguments that are too long for it."""
        return (self.arguments,) if receipt.arguments_object is not None else ()

    def new(self, status: Status, *, tried: int, outcome: bytes | None = None, note: bytes | None = None) -> Receipt:
        """A receipt of this call, not yet durable."""
        long = len(self.arguments.body) > INLINE_ARGUMENTS
        return Receipt(
            key=self.key,
            step=self.step,
            effect=self.effect.name,
            version=self.effect.version,
            idempotency=self.idempotency,
            status=status,
            writes_world=self.effect.writes_world and self.idempotency is self.effect.idempotency,
            arguments=None if long else self.arguments.body,
            arguments_object=self.arguments.digest if long else None,
            outcome=outcome,
            note=note,
            tried=tried,
            at=wall_clock_s(),
        )
