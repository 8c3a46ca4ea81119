"""Where processes die: at a named point, at a system call, or at a time; one line of text and back."""

import re
from collections.abc import Mapping

from attrs import field, frozen

from savepoint._errors import Usage

CALL = "call"
"""`Kill.at` of a system call that lasts, counted over all threads and children of the process"""
TIME = "time"
"""`Kill.at` of a time in milliseconds since the process began"""
_KILL = re.compile(r"(?P<at>[a-z]+(?:\.[a-z]+)?):(?P<nth>\d+)(?P<after>\+?)")
_NEXT = "give it as the report prints it, as in 0@body.after:1,1@call:12+"


@frozen
class Kill:
    """One place to die, such as `body.after:2`, `call:137` (just before it), `call:137+` (just after), `time:350`."""

    at: str
    """the name of a crash point, `call` or `time`"""
    nth: int
    """which arrival, from 1; of `time`, milliseconds"""
    after: bool = False
    """of `call`: once it was made, not before"""

    def __str__(self) -> str:
        return f"{self.at}:{self.nth}{'+' if self.after else ''}"

    @classmethod
    def parse(cls, text: str) -> "Kill":
        """Raises `Usage`."""
        found = _KILL.fullmatch(text)
        if found is None:
            raise Usage(f"{text!r} is not a place to die", next=_NEXT)
        return cls(found["at"], int(found["nth"]), bool(found["after"]))


@frozen
class Schedule:
    """Which of a run's processes dies where; those that are not named live until they end by themselves."""

    kills: Mapping[int, Kill] = field(factory=dict[int, Kill])
    """index of the process, from 0 -> its kill"""

    def then(self, index: int, kill: Kill) -> "Schedule":
        return Schedule({**self.kills, index: kill})

    @property
    def last(self) -> int:
        """The index of the last process that is killed; -1 where none is."""
        return max(self.kills, default=-1)

    def __str__(self) -> str:
        return ",".join(f"{index}@{kill}" for index, kill in sorted(self.kills.items())) or "-"

    @classmethod
    def parse(cls, text: str) -> "Schedule":
        """Raises `Usage`."""
        if text == "-":
            return cls()
        kills: dict[int, Kill] = {}
        for part in text.split(","):
            index, at, kill = part.partition("@")
            if not at or not index.isdecimal():
                raise Usage(f"{part!r} is not a process and a place to die", next=_NEXT)
            kills[int(index)] = Kill.parse(kill)
        return cls(kills)


NO_KILL = Schedule()
