"""The only place in this package that touches clocks, randomness and the machine's identity.

Programs get time and randomness from effects (`effects.now`, ...); this is for claims and ids, which no program sees.
"""

import os
import socket
import time
from functools import cache
from pathlib import Path


def fresh_bytes(size: int) -> bytes:
    """Unpredictable bytes, for lineages and generated run ids."""
    return os.urandom(size)


def boot_clock_s() -> float:
    """Seconds of a clock that counts suspend and never jumps. Linux: CLOCK_BOOTTIME; macOS: CLOCK_MONOTONIC_RAW
    does not count sleep, `time.monotonic` (mach_continuous_time is not exposed) is the best there.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def wall_clock_s() -> float:
    """Seconds since 1970; may jump. Never used to order anything or to end a lease."""
    return time.time()


@cache
def boot_id() -> str:
    """Names this boot of this machine: boot clocks compare only within one, kernel locks are only seen within one."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else socket.gethostname()


def process_id() -> int:
    return os.getpid()
