"""SIGINT and SIGTERM: the first one interrupts the run, which then stops at a durable place; the next one kills."""

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

from attrs import define

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@define(kw_only=True, eq=False)
class Interruption:
    """Whether a signal came."""

    came: bool = False


@contextmanager
def interruptible(told: Callable[[], None]) -> Generator[Interruption]:
    """In the block the first signal cancels this task, once, and `told` is called."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    interruption = Interruption()

    def interrupt() -> None:
        interruption.came = True
        # A body that does not end must not keep the process: nothing is lost when it is killed now.
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        told()
        if task is not None:
            task.cancel()

    former = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        loop.add_signal_handler(number, interrupt)
    try:
        yield interruption
    finally:
        if not interruption.came:
            for number, handler in former.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)
