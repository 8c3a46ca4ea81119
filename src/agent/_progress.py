"""What a run tells while it goes on: for display only, nothing depends on it."""

from collections.abc import Callable

from attrs import field, frozen


@frozen(kw_only=True)
class Started:
    run_id: str
    resumed_from: int | None = None
    """step of the savepoint; None for a new run"""
    may_repeat: tuple[str, ...] = ()
    """a fork: effects that its origin performed after the savepoint, and that it may perform again"""


@frozen(kw_only=True)
class TextDelta:
    """A piece of the reply as it comes; what was shown of a failed try comes again in the next."""

    text: str


@frozen(kw_only=True)
class Replied:
    step: int
    text: str
    calls: tuple[str, ...] = ()
    """tool names, in order"""


@frozen(kw_only=True)
class CallBegan:
    call_id: str
    tool: str
    arguments: dict[str, object] = field(factory=dict[str, object])


@frozen(kw_only=True)
class CallEnded:
    call_id: str
    tool: str
    failed: bool
    text: str
    """the outcome as the model is shown it, cut"""
    known: bool = False
    """from the receipt of an earlier attempt, or a decision: nothing was performed now"""


@frozen(kw_only=True)
class Saved:
    """A savepoint was published; `step` starts."""

    step: int


@frozen(kw_only=True)
class HandedOver:
    """The conversation goes on with another agent."""

    agent: str


@frozen(kw_only=True)
class Within:
    """What a nested run tells."""

    call_id: str
    """the tool call that it is the body of"""
    agent: str
    event: "Progress"


@frozen(kw_only=True)
class Ended:
    """How the attempt ended; all that is told of a run that is answered from the store."""

    run_id: str
    status: str
    output: str | None = None
    replayed: bool = False


Progress = Started | TextDelta | Replied | CallBegan | CallEnded | Saved | HandedOver | Within | Ended
OnEvent = Callable[[Progress], None]


def ignore(_: Progress) -> None:
    """The listener of a run that nobody watches."""
