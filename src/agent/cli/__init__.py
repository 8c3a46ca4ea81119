"""The console script `savepoint`."""

import sys
from collections.abc import Sequence

_EXTRA = frozenset({"cyclopts", "rich"})


def main(words: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code. `words`: the arguments, those of this process by default."""
    given = sys.argv[1:] if words is None else list(words)
    try:
        from ._serve import serve  # noqa: PLC0415  without the extra there is only this module
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        return _without_extra(given)
    return serve(given)


def _without_extra(words: Sequence[str]) -> int:
    move = "pip install 'portable-savepoints[cli]'"
    if "--json" in words:
        message = "the command line is not installed"
        print(f'{{"error": {{"code": "usage", "message": "{message}", "next": "{move}"}}}}')
    print(f"savepoint: the command line is not installed (next: {move})", file=sys.stderr)
    return 2
