"""How far a campaign of kills is: one living line on a terminal, a plain line every few seconds elsewhere."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Event, Thread

from attrs import define
from rich.console import Console
from rich.live import Live
from rich.text import Text

from savepoint.crash._campaign import Progress

from ._output import Output

EVERY_S = 5.0
"""Between two plain lines"""


@contextmanager
def shown(progress: Callable[[], Progress], output: Output) -> Generator[None]:
    """Shows it on stderr while the block lasts."""
    if output.err.isatty():
        console = Console(file=output.err, highlight=False)
        with Live(_Line(progress=progress), console=console, transient=True, refresh_per_second=8):
            yield
        return
    over = Event()

    def tell() -> None:
        while not over.wait(EVERY_S):
            output.note(words(progress()))

    thread = Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def words(progress: Progress) -> str:
    """`single kills: 41 of 96 runs, 3 violated, 15.2/s, 42 s left`: short enough for 80 columns."""
    of = "" if progress.planned is None else f" of {progress.planned}"
    told = f"{progress.phase}: {progress.done}{of} runs, {progress.violated} violated, {progress.rate:.1f}/s"
    return f"{told}, {progress.left_s:.0f} s left"


@define(kw_only=True)
class _Line:
    progress: Callable[[], Progress]

    def __rich__(self) -> Text:
        now = self.progress()
        text = Text(words(now), no_wrap=True, overflow="ellipsis")
        text.highlight_words([f"{now.violated} violated"], "bold red" if now.violated else "green")
        text.highlight_words([f"{now.phase}:"], "bold")
        return text
