"""Shows a schedule of the state machine again: `python tests/crash/replay.py 'step once; kill body.after:1; resume'`.

Exit 0 where all was as the model says, 1 where not, 2 where the text is no schedule.
"""

import argparse
import sys
from pathlib import Path

for each in (Path(__file__).parent, Path(__file__).parents[2] / "src"):
    sys.path.insert(0, str(each))

from machine_bench import Bench, Wrong, server  # noqa: E402  the path was not known before
from machine_text import BadSchedule, parse  # noqa: E402
from machine_ways import can_fill_disk  # noqa: E402


def replayed(text: str, sabotage: str = "") -> None:
    """Raises `Wrong`, `BadSchedule`."""
    commands = parse(text)
    with server() as lives, Bench(lives, sabotage=sabotage, disk=can_fill_disk()) as bench:
        bench.all(commands)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("schedule")
    parser.add_argument("--sabotage", default="", help="a fault to plant (tests/crash/sabotage.py)")
    told = parser.parse_args()
    try:
        replayed(told.schedule, told.sabotage)
    except BadSchedule as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except Wrong as error:
        sys.stdout.write(f"{error}\n")
        return 1
    sys.stdout.write("as the model says\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
