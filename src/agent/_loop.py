"""The turn: a reply, its calls, a savepoint. A resumable program like any other; the journal does the remembering."""

import asyncio
import json
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from attrs import evolve, field, frozen, mutable

from effects import Call, Idempotency, effect
from effects._failure import Failure, failure_of
from effects._handler import is_handled
from effects._layer import LAYER
from effects._question import Choice, QuestionKind
from effects._receipt import Receipt, Status
from effects._recovery import Verdict
from savepoint import Cell, Log, World, resumable, savepoint
from savepoint._codec import Encoded, encode
from savepoint._errors import Stopped
from savepoint._frame import Frame, annotate, component, in_frame, reply_call
from savepoint._journal import Journal
from savepoint._passage import Passage
from savepoint._writer import OUTCOME

from ._agent import Agent
from ._answer import Answer, ModelError, Wanted, refusals
from ._arguments import BadArguments
from ._context import Context, in_context
from ._entries import SHOWN, Denied, Reply, messages, recorded, render
from ._message import Messages, ToolCall
from ._model import Model, Request, ToolSpec
from ._progress import CallBegan, CallEnded, OnEvent, Replied, Saved, TextDelta, ignore
from ._tool import Tool

TRANSCRIPT: Cell[Log[Any]] = Cell("transcript", Log, default=Log())
TRIES = 3
"""Requests for one reply, where the model is busy or answers with nothing."""


@mutable(kw_only=True)
class Scene:
    """What a run's loop works with in this process; given again on every resume, never stored."""

    agent: Agent
    model: Model
    deps: object
    run_id: str
    on_event: OnEvent
    max_turns: int
    specs: tuple[ToolSpec, ...] = ()
    shown: Messages = field(factory=Messages)
    """the transcript as messages, as far as `seen` entries of it"""
    seen: int = 0

    @property
    def watched(self) -> bool:
        return self.on_event is not ignore


SCENE: ContextVar[Scene] = ContextVar("agent_scene")


@effect("agent/model", idempotency=Idempotency.READ, identity=lambda *_: {})
async def ask_model(scene: Scene, request: Request, step: int) -> Reply:
    """One reply. Matched by step and ordinal, whatever the prompt renders to now; usage is kept beside it."""
    answer = await _asked(scene, request)
    if answer.provider or answer.usage.total:
        annotate({"usage": answer.usage, "provider": dict(answer.provider)})
    return recorded(answer, step=step)


async def _asked(scene: Scene, request: Request) -> Answer:
    for tried in range(1, TRIES + 1):
        try:
            answer = await scene.model.reply(request, on_text=lambda text: scene.on_event(TextDelta(text=text)))
            if not answer.calls:
                refusals(answer, {})  # raises where it is empty
        except ModelError as error:
            if not error.retryable or tried == TRIES:
                # Not an outcome of the call: a later attempt must ask again, not meet this error once more.
                raise Stopped(error) from error
            await asyncio.sleep(2.0 ** (tried - 1) / 4)
        except Exception as error:  # an adapter's own fault, which must not become the recorded reply either
            raise Stopped(error) from error
        else:
            return answer
    raise AssertionError("unreachable")


@resumable("agent/turns", version=1)
async def take_turns(world: World, agent: str, fingerprint: str, turn: int) -> str:
    """The rest of a run from reply number `turn` on. Returns the final text."""
    scene = SCENE.get()
    while True:
        await _within_limit(scene, turn)
        transcript = world[TRANSCRIPT]
        reply = await ask_model(scene, _request(scene, transcript), turn)
        scene.on_event(Replied(step=turn, text=reply.text, calls=tuple(call.tool for call in reply.calls)))
        if not reply.calls:
            world[TRANSCRIPT] = transcript.append(reply)
            return reply.text
        outcomes = await Turn(scene, world, turn, reply).outcomes()
        world[TRANSCRIPT] = transcript.extend([reply, *outcomes])
        turn += 1
        await savepoint(
            "conversation/turn",
            key={"turn": turn},
            resume=take_turns.at(agent, fingerprint, turn),
            state=[TRANSCRIPT],
        )
        scene.on_event(Saved(step=turn))


def _request(scene: Scene, transcript: Log[Any]) -> Request:
    scene.shown = messages(transcript, shown=scene.shown, seen=scene.seen)
    scene.seen = len(transcript)
    return Request(
        instructions=scene.agent.instruct(scene.deps),
        messages=scene.shown,
        tools=scene.specs,
    )


async def _within_limit(scene: Scene, turn: int) -> None:
    """Parks where the run has had all its replies; a `grant` (how many more) lets it go on."""
    journal = LAYER.get()
    if turn < scene.max_turns or not isinstance(journal, Journal):
        return
    # Where the limit was reached, whatever step this attempt resumed from: a grant counts for the rest of the run.
    # (A fork may begin past it, which then is at its own step 0.)
    step = max(0, journal.step - (turn - scene.max_turns))
    receipt = _marker(step, component(b"max_turns", scene.max_turns.to_bytes(8, "big")))
    why = f"the run has had {turn} model replies, which is its limit; `grant` says how many more it may have"
    decision = await journal.decided(QuestionKind.BUDGET, receipt, why=why)
    if decision.choice is Choice.FAIL:
        raise RuntimeError(f"the run reached its limit of {scene.max_turns} model replies")
    scene.max_turns += decision.value if isinstance(decision.value, int) and decision.value > 0 else 1
    await _within_limit(scene, turn)


def _marker(step: int, key: bytes) -> Receipt:
    """What a question that is about no call is identified by."""
    return Receipt(key=key, step=step, effect="", version=0, idempotency=Idempotency.READ, status=Status.WITHDRAWN)


@frozen(kw_only=True)
class Planned:
    """One call of a reply, before it starts."""

    index: int
    call: ToolCall
    tool: Tool[..., Any] | None
    arguments: dict[str, object]
    settled: object = None
    """an outcome without a performance: refused arguments, a denial"""
    approved: bool = False

    @property
    def alone(self) -> bool:
        return self.tool is not None and self.settled is None and self.tool.writes_world


def _edited(each: Planned, arguments: object) -> Planned:
    """With the arguments of a decision, held to the schema like the model's own."""
    assert each.tool is not None
    try:
        return evolve(each, arguments=each.tool.parse(json.dumps(arguments)), approved=True)
    except (BadArguments, TypeError, ValueError) as error:
        return evolve(each, settled=Failure(kind="BadArguments", message=f"edited by a decision: {error}"))


class Turn:
    """The calls of one reply: approvals first, then batches that may run together, outcomes in reply order."""

    def __init__(self, scene: Scene, world: World, turn: int, reply: Reply) -> None:
        self.scene = scene
        self.world = world
        self.turn = turn
        self.reply = reply
        layer = LAYER.get()
        self.journal = layer if isinstance(layer, Journal) else None

    async def outcomes(self) -> list[object]:
        planned = self._planned()
        if self.journal is not None:
            planned = await self._approved(self.journal, planned)
        batches = list(_batches(planned))
        if self.journal is not None:
            await self._begin(self.journal, batches[0])
        results: list[object] = []
        for batch in batches:
            results += await self._together(batch)
        return results

    def _planned(self) -> list[Planned]:
        """The calls with their arguments read; what the model did wrong is its outcome, and nothing is performed."""
        return [self._read(index, call) for index, call in enumerate(self.reply.calls)]

    def _read(self, index: int, call: ToolCall) -> Planned:
        known = self.scene.agent.known_tools
        tool = known.get(call.tool)
        try:
            if tool is not None:
                return Planned(index=index, call=call, tool=tool, arguments=tool.parse(call.arguments))
        except BadArguments:
            pass
        wrong = Answer(calls=(Wanted(tool=call.tool, arguments=call.arguments),))
        return Planned(index=index, call=call, tool=tool, arguments={}, settled=refusals(wrong, known)[0])

    # -- approvals ------------------------------------------------------------------------------------------------

    async def _approved(self, journal: Journal, planned: Sequence[Planned]) -> list[Planned]:
        """With what was decided about each call. Asks all that is open at once, before any call starts."""
        asking = [
            journal.asking(QuestionKind.APPROVAL, self._subject(journal, each))
            for each in planned
            if self._must_ask(journal, each)
        ]
        waiting = [each for each in asking if each[0].id not in journal.decisions]
        if waiting:
            await journal.park(waiting)
        return [self._decided(journal, each) for each in planned]

    def _must_ask(self, journal: Journal, each: Planned) -> bool:
        if each.tool is None or each.settled is not None or not each.tool.approval:
            return False
        receipt = journal.receipt(self._key(each))
        doubtful = receipt is not None and receipt.idempotency.doubtful and receipt.status is Status.INTENDED
        return not doubtful and journal.verdict(each.tool, receipt) is Verdict.DO

    def _subject(self, journal: Journal, each: Planned) -> Receipt:
        """The call that an approval is about: the receipt it would get, with the tries it had."""
        passage = self._passage(journal, each)
        return passage.new(Status.WITHDRAWN, tried=passage.tried)

    def _decided(self, journal: Journal, each: Planned) -> Planned:
        if not self._must_ask(journal, each):
            return each
        question, _ = journal.asking(QuestionKind.APPROVAL, self._subject(journal, each))
        decision = journal.decisions[question.id]
        if decision.choice is Choice.DENY:
            return evolve(each, settled=Denied(reason=decision.note))
        if decision.choice is Choice.EDIT:
            return _edited(each, decision.value)
        return evolve(each, approved=True)

    # -- performing -----------------------------------------------------------------------------------------------

    async def _begin(self, journal: Journal, batch: Sequence[Planned]) -> None:
        """Commits the reply, with the intents of the calls that start at once. No call starts before."""
        if not journal.writer.has_landed:
            return  # the reply is a recorded one; each call commits its own intent
        intents = [
            self._passage(journal, each)
            for each in batch
            if each.tool is not None
            and each.settled is None
            and (each.tool.idempotency.doubtful or each.approved)
            and not is_handled(each.tool)
            and journal.receipt(self._key(each)) is None
        ]
        await journal.begin_reply(intents)

    def _frame(self, each: Planned) -> Frame:
        frame = reply_call(0, each.index)
        frame.approved = each.approved
        return frame

    def _passage(self, journal: Journal, each: Planned) -> Passage:
        assert each.tool is not None
        frame = self._frame(each)
        call = Call(effect=each.tool, kwargs=each.arguments)
        arguments = encode(dict(call.arguments))
        return Passage(journal, call, frame.next_key(call.name, arguments.digest), frame, arguments)

    def _key(self, each: Planned) -> bytes:
        assert each.tool is not None
        arguments = encode(dict(Call(effect=each.tool, kwargs=each.arguments).arguments))
        return self._frame(each).next_key(each.tool.name, arguments.digest)

    async def _together(self, batch: Sequence[Planned]) -> list[object]:
        """Runs the calls of a batch; all finish and are recorded, whatever one of them meets."""
        if len(batch) == 1:
            return [await self._outcome(batch[0], [1])]
        left = [len(batch)]
        found = await asyncio.gather(*(self._outcome(each, left) for each in batch), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return list(found)

    async def _outcome(self, each: Planned, left: list[int]) -> object:
        outcome = each.settled if each.settled is not None else await self._performed(each)
        left[0] -= 1
        journal = self.journal
        if left[0] and journal is not None and journal.writer.has_landed and not journal.parked:
            await journal.durable(OUTCOME)  # outcomes of parallel calls are saved as they land
        return outcome

    async def _performed(self, each: Planned) -> object:
        assert each.tool is not None
        context: Context[object] = Context(
            world=self.world,
            deps=self.scene.deps,
            run_id=self.scene.run_id,
            step=self.turn,
            call_id=each.call.id,
        )
        scene = self.scene
        if scene.watched:
            scene.on_event(CallBegan(call_id=each.call.id, tool=each.call.tool, arguments=each.arguments))
        frame = self._frame(each)
        with in_frame(frame), in_context(context):
            try:
                outcome: object = await each.tool(**each.arguments)
            except Exception as error:  # noqa: BLE001  whatever a tool raises is told to the model
                outcome = failure_of(error)
        if scene.watched:
            failed, text = isinstance(outcome, Failure), render(outcome, SHOWN)
            scene.on_event(CallEnded(call_id=each.call.id, tool=each.call.tool, failed=failed, text=text, known=frame.known))
        return _encoded(frame.outcome, outcome)


def _encoded(recorded_: Encoded | None, outcome: object) -> object:
    """The outcome as its receipt encoded it, if it is the same; else to be encoded once more."""
    if recorded_ is not None and (recorded_.value is outcome or recorded_.value == outcome):
        return recorded_
    return outcome


def _batches(planned: Sequence[Planned]) -> list[list[Planned]]:
    """A call that acts outside and writes the world runs alone; barriers keep the order of the reply."""
    batches: list[list[Planned]] = [[]]
    for each in planned:
        if batches[-1] and (each.alone or batches[-1][-1].alone):
            batches.append([])
        batches[-1].append(each)
    return batches

