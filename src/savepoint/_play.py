"""Entering a claimed run and ending the attempt, however it ends."""

import asyncio
import contextlib
from collections.abc import Coroutine, Generator
from contextvars import ContextVar
from typing import Any, cast

from attrs import evolve

from effects import EffectError, Parked
from effects._call import CURRENT
from effects._failure import Failure, failure_of
from effects._layer import LAYER

from ._attempt import Attempt
from ._codec import encode
from ._crashpoint import CrashPoint, reach
from ._ending import Played, end_attempt
from ._errors import Halted, Held, SavepointError, Stopped, Superseded
from ._frame import in_frame
from ._gap import pass_gap
from ._point import Abandoned, End, Point, at_savepoint, publish_end, savepoint, until_abandoned, using_world
from ._resumable import CURRENT_RUN, Bound
from ._run import RunStatus
from ._settle import Failing, settle_doubts, settle_poison
from ._settle_nested import settle_nested
from ._world import Snapshot, World

_CONTROL = (Superseded, Halted, Stopped, Parked, Abandoned, KeyboardInterrupt, SystemExit, asyncio.CancelledError)


_PLAYING: ContextVar[Attempt | None] = ContextVar("savepoint_playing", default=None)
"""whose program is running"""


async def play(attempt: Attempt) -> Played:
    """Settles what is in doubt, forks the world, enters the resume function, and commits how it ended.

    Raises `Held` (the run was lost to another attempt), what stopped the attempt (`NotWritable`, ...), and
    cancellation, after the run is marked interrupted.
    """
    try:
        async with attempt.claim.renewing(asyncio.current_task()):
            return await _played(attempt)
    except Superseded:
        run_id = attempt.record.run_id
        raise Held(f"run {run_id} was taken over by another attempt", next=f"savepoint show {run_id}") from None
    except Halted as halted:
        raise halted.cause from halted
    finally:
        attempt.claim.release()


async def leave(attempt: Attempt) -> Played:
    """Gives a claimed run back without entering it."""
    try:
        return await end_attempt(attempt, RunStatus.INTERRUPTED)
    finally:
        attempt.claim.release()


async def _played(attempt: Attempt) -> Played:
    try:
        if await settle_poison(attempt) or await settle_nested(attempt) | bool(await settle_doubts(attempt)):
            return await end_attempt(attempt, RunStatus.WAITING)
        async with attempt.world() as world:
            attempt.journal.world = world
            return await _enter(attempt, world)
    except (Parked, asyncio.CancelledError, KeyboardInterrupt, SystemExit) as stop:
        return await _stopped(attempt, stop)
    except Stopped as stopped:
        return await end_attempt(attempt, RunStatus.INTERRUPTED, error=_failure(stopped.cause))
    except Failing as failing:
        return await end_attempt(attempt, RunStatus.FAILED, error=failing.failure)
    except Exception:
        # Before the program was entered: the claim is given back, so that the cause can be mended and resumed.
        await end_attempt(attempt, RunStatus.INTERRUPTED)
        raise
    except Halted:
        with contextlib.suppress(SavepointError):  # the store may be what fails: then the free lock tells it
            await end_attempt(attempt, RunStatus.INTERRUPTED)
        raise


async def _stopped(attempt: Attempt, stop: BaseException) -> Played:
    """Ends an attempt that waits, or that somebody stops. What stopped it goes on, unless it was a wish about the run."""
    if not isinstance(stop, Parked) and await attempt.over():
        raise stop  # it came while or after the commit that ended the attempt was made
    waits = isinstance(stop, Parked) or attempt.journal.parked
    status = RunStatus.WAITING if waits else RunStatus.INTERRUPTED
    played = await end_attempt(attempt, RunStatus.CANCELLED if attempt.claim.cancel_wanted else status)
    task = asyncio.current_task()
    if attempt.claim.cancel_wanted and task is not None:
        task.uncancel()
        return played
    if not isinstance(stop, Parked):
        raise stop
    if task is not None and task.cancelling():
        # The caller's cancellation met a call in flight, which is in doubt now: the run waits, and the caller is told.
        raise asyncio.CancelledError from stop
    return played


async def _enter(attempt: Attempt, world: World) -> Played:
    journal = attempt.journal
    try:
        with _scope(attempt, world):
            reach(CrashPoint.ENTER)
            value = await _unwrapped(call(attempt.savepoint.resume, world, attempt.record.run_id))
            await journal.close_step()
            result = encode(value, "the result of the run")
            attempt.warnings += await publish_end(End(status="result", value=value), world)
    except Abandoned:
        attempt.warnings += await publish_end(End(status="abandoned"), world)
        return await end_attempt(attempt, RunStatus.CANCELLED)
    except Exception as error:  # noqa: BLE001  whatever the program raises is how it ended
        await journal.close_step()
        attempt.warnings += await publish_end(End(status="error", value=error), world)
        return await end_attempt(attempt, RunStatus.FAILED, error=_failure(error))
    await journal.finish()
    final = await _final(attempt, world)
    state = encode(dict(world.cells), "the state at the end")
    played = await end_attempt(attempt, RunStatus.COMPLETED, result=result, final=final, state=state)
    return evolve(played, value=result.value)


async def _final(attempt: Attempt, world: World) -> Snapshot | None:
    """The world at the end. Where it cannot be captured, the run is completed all the same, and cannot be merged."""
    try:
        if world.read_only and (changed := await attempt.journal.put_back()):
            attempt.warnings.append(f"the world of this run is read-only; undone at its end: {', '.join(changed)}")
        return await world.snapshot(attempt.store.contents)
    except SavepointError as error:
        attempt.warnings.append(f"the world at the end could not be captured, so it cannot be merged: {error.message}")
        return None


def _failure(error: Exception) -> Failure:
    failure = failure_of(error)
    move = error.next if isinstance(error, SavepointError | EffectError) else ""
    return evolve(failure, message=f"{failure.message} (next: {move})") if move else failure


async def _unwrapped(program: Coroutine[Any, Any, Any]) -> Any:
    """What a task group wraps is raised as itself where it is no failure of the program: parking, an interruption."""
    try:
        # A task of its own: before Python 3.13 a task group that fails leaves its task marked as cancelled, which must
        # not be taken for a cancellation of the run.
        return await asyncio.create_task(program)
    except BaseExceptionGroup as group:
        for kind in _CONTROL:
            if (found := _first(group, kind)) is not None:
                raise found from group
        raise


def _first(error: BaseException, kind: type[BaseException]) -> BaseException | None:
    if isinstance(error, BaseExceptionGroup):
        inner = cast("tuple[BaseException, ...]", error.exceptions)
        return next((found for each in inner if (found := _first(each, kind)) is not None), None)
    return error if isinstance(error, kind) else None


@contextlib.contextmanager
def _scope(attempt: Attempt, world: World) -> Generator[None]:
    """What the program runs in: the journal as the layer, its world, its savepoints persisted."""

    async def persist(point: Point) -> Any:
        if point.end is not None:
            return None
        if _PLAYING.get() is not attempt:  # a run nested in this one: its savepoints are not this one's
            return await savepoint(
                point.name, key=point.key, resume=point.resume, state=point.state, default=point.default
            )
        if why := await pass_gap(attempt.journal, point):
            attempt.warnings.append(f"no savepoint at step {attempt.journal.step}: {why}")
        # A handler further out sees the point too; what it returns is what the program goes on with.
        return await savepoint(point.name, key=point.key, resume=point.resume, state=point.state, default=point.default)

    token, playing = LAYER.set(attempt.journal), _PLAYING.set(attempt)
    try:
        with in_frame(attempt.journal.root), using_world(world), at_savepoint(persist):
            yield
    finally:
        _PLAYING.reset(playing)
        LAYER.reset(token)


async def call(resume: Bound, world: World, run_id: str) -> Any:
    """Enters a resume function with its arguments."""
    token = CURRENT.set(None)  # entered from a body, it is no part of that body
    arguments = {name: run_id if value == CURRENT_RUN else value for name, value in resume.arguments.items()}
    try:
        with until_abandoned():
            return await resume.resumable.enter(world, arguments)
    finally:
        CURRENT.reset(token)
