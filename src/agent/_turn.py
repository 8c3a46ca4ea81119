"""The calls of one reply: read, approved, begun together where they may be, their outcomes in reply order."""

import asyncio
import json
from collections.abc import Sequence
from itertools import starmap
from typing import Any

from attrs import evolve, frozen

from effects import Call
from effects._failure import Failure, failure_of
from effects._handler import is_handled
from effects._layer import LAYER
from effects._question import Choice, Decision, QuestionKind
from effects._receipt import Receipt, Status
from effects._recovery import Verdict
from savepoint import World
from savepoint._codec import Encoded, encode
from savepoint._errors import Halted, Superseded
from savepoint._frame import Frame, in_frame, reply_call
from savepoint._journal import Journal
from savepoint._passage import Passage
from savepoint._writer import OUTCOME

from ._answer import Answer, Wanted, refusals
from ._arguments import BadArguments
from ._context import Context, in_context
from ._entries import SHOWN, Denied, Lost, Reply, User, render
from ._handoff import Fired, fired
from ._merges import Merges
from ._message import ToolCall
from ._progress import CallBegan, CallEnded
from ._render import whole_text
from ._scene import Scene
from ._tool import Tool


@frozen(kw_only=True)
class Settled:
    """A call that is not performed: what the model did wrong, or a denial, is its outcome."""

    call: ToolCall
    outcome: object


@frozen(kw_only=True, eq=False)
class Planned:
    """A call before it starts."""

    index: int
    call: ToolCall
    tool: Tool[..., Any]
    arguments: dict[str, object]
    approved: bool = False

    def frame(self) -> Frame:
        """A fresh view of the call's parent: its place in the reply is a fact."""
        frame = reply_call(0, self.index)
        frame.approved = self.approved
        return frame

    def passage(self, journal: Journal) -> Passage:
        """The call as the journal will see it, unless a handler changes it."""
        frame, call = self.frame(), Call(effect=self.tool, kwargs=self.arguments)
        arguments = encode(dict(call.arguments))
        return Passage(journal, call, frame.next_key(call.name, arguments.digest), frame, arguments)

    def edited(self, arguments: object) -> "Planned | Settled":
        """With the arguments of a decision, held to the schema like the model's own."""
        try:
            return evolve(self, arguments=self.tool.parse(json.dumps(arguments)), approved=True)
        except (BadArguments, TypeError, ValueError) as error:
            return Settled(
                call=self.call, outcome=Failure(kind="BadArguments", message=f"edited by a decision: {error}")
            )


Step = Planned | Settled


async def outcomes_of(scene: Scene, world: World, turn: int, reply: Reply) -> list[object]:
    """Performs the calls of `reply`; one outcome each, in their order. Raises `Parked`, `Superseded`, `Halted`."""
    transfer = fired(reply, scene.known_transfers)
    steps = [_read(scene, index, call, transfer) for index, call in enumerate(reply.calls)]
    layer = LAYER.get()
    journal = layer if isinstance(layer, Journal) else None
    if journal is not None:
        steps = await _approved(journal, steps)
    batches = _batches(steps)
    if journal is not None:
        await _begin(journal, batches[0])
    outcomes: list[object] = []
    for batch in batches:
        outcomes += await _together(scene, world, turn, batch, journal)
    return outcomes


def _read(scene: Scene, index: int, call: ToolCall, transfer: Fired) -> Step:
    known = scene.agent.known_tools
    tool = known.get(call.tool)
    if call.tool in transfer.known:
        return Settled(call=call, outcome=transfer.outcome(index, call.tool))
    if tool is not None and not scene.held.allows(call.tool):
        return Settled(call=call, outcome=Denied(reason=f"{call.tool} is not allowed in this run"))
    try:
        if tool is not None:
            return Planned(index=index, call=call, tool=tool, arguments=tool.parse(call.arguments))
    except BadArguments:
        pass
    wrong = Answer(calls=(Wanted(tool=call.tool, arguments=call.arguments),))
    return Settled(call=call, outcome=refusals(wrong, known)[0])


# -- approvals --------------------------------------------------------------------------------------------------------


async def _approved(journal: Journal, steps: Sequence[Step]) -> list[Step]:
    """With what was decided about each call. Asks all that is open at once, before any call starts."""
    subjects = {step: _subject(journal, step) for step in steps if isinstance(step, Planned) and step.tool.approval}
    asking = {
        step: journal.asking(QuestionKind.APPROVAL, receipt)
        for step, receipt in subjects.items()
        if receipt is not None
    }
    if waiting := [each for each in asking.values() if each[0].id not in journal.decisions]:
        await journal.park(waiting)
    return [_decided(step, journal.decisions[asking[step][0].id]) if step in asking else step for step in steps]


def _subject(journal: Journal, step: Planned) -> Receipt | None:
    """What an approval is about: the receipt that the call would get, with the tries it had. None: nothing to approve,
    because the call is known, or its question is whether it happened.
    """
    passage = step.passage(journal)
    receipt = passage.receipt
    doubtful = receipt is not None and receipt.idempotency.doubtful and receipt.status is Status.INTENDED
    if doubtful or journal.verdict(passage.effect, receipt) is not Verdict.DO:
        return None
    return passage.new(Status.WITHDRAWN, tried=passage.tried)


def _decided(step: Step, decision: Decision) -> Step:
    if isinstance(step, Settled):
        return step
    match decision.choice:
        case Choice.DENY:
            return Settled(call=step.call, outcome=Denied(reason=decision.note))
        case Choice.EDIT:
            return step.edited(decision.value)
        case _:
            return evolve(step, approved=True)


# -- performing -------------------------------------------------------------------------------------------------------


def _batches(steps: Sequence[Step]) -> list[list[Step]]:
    """A call that acts outside and writes the world runs alone; barriers keep the order of the reply."""
    batches: list[list[Step]] = [[]]
    for step in steps:
        if batches[-1] and (_alone(step) or _alone(batches[-1][-1])):
            batches.append([])
        batches[-1].append(step)
    return batches


def _alone(step: Step) -> bool:
    return isinstance(step, Planned) and step.tool.writes_world


async def _begin(journal: Journal, batch: Sequence[Step]) -> None:
    """Commits the reply, with the intents of the calls that start at once. No call starts before."""
    if not journal.writer.has_landed:
        return  # the reply is a recorded one; each call commits its own intent
    intending = [
        step
        for step in batch
        if isinstance(step, Planned)
        and (journal.held(step.tool).idempotency.doubtful or step.approved)
        and not is_handled(step.tool)
    ]
    passages = [step.passage(journal) for step in intending]
    await journal.begin_reply([passage for passage in passages if passage.receipt is None])


async def _together(
    scene: Scene, world: World, turn: int, batch: Sequence[Step], journal: Journal | None
) -> list[object]:
    """Runs the calls of a batch; all finish and are recorded, whatever one of them meets."""
    merges = Merges(range(len(batch)))
    if len(batch) == 1:
        with merges.call(0):
            return [await _outcome(scene, world, turn, batch[0])]
    left = len(batch)

    async def one(place: int, step: Step) -> object:
        nonlocal left
        with merges.call(place):
            outcome = await _outcome(scene, world, turn, step)
        left -= 1
        if left and journal is not None and journal.writer.has_landed and not journal.parked:
            await journal.durable(OUTCOME)  # outcomes of parallel calls are saved as they land
        return outcome

    found = await asyncio.gather(*starmap(one, enumerate(batch)), return_exceptions=True)
    stops = [each for each in found if isinstance(each, BaseException)]
    # What ends the attempt says more than that one call waits.
    for stop in sorted(stops, key=lambda each: not isinstance(each, Superseded | Halted)):
        raise stop
    return list(found)


async def _outcome(scene: Scene, world: World, turn: int, step: Step) -> object:
    call_id, name = step.call.id, step.call.tool
    if isinstance(step, Settled):
        if scene.watched:
            scene.on_event(CallEnded(call_id=call_id, tool=name, failed=True, text=render(step.outcome, SHOWN)))
        return step.outcome
    if scene.watched:
        scene.on_event(CallBegan(call_id=call_id, tool=name, arguments=step.arguments))
    context: Context[object] = Context(world=world, deps=scene.deps, run_id=scene.run_id, step=turn, call_id=call_id)
    with in_frame(step.frame()) as frame, in_context(context):
        try:
            outcome: object = await step.tool(**step.arguments)
        except Exception as error:  # noqa: BLE001  whatever a tool raises is told to the model
            outcome = failure_of(error)
    if scene.watched:
        failed, text = isinstance(outcome, Failure), render(outcome, SHOWN)
        scene.on_event(CallEnded(call_id=call_id, tool=name, failed=failed, text=text, known=frame.known))
    if isinstance(outcome, (User, Reply)):
        outcome = whole_text(outcome)  # as it is, the transcript would hold a turn where a call has its outcome
    if frame.lost:
        return Lost(note=f"{name} was performed, but what it changed in the world is lost. {render(outcome, SHOWN)}")
    return _encoded(frame.outcome, outcome)


def _encoded(receipted: Encoded | None, outcome: object) -> object:
    """The outcome as its receipt encoded it, if it is that very one; else it is encoded for the transcript."""
    if receipted is None:
        return outcome
    same = receipted.value is outcome or (isinstance(outcome, Failure) and receipted.value == outcome)
    return receipted if same else outcome
