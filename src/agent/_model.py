"""What a language model is to the loop: one request in, one whole answer out.

Models decide nothing and store nothing; retries belong to the loop, whose receipts know what was paid.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from attrs import frozen

from savepoint._errors import Usage as UsageError

from ._answer import Answer
from ._message import Message, Messages, replies_in


@frozen(kw_only=True)
class ToolSpec:
    """A tool as a model is told of it."""

    name: str
    description: str
    parameters: Mapping[str, object]
    """JSON schema of an object"""


@frozen(kw_only=True)
class Output:
    """The shape that a final text must have."""

    name: str
    schema: Mapping[str, object]
    """JSON schema"""


@frozen(kw_only=True)
class Request:
    """All that an answer may depend on, besides the model's own name and settings."""

    instructions: str = ""
    messages: Sequence[Message] = ()
    tools: tuple[ToolSpec, ...] = ()
    output: Output | None = None
    history: int = 0
    """how many of the first messages come from earlier runs of the session"""

    @property
    def turn(self) -> int:
        """How many answers this run has had before, 0-based."""
        replies = self.messages.replies if isinstance(self.messages, Messages) else replies_in(self.messages)
        return replies - replies_in(self.messages[: self.history])


class Model(Protocol):
    """Something that answers requests. `name` and `settings` are part of an agent's fingerprint."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> Mapping[str, object]:
        """Portable values that change what the model answers; never credentials or addresses."""
        ...

    async def reply(self, request: Request, *, on_text: Callable[[str], None] | None = None) -> Answer:
        """One whole answer; nothing is retried here. Raises `ModelError`; its kind `ModelUnavailable` may be asked again.

        `on_text` sees the text as it comes, for display only: what it saw of a failed attempt comes again in the next.
        """
        ...


def resolve_model(spec: str) -> Model:
    """The model that `openai:NAME` or `script:FILE` names. Raises `savepoint.Usage` for anything else, or what is missing.

    Adapters are imported here and not above: an SDK costs a second that a scripted run need not pay.
    """
    kind, _, rest = spec.partition(":")
    if not rest:
        raise UsageError(f"{spec!r} names no model", next="write openai:NAME or script:FILE")
    if kind == "openai":
        from ._openai import OpenAIModel

        return OpenAIModel(rest)
    if kind == "script":
        from ._script import read_script

        return read_script(Path(rest))
    if kind == "anthropic":
        raise UsageError(
            f"{spec!r}: there is no Anthropic adapter in this version",
            next="write openai:NAME with OPENAI_BASE_URL set to a compatible endpoint, or give the agent a Model of your own",
        )
    raise UsageError(f"{spec!r}: unknown kind of model {kind!r}", next="write openai:NAME or script:FILE")
