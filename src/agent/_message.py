"""What a model is shown of a transcript: messages, in a list that grows without being copied."""

from collections.abc import Iterable, Sequence
from typing import cast, overload

from attrs import field, frozen

from savepoint._types import UnknownFields, portable


@frozen(kw_only=True)
class UserMessage:
    content: str


@portable("agent/tool-call", version=1, keeps="unknown")
@frozen(kw_only=True)
class ToolCall:
    """A call of a reply, under our own id: `step.index`."""

    id: str
    tool: str
    arguments: str
    """the provider's text, as it came"""
    unknown: UnknownFields = field(default=(), repr=False)
    """fields that a newer version wrote: kept as they are, and ignored"""


@frozen(kw_only=True)
class AssistantMessage:
    text: str
    calls: tuple[ToolCall, ...] = ()


@frozen(kw_only=True)
class ToolMessage:
    call_id: str
    text: str


Message = UserMessage | AssistantMessage | ToolMessage


class Messages(Sequence[Message]):
    """The first messages of a shared append-only list: extending costs O(new), so turn 10 000 costs what turn 1 did."""

    __slots__ = ("_count", "_items", "replies")

    def __init__(self, items: Iterable[Message] = ()) -> None:
        self._items = list(items)
        self._count = len(self._items)
        self.replies = replies_in(self._items)
        """how many of them are the model's"""

    def extended(self, items: Iterable[Message]) -> "Messages":
        """These and `items`. Extending one view twice copies it, so neither result sees the other's."""
        new = list(items)
        more = Messages.__new__(Messages)
        more._items = self._items if self._count == len(self._items) else self._items[: self._count]
        more._items += new
        more._count = self._count + len(new)
        more.replies = self.replies + replies_in(new)
        return more

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        places = range(self._count)[index]
        return self._items[places] if isinstance(places, int) else [self._items[place] for place in places]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(cast("Sequence[object]", other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Messages({list(self)!r})"


def replies_in(messages: Iterable[Message]) -> int:
    return sum(isinstance(message, AssistantMessage) for message in messages)
