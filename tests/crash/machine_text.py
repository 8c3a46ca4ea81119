"""A schedule of the state machine as one line of text, and back: `step once; kill body.after:1; resume`."""

import re
from collections.abc import Sequence

from attrs import frozen
from machine_model import LEAVES

from savepoint.testing import CrashPoint

_RUN = re.compile(r"r\d+")
_POINTS = "|".join(re.escape(each) for each in CrashPoint)
_KINDS = "|".join(LEAVES)
_FORMS = {
    "step": re.compile(rf"(?:(?:{_KINDS})!?)(?: (?:{_KINDS})!?)*"),
    "end": re.compile(""),
    "resume": re.compile(""),
    "twice": re.compile(""),
    "kill": re.compile(rf"(?:{_POINTS}):[1-9]\d*"),
    "decide": re.compile("truth|fail|again|against"),
    "fork": re.compile(rf"\d+(?: (?:{_POINTS}):[1-9]\d*)?"),
    "hydrate": re.compile(r"\d+"),
    "full": re.compile(r"\d+"),
    "flip": re.compile(r"\d+ \d+"),
    "clock": re.compile(r"-?\d+"),
}
"""By word what may follow it. Numbers that choose among what is there (`fork`, `hydrate`, `flip`) wrap around."""


class BadSchedule(ValueError):
    """The text is no schedule."""


@frozen
class Command:
    """One rule, about one run."""

    word: str
    run: int = 0
    """`r0` is the run; later ones are its forks, and theirs"""
    rest: str = ""

    def __str__(self) -> str:
        return " ".join(each for each in (self.word, f"r{self.run}" if self.run else "", self.rest) if each)

    @property
    def numbers(self) -> list[int]:
        return [int(each) for each in self.rest.split() if each.lstrip("-").isdecimal()]

    @classmethod
    def parse(cls, text: str) -> "Command":
        """Raises `BadSchedule`."""
        word, *rest = text.split()
        run = int(rest.pop(0)[1:]) if rest and _RUN.fullmatch(rest[0]) else 0
        form = _FORMS.get(word)
        if form is None or not form.fullmatch(" ".join(rest)):
            raise BadSchedule(f"{text!r} is none of: {', '.join(_FORMS)}, with what belongs to it")
        return cls(word, run, " ".join(rest))


def parse(text: str) -> list[Command]:
    """The commands of one line; empty ones are left out. Raises `BadSchedule`."""
    return [Command.parse(each) for each in text.split(";") if each.strip()]


def written(commands: Sequence[Command]) -> str:
    return "; ".join(map(str, commands))


def command_line(commands: Sequence[Command], sabotage: str = "") -> str:
    """What shows a schedule again."""
    planted = f" --sabotage '{sabotage}'" if sabotage else ""
    return f"python tests/crash/replay.py '{written(commands)}'{planted}"
