"""Faults in sessions, in handoffs, and in runs inside runs."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from agent import _landing, _loop, _nested, _stored_session
from agent._handoff import fired
from agent._link import Link
from agent._scene import TRANSCRIPT
from savepoint import _play
from savepoint._ambient import fresh_bytes
from savepoint._store import Space


def _landed_twice() -> None:
    """A run's part is appended again by every process that finds the run completed."""

    async def nobody(*_: object) -> None:
        return None

    def write_member(tx: Any, added: Any, member: Any) -> None:
        tx.write(Space.MEMBER, _landing.run_row_key(added.session_id, added.run_id), _landing.write_member(member))

    _landing.member_of = nobody
    _landing._write_member = write_member


def _not_healed() -> None:
    """What did not land before its process died never lands, unless that very run is resumed."""

    async def nothing(*_: object) -> tuple[str, ...]:
        return ()

    Link._heal = nothing  # type: ignore[method-assign]


def _mark_unchecked() -> None:
    """A run goes on, and lands, whatever became of what it stands on in its session."""

    async def stands(*_: object) -> bool:
        return True

    for module in (_landing, _stored_session):
        module.stands = stands  # type: ignore[attr-defined]


def _transfer_in_memory() -> None:
    """A transfer that fired is no part of the savepoint: only this process knows who goes on."""
    publish = _loop.savepoint

    async def forgetful(name: str, *, resume: Any, **more: Any) -> Any:
        return await publish(name, resume=evolve(resume, arguments={**resume.arguments, "handoff": ""}), **more)

    _loop.savepoint = forgetful


def _transfer_first() -> None:
    """A transfer is in a savepoint before the calls beside it were made."""
    outcomes_of = _loop.outcomes_of

    async def early(scene: Any, world: Any, turn: int, reply: Any) -> list[object]:
        if target := fired(reply, scene.known_transfers).target:
            resume = _loop.take_turns.at(scene.agent.name, scene.fingerprint, turn + 1, scene.history, target)
            await _loop.savepoint("conversation/turn", key={"turn": turn + 1}, resume=resume, state=[TRANSCRIPT])
        return await outcomes_of(scene, world, turn, reply)

    _loop.outcomes_of = early


def _begun_anew() -> None:
    """A call of an agent begins another run each time that it is made."""

    run_program = _nested.run_program

    async def anew(program: Any, *, run_id: str, **more: Any) -> Any:
        return await run_program(program, run_id=f"{run_id}{fresh_bytes(6).hex()}", **more)

    _nested.run_program = anew


def _not_merged() -> None:
    """Of a nested run that is found completed only the answer counts: its world was merged already, or so it says."""
    merged = _nested._merged

    async def once(outer: Any, result: Any, place: Any) -> None:
        if not result.replayed:
            await merged(outer, result, place)

    _nested._merged = once


def _inside_not_asked_first() -> None:
    """What is in doubt inside is asked about when the program gets there, beside whatever else runs then."""

    async def later(_: object) -> bool:
        return False

    _play.settle_nested = later


INSIDE: dict[str, Callable[[], None]] = {
    "landed twice": _landed_twice,
    "landing not healed": _not_healed,
    "mark unchecked": _mark_unchecked,
    "transfer in memory": _transfer_in_memory,
    "transfer before the calls beside it": _transfer_first,
    "nested run begun anew": _begun_anew,
    "nested world not merged": _not_merged,
    "inside not asked first": _inside_not_asked_first,
}
