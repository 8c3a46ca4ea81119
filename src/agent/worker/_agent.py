"""The built-in agent: any model, at work in the files of one directory."""

from agent._agent import Agent
from savepoint._errors import Usage

from ._availability import available
from ._tools import SYSTEM, contained_shell, edit, list_, once_shell, read, search, write

INSTRUCTIONS = """\
You work on the files of one directory, the workspace, through tools. Paths are relative to it; nothing outside of it
can be changed.

Look before you act: list, search and read what the task is about. Make the smallest change that does it, in the style
of what is there; use `edit` for a change within a file, `write` for a new one. Run the project's own checks before and
after, and read their output. A failed call changed nothing unless it says so: mend its cause instead of repeating it.

Where a call was lost or refused, say so. When the task is done, or cannot be done, end with a short report: what you
changed, what you ran and how it ended, what is left open.
"""


def worker(*, sandboxed: bool | None = None) -> Agent:
    """An agent that lists, searches, reads, writes and edits files of its workspace and runs shell commands in it.

    It has no model of its own, and works on the world's system `files` (a `Workspace`). A sandboxed shell is
    `CONTAINED`: recovery may do a command again. The other one has the network and is `ONCE` with `writes_world`: a
    command that a crash cut short is asked about. `sandboxed=None`: where that can be had (`available`). A run resumed
    with the other kind is held to the stricter of the two for the calls that it has receipts of.
    Raises `Usage` for a sandbox that cannot be had.
    """
    if sandboxed and not available():
        raise Usage(f"commands cannot be sandboxed here: {available().reason}", next="use sandboxed=False")
    contained = bool(available()) if sandboxed is None else sandboxed
    shell = contained_shell if contained else once_shell
    tools = (list_, search, read, write, edit, shell)
    return Agent(name="worker", instructions=INSTRUCTIONS, tools=tools, systems=(SYSTEM,))
