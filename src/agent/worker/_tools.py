"""The worker's tools as a model meets them: names, words and classes around the functions that do the work."""

from pathlib import Path
from typing import Annotated, Any, TypeAlias

from agent._context import Context
from agent._tool import tool
from effects import Idempotency
from savepoint import Workspace
from savepoint._place import DATABASE

from ._errors import NoWorkspace
from ._files import LIST_ENTRIES, READ_LINES, edit_file, list_files, read_file, write_file
from ._search import MATCHES, search_files
from ._shell import TIMEOUT_S, in_words, run_shell

SYSTEM = "files"
"""The world's system that the tools work on."""

FilePath: TypeAlias = Annotated[str, "relative to the workspace"]
Command: TypeAlias = Annotated[str, "text for the shell; runs in the workspace, without input"]
Seconds: TypeAlias = Annotated[float, "after this many seconds it is killed, with all that it started"]


@tool(name="list", idempotency=Idempotency.CONTAINED)
async def list_(
    context: Context[Any],
    path: FilePath = ".",
    depth: Annotated[int, "levels of directories"] = 1,
    limit: Annotated[int, "most entries shown"] = LIST_ENTRIES,
) -> str:
    """Names in a directory, in order, with sizes: `name/`, `name (bytes)`, `name -> target`."""
    return await list_files(_root(context), path, depth=depth, limit=limit)


@tool(idempotency=Idempotency.CONTAINED)
async def search(
    context: Context[Any],
    pattern: Annotated[str, "Python regular expression, matched within lines"],
    path: FilePath = ".",
    glob: Annotated[str, "which files: *.py by name, src/**/*.py by path"] = "*",
    limit: Annotated[int, "most matches shown"] = MATCHES,
) -> str:
    """Lines of files that match, as `path:line: text`. Binary files, links and `.git` are left out."""
    return await search_files(_root(context), pattern, path, glob=glob, limit=limit)


@tool(idempotency=Idempotency.CONTAINED)
async def read(
    context: Context[Any],
    path: FilePath,
    start_line: Annotated[int, "first line, counted from 1"] = 1,
    lines: Annotated[int, "most lines shown"] = READ_LINES,
) -> str:
    """Lines of a text file, each after its number and a tab; says how to go on where there are more."""
    return await read_file(_root(context), path, start_line=start_line, lines=lines)


@tool(idempotency=Idempotency.CONTAINED)
async def write(context: Context[Any], path: FilePath, text: str) -> str:
    """Makes a file with its parent directories, or replaces one, whole or not at all."""
    return await write_file(_root(context), path, text)


@tool(idempotency=Idempotency.CONTAINED)
async def edit(
    context: Context[Any],
    path: FilePath,
    old: Annotated[str, "text as it stands in the file, without the line numbers that `read` shows"],
    new: str,
    count: Annotated[int, "how often `old` occurs; otherwise nothing is changed"] = 1,
) -> str:
    """Replaces every occurrence of `old` in a text file by `new`."""
    return await edit_file(_root(context), path, old, new, count=count)


_OUTPUT = """\
Gives its output, the middle left out where it is long, then `[exit code N]` unless that is 0. What it leaves running in
the background is killed at its end."""


@tool(
    name="shell",
    description=f"Runs a command in a sandbox: no network, only the workspace and /tmp are writable. {_OUTPUT}",
    idempotency=Idempotency.CONTAINED,
)
async def contained_shell(context: Context[Any], command: Command, timeout_s: Seconds = TIMEOUT_S) -> str:
    return await _shell(context, command, timeout_s, sandboxed=True)


@tool(
    name="shell",
    description=f"Runs a command on this machine, not sandboxed: keep it within the workspace. {_OUTPUT}",
    idempotency=Idempotency.ONCE,
    writes_world=True,
)
async def once_shell(context: Context[Any], command: Command, timeout_s: Seconds = TIMEOUT_S) -> str:
    return await _shell(context, command, timeout_s, sandboxed=False)


async def _shell(context: Context[Any], command: str, timeout_s: float, *, sandboxed: bool) -> str:
    root = _root(context)
    return in_words(await run_shell(root, command, sandboxed=sandboxed, timeout_s=timeout_s, hidden=_store(root)))


def _root(context: Context[Any]) -> Path:
    """The directory of the run's own fork. Raises `NoWorkspace`."""
    files = context.world.systems.get(SYSTEM)
    if not isinstance(files, Workspace):
        raise NoWorkspace(
            "the worker has no workspace: start the run with --workspace DIR "
            f"(in a program: world=World({{{SYSTEM!r}: Workspace(path)}}))"
        )
    return files.path


def _store(root: Path) -> tuple[Path, ...]:
    """The store that the fork lies in, which no command may read; none where the store is in memory."""
    return tuple(parent for parent in root.parents if (parent / DATABASE).is_file())
