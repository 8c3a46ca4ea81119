"""Progress on a terminal: what is done scrolls by, a line a call; what is going on stands below it, alive."""

from collections.abc import Generator
from contextlib import contextmanager

from attrs import define, field
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from agent._progress import (
    CallBegan,
    CallEnded,
    HandedOver,
    Progress,
    Replied,
    Saved,
    Started,
    TextDelta,
    Within,
)
from savepoint._ambient import boot_clock_s

from ._lines import Watch, arguments_of, as_line
from ._output import one_line, printable

_TAIL = 6
"""Lines of a reply that are shown while it comes."""
_SLOW_S = 1.0
"""Calls that took longer say how long."""


@contextmanager
def live(console: Console) -> Generator[Watch]:
    """Shows events as they come; at the end the lower part is gone and the lines stay."""
    display = _Display(console=console)
    with Live(display, console=console, transient=True, refresh_per_second=12) as region:
        display.region = region
        yield display.see


@define(kw_only=True, eq=False)
class _Display:
    console: Console
    region: Live | None = None
    text: str = ""
    running: dict[str, tuple[CallBegan, float]] = field(factory=dict[str, tuple[CallBegan, float]])
    thinking: Spinner = field(factory=lambda: Spinner("dots", style="cyan"))
    busy: bool = False

    def see(self, event: Progress) -> None:
        match event:
            case Started():
                self.busy = True
                origin = "started" if event.resumed_from is None else f"resumed from step {event.resumed_from}"
                if event.may_repeat:
                    origin += f"; it may do again what its origin did: {', '.join(event.may_repeat)}"
                self._print(Text.assemble(("run ", "dim"), (printable(event.run_id), "bold"), (f" {origin}", "dim")))
            case TextDelta():
                self.text += event.text
            case Replied():
                self.text = ""
                if event.calls and event.text.strip():
                    self._print(Text(printable(event.text.strip())))
            case CallBegan():
                self.running[event.call_id] = (event, boot_clock_s())
            case CallEnded():
                self._print(self._ended(event))
            case Saved() | HandedOver() | Within(event=CallEnded() | HandedOver()):
                style = "bold" if isinstance(event, HandedOver) else "dim"
                self._print(Text(f"  {printable(as_line(event))}", style=style, no_wrap=True, overflow="ellipsis"))
            case _:  # the rest of what a nested run tells; the end, which the command tells itself
                pass

    def _ended(self, event: CallEnded) -> RenderableType:
        """Call and outcome on one line: the call takes at most half of it."""
        began, since = self.running.pop(event.call_id, (None, 0.0))
        room = max(20, self.console.width - 6)
        took = boot_clock_s() - since
        time = f" {took:.1f} s" if began is not None and took >= _SLOW_S else ""
        given = "" if began is None else arguments_of(began.arguments, max(8, room // 2 - len(event.tool) - 2))
        sign, style = ("✗", "red") if event.failed else ("✓", "green")
        if event.known:
            sign, style = "=", "cyan"
        call = f"{event.tool}({given})"
        words = f"{event.text.removeprefix('Failed: ')}{' (from its receipt)' if event.known else ''}"
        outcome = one_line(words, max(8, room - len(call) - len(time) - 3))
        return Text.assemble(
            (f"  {sign} ", style), (printable(event.tool), "bold"), f"({given})", (f" → {outcome}", "dim"), (time, "cyan"),
            no_wrap=True, overflow="ellipsis",
        )  # fmt: skip

    def _print(self, what: RenderableType) -> None:
        self.console.print(what)

    def __rich__(self) -> RenderableType:
        """The lower part."""
        if not self.busy:
            return Text("")
        parts: list[RenderableType] = []
        if self.text.strip():
            wrapped = Text(printable(self.text.strip())).wrap(self.console, self.console.width)
            parts += list(wrapped)[-_TAIL:]
        parts.append(self._status())
        return Group(*parts)

    def _status(self) -> RenderableType:
        grid = Table.grid(padding=(0, 1))
        if not self.running:
            grid.add_row(self.thinking, Text("the model is at work", style="dim"))
        for began, since in self.running.values():
            call = f"{began.tool}({arguments_of(began.arguments, max(8, self.console.width - len(began.tool) - 16))})"
            grid.add_row(
                self.thinking, Text(f"{call} {boot_clock_s() - since:.0f} s", no_wrap=True, overflow="ellipsis")
            )
        return grid
