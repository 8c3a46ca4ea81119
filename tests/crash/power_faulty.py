"""`power_program` with a planted fault, on a disk that may fail: `power_faulty.py SABOTAGE DISK ARGUMENTS...`.

SABOTAGE `-`: none. DISK `-`: whole; `pack`: the sync of a pack that makes the first turn's world durable fails, and as
a kernel does it then, the next one of it says that all is well though what was to be written is gone.
"""

import errno
import os
import runpy
import sys
from pathlib import Path


def _failing() -> None:
    """From outside of the program, as a disk fails: whatever it calls `os.fsync` for."""
    sync, gone, begun = os.fsync, set[int](), set[int]()

    def fsync(fd: int) -> None:
        inode = os.fstat(fd).st_ino
        name = str(Path(f"/proc/self/fd/{fd}").readlink())
        if name.endswith(".pack") and inode in begun and not gone:
            gone.add(inode)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        begun.add(inode)
        if inode not in gone:
            sync(fd)

    os.fsync = fsync


def main() -> None:
    sabotage, disk, *arguments = sys.argv[1:]
    if disk == "pack":
        _failing()
    if sabotage != "-":
        from sabotage import SABOTAGES

        SABOTAGES[sabotage]()
    sys.argv = ["power_program.py", *arguments]
    runpy.run_path(str(Path(__file__).with_name("power_program.py")), run_name="__main__")


if __name__ == "__main__":
    main()
