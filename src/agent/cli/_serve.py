"""One command from its words to its exit code: parsing, running, and every error told in one line."""

import asyncio
import inspect
import sys
import traceback
from collections.abc import Sequence
from typing import cast

from cyclopts import CycloptsError, UnusedCliTokensError

from effects import EffectError
from savepoint import SavepointError

from ._app import app
from ._common import VOICE
from ._exit import OF_CODE, Exit
from ._input import STDIN
from ._output import Output, streams


def serve(words: Sequence[str]) -> int:
    """The exit code of `savepoint WORDS`."""
    json_only, debug = "--json" in words, "--debug" in words
    # The demo has no program of others in it, and prints for itself.
    with streams(json_only=json_only and words[:1] != ["demo"]) as (out, err):
        output = Output(json=json_only, out=out, err=err)
        try:
            return _perform(words, output)
        except CycloptsError as error:
            output.fail("usage", *_usage(error, words))
            return Exit.USAGE
        except (SavepointError, EffectError) as error:
            _trace(debug=debug)
            output.fail(error.code, error.message, error.next)
            return OF_CODE.get(error.code, Exit.FAILED)
        except (KeyboardInterrupt, asyncio.CancelledError):
            output.fail("interrupted", "interrupted", "")
            return Exit.INTERRUPTED
        except Exception as error:  # noqa: BLE001  whatever it is, a person gets one line and a script an exit code
            _trace(debug=debug)
            output.fail(
                "unexpected", f"{type(error).__name__}: {error}", "" if debug else "--debug shows the traceback"
            )
            return Exit.FAILED


def _perform(words: Sequence[str], output: Output) -> int:
    VOICE.set(output)
    tokens = [STDIN if word == "-" and words[0] == "run" else word for word in words]
    command, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
    found = command(*bound.args, **bound.kwargs)
    if not inspect.iscoroutine(found):
        return Exit.DONE  # --help, --version
    return cast("int", asyncio.run(found))


def _usage(error: CycloptsError, words: Sequence[str]) -> tuple[str, str]:
    """What is wrong with the words, and the next move."""
    if isinstance(error, UnusedCliTokensError):
        return f"more words than it takes: {' '.join(error.unused_tokens or ())}", "quote a text of several words"
    if words[0].startswith("-"):
        return f"{words[0]} stands before the command", "write the command first: savepoint COMMAND --store PATH"
    command = " ".join(error.command_chain or ())
    return str(error), f"savepoint {command} --help" if command else "savepoint --help"


def _trace(*, debug: bool) -> None:
    if debug:
        traceback.print_exc(file=sys.stderr)
