"""The shell tool: a command on the workspace, and its end in words for a model."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ._errors import Unsuitable
from ._process import ENVIRONMENT, Completed, run_command
from ._sandbox import Sandbox

TIMEOUT_S = 120.0
LONGEST_S = 3600.0
OUTPUT_BYTES = 32_768
_PATH = {"PATH": f"{Path(sys.executable).parent}:{ENVIRONMENT['PATH']}"}
"""`python` is this interpreter, the one that a sandbox shows."""


async def run_shell(
    root: Path, command: str, *, sandboxed: bool, timeout_s: float = TIMEOUT_S, hidden: Sequence[Path] = ()
) -> Completed:
    """Runs shell text in the workspace `root`. What it leaves in the background ends with it.

    `sandboxed` is the caller's choice, made from `available()` and recorded with the call's class: a command whose
    class is `CONTAINED` must never quietly run outside, so there is no falling back. `hidden`: the store's directories.
    Raises `NotRun`, `Unsuitable`.
    """
    if not 0 < timeout_s <= LONGEST_S:
        raise Unsuitable(f"timeout_s={timeout_s:g}: must be more than 0 and at most {LONGEST_S:g} seconds")
    if "\0" in command or not command.strip():
        raise Unsuitable("the command is empty or holds a NUL")
    sandbox = Sandbox(workspace=root, hidden=tuple(hidden)) if sandboxed else None
    return await run_command(
        command, cwd=root, env=_PATH, timeout_s=timeout_s, output_limit_bytes=OUTPUT_BYTES, sandbox=sandbox
    )


def in_words(completed: Completed) -> str:
    """The output, then how the command ended where that was not a plain success."""
    notes = list[str]()
    if completed.timed_out:
        notes.append("[the time was up: the command and all that it started were killed]")
    elif completed.exit_code:
        notes.append(f"[exit code {completed.exit_code}]")
    return "\n".join([*([completed.output.removesuffix("\n")] if completed.output else []), *notes]) or "[no output]"
