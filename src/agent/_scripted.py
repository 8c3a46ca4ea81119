"""A model that plays fixed turns: offline, deterministic, and the same in a fresh process, for it counts nothing itself.

Which turn is played follows from the request, so a rebuilt model continues where the run is.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from attrs import evolve, frozen

from savepoint._errors import Usage as UsageError

from ._answer import Answer, ModelError, Usage, Wanted
from ._model import Request


@frozen(kw_only=True)
class Turn:
    """One scripted answer; made by `say`, `call` and `calls`."""

    text: str = ""
    calls: tuple[Wanted, ...] = ()


Script: TypeAlias = Sequence[Turn | Callable[[Request], Turn]]
"""A turn may be a function of the request, for answers that depend on what was said before; it should be pure."""


def say(text: str) -> Turn:
    """A turn that is only text: the end of a run."""
    return Turn(text=text)


def call(tool: str, /, *, _id: str | None = None, _raw: str | None = None, **arguments: object) -> Turn:
    """A turn that asks for one call. `_raw` is the arguments' text as it is, well-formed or not; `_id` the provider's id."""
    if _raw is not None and arguments:
        raise UsageError(f"call({tool!r}): both _raw and arguments", next="give one of the two")
    text = _raw if _raw is not None else _json(tool, arguments)
    return Turn(calls=(Wanted(tool=tool, arguments=text, provider_id=_id or ""),))


def calls(*turns: Turn) -> Turn:
    """One turn of several: `calls(say("both:"), call("a"), call("b"))`."""
    return Turn(
        text="".join(turn.text for turn in turns),
        calls=tuple(wanted for turn in turns for wanted in turn.calls),
    )


def _json(tool: str, arguments: Mapping[str, object]) -> str:
    try:
        return json.dumps(arguments, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"call({tool!r}): {error}", next="give JSON values, or the text itself as _raw") from None


class ScriptedModel:
    """Plays turn n for a request that follows n answers of its run (`Request.turn`).

    Past the last turn it raises `ModelError`. Every answer reports the same `usage`.
    """

    def __init__(self, turns: Script, *, name: str = "scripted", usage: Usage | None = None) -> None:
        self._turns = tuple(turns)
        self._usage = usage or Usage()
        self._name = name
        self.asked = 0
        """how often this object was asked: a resumed run asks only for what was never answered"""
        self.requests: list[Request] = []
        """what it was asked, oldest first"""

    @property
    def name(self) -> str:
        return self._name

    @property
    def settings(self) -> Mapping[str, object]:
        return {}

    async def reply(self, request: Request, *, on_text: Callable[[str], None] | None = None) -> Answer:
        self.asked += 1
        self.requests.append(request)
        turn = self._turn(request)
        if on_text is not None:
            for piece in re.findall(r"\S+\s*|\s+", turn.text):
                on_text(piece)
        return Answer(
            text=turn.text,
            calls=tuple(_with_id(wanted, request.turn, index) for index, wanted in enumerate(turn.calls)),
            usage=self._usage,
            provider={"id": f"scripted-{request.turn}"},
        )

    def _turn(self, request: Request) -> Turn:
        if request.turn >= len(self._turns):
            raise ModelError(
                f"the script has {len(self._turns)} turns and the run asks for turn {request.turn + 1}",
                next="add a turn, or end the script with say(...)",
            )
        turn = self._turns[request.turn]
        return turn if isinstance(turn, Turn) else turn(request)


def _with_id(wanted: Wanted, turn: int, index: int) -> Wanted:
    return wanted if wanted.provider_id else evolve(wanted, provider_id=f"scripted-{turn}-{index}")
