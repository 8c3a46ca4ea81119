"""The turn: a reply, its calls, a savepoint. A resumable program like any other; the journal does the remembering."""

import asyncio

from effects import Idempotency, effect
from effects._layer import LAYER
from effects._question import Choice, QuestionKind
from effects._receipt import Receipt, Status
from savepoint import World, resumable, savepoint
from savepoint._errors import Stopped
from savepoint._frame import annotate, component
from savepoint._journal import Journal

from ._answer import Answer, ModelError, refusals
from ._entries import Reply, recorded
from ._handoff import fired
from ._model import Request
from ._progress import HandedOver, Replied, Saved, TextDelta
from ._scene import SCENE, TRANSCRIPT, Scene
from ._turn import outcomes_of

TRIES = 3
"""Requests for one reply, where the model is busy or answers with nothing."""


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
async def take_turns(world: World, agent: str, fingerprint: str, turn: int, history: int = 0, handoff: str = "") -> str:
    """The rest of a run of `agent` from reply number `turn` on. Returns the final text.

    `history` entries of the transcript are of earlier runs of the session; `handoff` is the agent that the last turn
    handed over to, where the switch was not made yet.
    """
    scene = SCENE.get()
    scene.history = history
    if not scene.is_on(agent):
        scene.activate(agent)
    scene.keep_definition()
    fingerprint = scene.fingerprint  # as the agent is now: it may have changed since the savepoint
    while True:
        if handoff:
            _switch(scene, handoff)
            agent, handoff, fingerprint = handoff, "", scene.fingerprint
        await _within_limit(scene, turn)
        transcript = world[TRANSCRIPT]
        reply = await ask_model(scene, scene.request(transcript), turn)
        scene.on_event(Replied(step=turn, text=reply.text, calls=tuple(call.tool for call in reply.calls)))
        if not reply.calls:
            world[TRANSCRIPT] = transcript.append(reply)
            return reply.text
        outcomes = await outcomes_of(scene, world, turn, reply)
        world[TRANSCRIPT] = transcript.extend([reply, *outcomes])
        turn += 1
        handoff = fired(reply, scene.known_transfers).target
        await savepoint(
            "conversation/turn",
            key={"turn": turn},
            resume=take_turns.at(agent, fingerprint, turn, history, handoff),
            state=[TRANSCRIPT],
        )
        layer = LAYER.get()
        scene.on_event(Saved(step=layer.step if isinstance(layer, Journal) else turn))


def _switch(scene: Scene, target: str) -> None:
    """Completes a handoff, before the target's first turn. What fails here interrupts: the savepoint keeps the target."""
    try:
        scene.activate(target)
    except Exception as error:
        raise Stopped(error) from error
    scene.keep_definition()
    scene.on_event(HandedOver(agent=target))


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
