"""Generic handlers for any effects: allow, deny, quota, record, replay, faults. All are interceptors."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from attrs import frozen

from ._call import Call
from ._errors import BadDeclaration, Refused
from ._handler import AnyEffect, Forward, Handling, intercept, names_of

Which: TypeAlias = "AnyEffect | str"


def allow(*which: Which) -> Handling:
    """Refuses every effect but these, at any depth: what an allowed effect's body performs must be allowed too."""
    names = names_of(which)

    async def permit(call: Call, forward: Forward) -> object:
        if call.name in names:
            return await forward(call)
        raise Refused(call.name, "it is not among the allowed effects", next=f"add {call.name} to allow(...)")

    return intercept(permit)


def deny(*which: Which, reason: str = "it is denied here") -> Handling:
    """Refuses these effects before anything happens."""
    if not which:
        raise BadDeclaration("deny() names no effect", next="name the effects, or use allow() to refuse all of them")

    async def refuse(call: Call, forward: Forward) -> object:
        raise Refused(call.name, reason, next="do without it, or ask whoever denied it")

    return intercept(refuse, only=which)


def quota(limits: Mapping[Which, int]) -> Handling:
    """Refuses an effect once it was performed that many times here, failed ones included.

    The count lives in this object: a resumed run starts at 0. What must hold over all attempts is a budget.
    """
    left = Counter({name: limit for which, limit in limits.items() for name in names_of([which])})

    async def count(call: Call, forward: Forward) -> object:
        if left[call.name] <= 0:
            raise Refused(call.name, "its quota is used up", next="raise the quota, or do without it")
        left[call.name] -= 1
        return await forward(call)

    return intercept(count, only=limits)


@frozen(kw_only=True)
class Recorded:
    """One performed effect and how it ended."""

    name: str
    version: int
    arguments: Mapping[str, object]
    result: object = None
    error: Exception | None = None

    def answers(self, call: Call) -> bool:
        return (self.name, self.version, self.arguments) == (call.name, call.version, call.arguments)


def record(into: list[Recorded]) -> Handling:
    """Appends each effect that ends, inner ones before those that performed them.

    The values are those of the program, not copies. A cancelled or parked call has no end and is left out.
    """

    async def note(call: Call, forward: Forward) -> object:
        def end(result: object, error: Exception | None) -> None:
            arguments = dict(call.arguments)
            recorded = Recorded(name=call.name, version=call.version, arguments=arguments, result=result, error=error)
            into.append(recorded)

        try:
            result = await forward(call)
        except Exception as error:
            end(None, error)
            raise
        end(result, None)
        return result

    return intercept(note)


def replay(recorded: Iterable[Recorded]) -> Handling:
    """Answers every effect as recorded, equal calls in their recorded order; refuses what was not recorded."""
    rest = list(recorded)

    async def answer(call: Call, forward: Forward) -> object:
        found = next((each for each in rest if each.answers(call)), None)
        if found is None:
            raise Refused(call.name, "no such call is left in the recording", next="record again, or call as before")
        rest.remove(found)
        if found.error is not None:
            raise found.error
        return found.result

    return intercept(answer)


@frozen(kw_only=True)
class Fault:
    """One planned failure."""

    effect: Which
    error: BaseException
    nth: int = 1
    """Which performance of that effect fails, counted from 1."""
    answered: bool = False
    """`True`: the call happens and its answer is lost; else it never happens."""


def faults(plan: Sequence[Fault]) -> Handling:
    """Raises the planned errors at the perform points, outside the receipts: the layer sees the calls that happen.

    To lose an answer between a body and its receipt, let the outside (or a handler's fake of it) raise.
    """
    planned = {(name, each.nth): each for each in plan for name in names_of([each.effect])}
    if len(planned) < len(plan):
        raise BadDeclaration("two faults are planned for one call", next="give each its own nth")
    seen = Counter[str]()

    async def fail(call: Call, forward: Forward) -> object:
        seen[call.name] += 1
        fault = planned.get((call.name, seen[call.name]))
        if fault is None:
            return await forward(call)
        if fault.answered:
            await forward(call)
        raise fault.error

    return intercept(fail, only=[each.effect for each in plan])
