"""Faults in the loop of an agent, and in what it asks people."""

from collections.abc import Callable
from typing import Any

from agent import _loop
from savepoint import _begin, _journal, _program, _questions, _settle
from savepoint._store import Space
from savepoint._unit import Unit


def _limit_anew() -> None:
    """Every process counts the replies of the model from its own first one."""
    within, first = _loop._within_limit, list[int]()

    async def anew(scene: Any, turn: int) -> None:
        first.append(turn)
        await within(scene, turn - first[0])

    _loop._within_limit = anew


def _approvals_revived() -> None:
    """Decisions belong to no lineage: going back to an earlier savepoint finds what was approved, and used, before."""
    about, read = _questions.question_id, _questions.read_decisions

    def question_id(_: bytes, *what: Any) -> str:
        return about(b"", *what)

    async def read_decisions(store: Any, _: bytes, types: Any) -> Any:
        return await read(store, b"", types)

    for module in (_questions, _journal, _settle, _program):
        module.question_id = question_id  # type: ignore[attr-defined]
    for module in (_questions, _begin, _program):
        module.read_decisions = read_decisions  # type: ignore[attr-defined]


def _last_answer_wins() -> None:
    """A later decision replaces an earlier one."""
    expect = Unit.expect

    def lax(self: Unit, space: Space, key: bytes, digest: bytes | None) -> None:
        if space is not Space.DECISION:
            expect(self, space, key, digest)

    Unit.expect = lax  # type: ignore[method-assign]


AGENTS: dict[str, Callable[[], None]] = {
    "limit counted anew": _limit_anew,
    "approvals revived": _approvals_revived,
    "last answer wins": _last_answer_wins,
}
