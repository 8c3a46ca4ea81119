"""TARGET: the agent that a command names. What is not one is refused before it is called or used."""

import importlib
import inspect
import sys
from pathlib import Path
from types import FunctionType

from agent import Agent
from savepoint import Usage

BUILT_IN = "worker"
_TAKEN = frozenset({"agent", "effects", "savepoint"})
_SHAPE = "name an Agent, or a function that is annotated to return one, as module:attribute, or the built-in worker"


def load_agent(target: str, project: Path) -> Agent:
    """The agent `module:attribute`, the module found from `project` first; or the built-in `worker`.

    Importing runs the module, as `python -m` would. Raises `Usage`.
    """
    if target == BUILT_IN:
        from agent.worker import worker  # noqa: PLC0415  its tools are only loaded where they are used

        return worker()
    module, _, attribute = target.partition(":")
    names = module.split(".")
    if not attribute.isidentifier() or not all(name.isidentifier() for name in names):
        raise Usage(f"{target!r} is not a target", next=_SHAPE)
    if names[0] in _TAKEN:
        raise Usage(
            f"{target}: the module name {names[0]!r} is taken by this program", next="give your file another name"
        )
    found = getattr(_imported(module, project), attribute, None)
    if found is None:
        raise Usage(f"{target}: module {module} has no {attribute}", next=_SHAPE)
    return _agent(target, found)


def _imported(module: str, project: Path) -> object:
    if str(project) not in sys.path:
        sys.path.insert(0, str(project))
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            move = "start the command in the directory that holds it"
            raise Usage(f"there is no module {error.name} in {project}", next=move) from error
        raise Usage(f"importing {module} failed: {error}", next="install what it needs") from error
    except (Exception, SystemExit) as error:
        what = f"importing {module} failed: {type(error).__name__}: {error}"
        raise Usage(what, next="mend the module; --debug shows the traceback") from error


def _agent(target: str, found: object) -> Agent:
    if isinstance(found, Agent):
        return found
    if not isinstance(found, FunctionType) or not _returns_agent(found):
        raise Usage(f"{target} is of type {type(found).__name__}, not an agent", next=_SHAPE)
    needed = [each.name for each in inspect.signature(found).parameters.values() if _is_required(each)]
    if needed or inspect.iscoroutinefunction(found):
        what = f"needs {', '.join(needed)}" if needed else "is async"
        raise Usage(f"{target} {what}", next="make it a plain function that can be called without arguments")
    try:
        made: object = found()
    except Exception as error:
        what = f"{target}() failed: {type(error).__name__}: {error}"
        raise Usage(what, next="mend the function; --debug shows the traceback") from error
    if not isinstance(made, Agent):
        raise Usage(f"{target}() returned a {type(made).__name__}, not an Agent", next="return what it promises")
    return made


def _returns_agent(function: FunctionType) -> bool:
    """Whether it is annotated so. A text is looked up by name, never evaluated."""
    found: object = function.__annotations__.get("return")
    if isinstance(found, str):
        first, *rest = found.strip("'\"").split(".")
        found = function.__globals__.get(first)
        for name in rest:
            found = getattr(found, name, None)
    return isinstance(found, type) and issubclass(found, Agent)


def _is_required(parameter: inspect.Parameter) -> bool:
    optional = (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and parameter.kind not in optional
