"""What can be explored: a program that is run in a directory, killed, and run again until it is done."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from attrs import field, frozen

from ._kill import Kill, Schedule
from ._verdict import Verdict, Violation, worst


@frozen(kw_only=True)
class Life:
    """One process of a run."""

    killed: bool = False
    done: bool = False
    """the run needs no more processes"""
    arrivals: Sequence[Kill] = ()
    """where it could have died, in order; of a process that was killed, nothing"""
    lasting: Sequence[str] = ()
    """per arrival what would have lasted, as a fingerprint, where the target was asked for it (`lasting`)"""
    seen: Mapping[str, Any] = field(factory=dict[str, Any])
    """what else the target tells of it; `parked`: the run waits, and nobody is there to answer"""


class Target(Protocol):
    """A program that can be run in a directory of its own, killed, and run again until it is done."""

    @property
    def name(self) -> str: ...

    @property
    def variants(self) -> Sequence[Mapping[str, Any]]:
        """The settings of unkilled runs that are right, the plain one first: `({},)` for nearly all."""
        ...

    def live(self, place: Path, past: Sequence[Life], kill: Kill | None, setting: Mapping[str, Any]) -> Life:
        """One process in the directory `place`, after those of `past`, dying at `kill` if it gets there."""
        ...

    def history(self, place: Path, lives: Sequence[Life]) -> Any:
        """All that was seen of a run, while its directory is still there."""
        ...

    def judge(self, history: Any, references: Sequence[Any]) -> list[Violation]:
        """What is wrong with it, beside unkilled runs."""
        ...


@frozen(kw_only=True)
class Story:
    """One run from its start to its end."""

    schedule: Schedule
    setting: Mapping[str, Any] = field(factory=dict[str, Any])
    lives: Sequence[Life]
    history: Any
    violations: Sequence[Violation] = ()

    @property
    def verdict(self) -> Verdict:
        """The one word for it."""
        return worst(list(self.violations), parked=bool(self.lives[-1].seen.get("parked")))
