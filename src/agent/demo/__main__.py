"""`python -m agent.demo [--json] [--keep]`: the demo without the command line's libraries."""

import asyncio
import sys

from savepoint import SavepointError

from . import demo


def main() -> int:
    """The exit code: 0 if all is equal, 1 if not, 130 after Ctrl-C."""
    try:
        return asyncio.run(demo(json="--json" in sys.argv, keep="--keep" in sys.argv))
    except KeyboardInterrupt:
        return 130
    except SavepointError as error:
        sys.stderr.write(f"{error.message}\n{error.next}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
