"""What a scan may believe without reading: the stat of a file that was read before, and nodes encoded before.

The racy rule: two writes within one tick of the clock leave the same stat, so an entry is kept only if the file had
last changed at least a tick before it was read. `st_ctime` decides, which every write moves and nobody can set.
"""

import os
import time

from attrs import define, field, frozen

from ._ignore import Ignore
from ._manifest import Entry, Times
from ._system import Contents

_TICK_NS = 20_000_000
"""Kernels stamp files with the time of the last timer tick, 1 to 10 ms."""
_COARSE_TICK_NS = 2_000_000_000
"""A stamp without a fraction may come from a file system that counts whole seconds, or two."""
_SECOND_NS = 1_000_000_000

Stat = tuple[int, int, int, int, int, int]


def stat_key(stat: os.stat_result) -> Stat:
    """Device, inode, size, mtime, ctime, mode: what differs when a file was written or replaced."""
    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_mode)


def now_ns() -> int:
    """The clock that stamps files on this machine (a file server's may differ by more than a tick)."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_REALTIME_COARSE", time.CLOCK_REALTIME))


@frozen(kw_only=True)
class Node:
    """A directory as it was stored."""

    entries: tuple[Entry, ...]
    ref: bytes
    times: Times
    times_ref: bytes


@define(kw_only=True)
class StatCache:
    """One tree's cache, good for one `contents` only: what it names is stored there."""

    contents: Contents | None = None
    ignore: Ignore | None = None
    """the rules under which these paths were found; others must be asked again"""
    files: dict[bytes, tuple[Stat, Entry]] = field(factory=dict[bytes, tuple[Stat, Entry]])
    nodes: dict[bytes, Node] = field(factory=dict[bytes, Node])

    def keep(self, path: bytes, stat: os.stat_result, entry: Entry, read_at_ns: int) -> None:
        """Remembers that the file with this stat is `entry`, unless a later write could hide behind it."""
        tick = _TICK_NS if stat.st_ctime_ns % _SECOND_NS else _COARSE_TICK_NS
        if stat.st_ctime_ns < read_at_ns - tick:
            self.files[path] = (stat_key(stat), entry)
