"""How the demo looks: lines of what happens with the time, the question as a person meets it, the comparison.

Plain text for pipes, colours and boxes for a terminal. It writes and decides nothing.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TextIO

from ._panel import Style, columns, cut, panel, width

_QUIET = frozenset({"list", "read", "search"})
"""Tools whose answers are long, and not what the demo is about."""


class Screen:
    """Writes to `stream`; the lines of a run carry the seconds since its `begin`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.style = Style.of(stream)
        self._width = max(60, min(width(stream), 120))
        self._begun = 0.0

    def say(self, text: str = "") -> None:
        with suppress(OSError):  # a reader that goes away stops nothing
            self._stream.write(text + "\n")
            self._stream.flush()

    def begin(self, run_id: str, title: str) -> None:
        self._begun = asyncio.get_running_loop().time()
        self.say(f"\n{self.style.bold(f'run {run_id}')}: {title}")

    def show(self, event: Mapping[str, Any]) -> None:
        """A line for what a run tells of itself, if it is worth one."""
        match event:
            case {"event": "Started", "resumed_from": None}:
                self.note("started")
            case {"event": "Started", "resumed_from": step}:
                self.note(f"goes on from savepoint {step}")
            case {"event": "CallBegan", "tool": str(tool), "arguments": arguments}:
                self._line(f"{tool:<12} {_brief(arguments)}")
            case {"event": "CallEnded", "tool": tool, "text": str(text), "known": known} if tool not in _QUIET:
                how = " (from its receipt, not made again)" if known else ""
                self._line(f"{'':<12} {self.style.arrow} {_ending(text)}{how}")
            case {"event": "Saved", "step": step}:
                self._line(self.style.dim(f"{'':<12} savepoint {step}"))
            case {"event": "Result", "status": str(status)}:
                self.note(status, self.style.good if status == "completed" else self.style.warn)
            case _:
                pass

    def note(self, text: str, colour: Any = None) -> None:
        self._line((colour or self.style.bold)(text))

    def killed(self, effect: str, posts: int) -> None:
        """`posts`: how many of the run's the outside has."""
        self.note(f"killed (SIGKILL) inside {effect}; the outside has {_posts(posts)}", self.style.bad)

    def counted(self, posts: int) -> None:
        self._line(f"the outside has {_posts(posts)} of this run")

    def question(self, run_id: str, question: Mapping[str, Any], verdict: str, value: object, posts: int) -> None:
        """The question as the command line shows it, where the answer was looked up, and the answer."""
        command = f"savepoint decide {run_id} {question['id']} {verdict}"
        if value is not None:
            command += f" --value '{json.dumps(value)}'"
        lines = [
            f"{question['effect']}({_brief(question['arguments'])})",
            question["why"],
            f"answers: {', '.join(question['verdicts'])}",
            f"the outside's ledger has {_posts(posts)} of this run, hence:",
            self.style.bold(command),
        ]
        for line in panel(f"question {question['id']}: {question['kind']}", lines, self._width - 9, self.style):
            self.say(f"{'':9}{line}")

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        self.say()
        for index, line in enumerate(columns(rows)):
            self.say(self.style.bold(line) if index == 0 else line)

    def _line(self, text: str) -> None:
        passed = asyncio.get_running_loop().time() - self._begun
        self.say(f"{self.style.dim(f'{passed:7.2f}')}  {cut(text, self._width - 9)}")


def _brief(arguments: Mapping[str, object]) -> str:
    """The first text among the arguments tells most; the rest is in the log."""
    texts = [value for value in arguments.values() if isinstance(value, str)]
    return texts[0] if texts else ", ".join(f"{name}={value}" for name, value in arguments.items())


def _ending(text: str) -> str:
    """The last line of an output; with the exit code after it, where it has one."""
    lines = text.strip().splitlines() or [""]
    if lines[-1].startswith("[exit code") and len(lines) > 1:
        return f"{lines[-1]} {lines[-2]}"
    return " ".join(lines[-1].split())


def _posts(count: int) -> str:
    return {0: "no post", 1: "1 post"}.get(count, f"{count} posts")
