"""What was seen of one run of ours, killed or not: the data that every verdict is made from."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from attrs import field, frozen


class Performed(Protocol):
    """One change of the outside, as its own ledger has it."""

    @property
    def kind(self) -> str:
        """The idempotency class."""
        ...

    @property
    def tag(self) -> str:
        """The logical place in the program: equal for the same call of every attempt, whatever its arguments."""
        ...

    @property
    def arguments(self) -> Sequence[object]: ...

    @property
    def key(self) -> str:
        """The idempotency key."""
        ...


@frozen(kw_only=True)
class Asked:
    """A question of a run that waits."""

    kind: str
    effect: str
    key: str
    """the idempotency key of the call that it is about"""


@frozen(kw_only=True)
class Lived:
    """What one process did, and found when it began. Of one that was killed, only what it did is known."""

    killed: bool
    entered: Sequence[str] = ()
    """tags of the bodies that it entered"""
    was: str | None = None
    """the run's status when it began"""
    unsettled: Sequence[str] = ()
    """idempotency keys of the ONCE and KEYED calls that then had an intent and no outcome"""
    undecided: Sequence[str] = ()
    """those of them that no decision settles, the answers that it was given included"""
    open_before: int = 0
    """questions that stayed open, after the answers that it was given"""
    status: str = ""
    """the run's status when it ended by itself"""
    questions: Sequence[Asked] = ()
    """what the run waits for then"""


@frozen(kw_only=True)
class Ended:
    """How a completed run stands, as text that two runs can be compared by."""

    value: str
    """its result (of an agent: its output and transcript)"""
    world: str
    points: Mapping[int, str] = field(factory=dict[int, str])
    """step -> what its savepoint holds"""
    ids: Mapping[int, str] = field(factory=dict[int, str])
    """step -> the savepoint's identity"""
    inside: Sequence[str] = ()
    """how each run nested in it stands, its savepoints too; sorted"""
    receipts: Mapping[str, str] = field(factory=dict[str, str])
    """idempotency key -> newest status of the call"""
    decided: Sequence[tuple[str, str, str]] = ()
    """kind, effect, verdict of each question that was answered"""
    unpaired: Sequence[str] = ()
    """what breaks the pairing of calls and outcomes, in any stored transcript"""


@frozen(kw_only=True)
class History:
    """A run from its start to its end."""

    lives: Sequence[Lived]
    ledger: Sequence[Performed]
    ended: Ended | None
    requests: Sequence[object] = ()
    """per process a list of the replies that were durable when it began, then those that it asked for: the step, or text
    that begins with the place and goes on with who was asked
    """
    host: str = ""
    """the host world's content"""


@frozen(kw_only=True)
class Promise:
    """What a target promises more, or less, than all do."""

    perturbed: bool = False
    """it is *not* deterministic: divergence is right, equivalence is not asked"""
    strict: bool = False
    """a call that was performed may be asked about"""
    no_questions: bool = False
    """a truthful and final probe settles every doubt"""
    lost_world: bool = False
    """a decision `performed` lost what a call wrote to the world"""
    fresh: bool = False
    """values observed anew are in its savepoints, so their identities differ from run to run"""
    interrupted: bool = False
    """a process may end before the run does, unkilled"""
    skips: bool = False
    """some of its savepoints cannot be persisted, in some processes"""
