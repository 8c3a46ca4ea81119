"""What a model gives back, and everything that can be wrong with it."""

import difflib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import ClassVar, Protocol

from attrs import field, frozen

from effects._failure import Failure
from savepoint._errors import SavepointError
from savepoint._types import portable

from ._arguments import BadArguments


class ModelError(SavepointError):
    """The model gave no usable answer, and the same request would fare no better."""

    code = "model"
    retryable: ClassVar[bool] = False


class ModelUnavailable(ModelError):
    """No usable answer came this time (busy, unreachable, cut off, empty): the same request may be sent again."""

    code = "model_unavailable"
    retryable: ClassVar[bool] = True

    def __init__(self, message: str, *, next: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, next=next)
        self.retry_after_s = retry_after_s


def whole_text(text: str) -> str:
    """`text` with surrogate pairs joined and lone ones replaced (a stream cuts where it likes): always storable."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


@portable("agent/wanted", version=1)
@frozen(kw_only=True)
class Wanted:
    """A call as the provider sent it; `provider_id` may repeat or be empty, so it identifies nothing here."""

    tool: str = field(converter=whole_text)
    arguments: str = field(converter=whole_text)
    """the provider's text, well-formed or not"""
    provider_id: str = field(default="", converter=whole_text)


@portable("agent/usage", version=1)
@frozen(kw_only=True)
class Usage:
    """Tokens of one answer. The cached ones are among the input, those of reasoning among the output."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


@portable("agent/answer", version=1)
@frozen(kw_only=True)
class Answer:
    """A whole reply. Only `text` and the calls' tools and arguments enter the transcript (`recorded`)."""

    text: str = field(default="", converter=whole_text)
    calls: tuple[Wanted, ...] = ()
    usage: Usage = Usage()
    provider: Mapping[str, object] = field(factory=dict[str, object])
    """opaque, portable, outside every identity: response id, model version, why it stopped"""


class Parses(Protocol):
    """What `sane` needs of a tool."""

    def parse(self, arguments: str, /) -> Mapping[str, object]:
        """The arguments in `arguments`, validated. Raises `BadArguments`."""
        ...


class Trouble(StrEnum):
    """What can be wrong with an answer, and what comes of it."""

    EMPTY = "empty"
    """neither text nor call: `ModelUnavailable`, the request may be sent again"""
    UNKNOWN_TOOL = "UnknownTool"
    """nothing is performed; the call's outcome is a `Failure` that names the known tools"""
    BAD_ARGUMENTS = "BadArguments"
    """not JSON, or not what the schema says: nothing is performed; the outcome is a `Failure` that says what is wrong"""
    DUPLICATE_ID = "duplicate id"
    """harmless: calls go by our own `step.index`"""


@frozen(kw_only=True)
class Problem:
    """One thing wrong with an answer."""

    trouble: Trouble
    message: str
    """for the model, where there is an outcome; else for people"""
    call: int | None = None
    """index of the call, 0-based; `None`: the whole answer"""


def sane(answer: Answer, known: Mapping[str, Parses]) -> tuple[Problem, ...]:
    """Everything that is wrong with `answer`, in the order of its calls."""
    if not answer.calls and not answer.text.strip():
        return (Problem(trouble=Trouble.EMPTY, message="the model answered with neither text nor calls"),)
    found: list[Problem] = []
    seen: set[str] = set()
    for index, wanted in enumerate(answer.calls):
        if wanted.provider_id and wanted.provider_id in seen:
            message = f"two calls carry the id {wanted.provider_id!r}"
            found.append(Problem(trouble=Trouble.DUPLICATE_ID, message=message, call=index))
        seen.add(wanted.provider_id)
        found += _call_problem(index, wanted, known)
    return tuple(found)


def refusals(answer: Answer, known: Mapping[str, Parses]) -> dict[int, Failure]:
    """The outcomes of those calls (by index) that must not be performed. Raises `ModelUnavailable` if it is empty."""
    refused: dict[int, Failure] = {}
    for problem in sane(answer, known):
        if problem.trouble is Trouble.EMPTY:
            raise ModelUnavailable(problem.message, next="ask again; if it goes on, ask another model")
        if problem.call is not None and problem.trouble is not Trouble.DUPLICATE_ID:
            refused[problem.call] = Failure(kind=problem.trouble.value, message=problem.message)
    return refused


def _call_problem(index: int, wanted: Wanted, known: Mapping[str, Parses]) -> list[Problem]:
    tool = known.get(wanted.tool)
    if tool is None:
        return [Problem(trouble=Trouble.UNKNOWN_TOOL, message=_unknown(wanted.tool, known), call=index)]
    try:
        tool.parse(wanted.arguments)
    except BadArguments as error:
        return [Problem(trouble=Trouble.BAD_ARGUMENTS, message=error.message, call=index)]
    return []


def _unknown(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f", did you mean {near[0]!r}?" if near else "."
    return f"there is no tool {name!r}{hint} Known tools: {', '.join(names) or 'none'}"
