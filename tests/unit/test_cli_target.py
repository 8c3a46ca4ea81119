"""TARGET is an agent or a function annotated to return one; nothing else is ever called."""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import Agent
from agent.cli._target import load_agent
from savepoint import Usage

SOURCE = """
from agent import Agent
from pathlib import Path
CALLED = Path(__file__).with_suffix(".called")
one = Agent(name="one")
def made() -> Agent: return Agent(name="made")
def later() -> "Agent": return Agent(name="later")
def optional(name: str = "optional") -> Agent: return Agent(name=name)
def bare(): CALLED.touch()
def other() -> str: CALLED.touch(); return ""
def needs(name: str) -> Agent: CALLED.touch(); return one
async def waits() -> Agent: CALLED.touch(); return one
def liar() -> Agent: return "no agent"
def broken() -> Agent: raise RuntimeError("no such key")
class Sub(Agent): pass
class Callable:
    def __call__(self) -> Agent: CALLED.touch(); return one
thing = Callable()
"""
_NUMBER = itertools.count()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A directory with a module of a name that no other test imports."""
    name, before = f"cli_target_{next(_NUMBER)}", list(sys.path)
    (tmp_path / f"{name}.py").write_text(SOURCE)
    yield tmp_path, name
    sys.path[:] = before


@pytest.mark.parametrize(
    ("attribute", "name"), [("one", "one"), ("made", "made"), ("later", "later"), ("optional", "optional")]
)
def test_an_agent_or_a_function_that_promises_one(project: tuple[Path, str], attribute: str, name: str):
    place, module = project
    assert load_agent(f"{module}:{attribute}", place).name == name


@pytest.mark.parametrize("attribute", ["bare", "other", "needs", "waits", "Sub", "Callable", "thing", "CALLED", "Path"])
def test_anything_else_is_refused_before_it_is_called(project: tuple[Path, str], attribute: str):
    place, module = project
    with pytest.raises(Usage, match=attribute):
        load_agent(f"{module}:{attribute}", place)
    assert not (place / f"{module}.called").exists()


@pytest.mark.parametrize(("attribute", "what"), [("liar", "returned a str"), ("broken", "RuntimeError: no such key")])
def test_a_function_that_breaks_its_promise_is_named(project: tuple[Path, str], attribute: str, what: str):
    place, module = project
    with pytest.raises(Usage, match=what):
        load_agent(f"{module}:{attribute}", place)


@pytest.mark.parametrize("target", ["os:system", "builtins:eval", "os:path", "subprocess:Popen"])
def test_functions_of_the_system_are_refused(tmp_path: Path, target: str):
    with pytest.raises(Usage, match="not an agent"):
        load_agent(target, tmp_path)


@pytest.mark.parametrize("target", ["", "module", "module:", ":name", "a b:c", "m:a.b", "m:a()", "../m:a", "m/n:a"])
def test_what_is_no_target_imports_nothing(tmp_path: Path, target: str):
    known = set(sys.modules)
    with pytest.raises(Usage, match="not a target"):
        load_agent(target, tmp_path)
    assert set(sys.modules) == known


def test_a_file_of_a_taken_name_is_told_so(tmp_path: Path):
    (tmp_path / "agent.py").write_text("x = 1")
    with pytest.raises(Usage, match="taken"):
        load_agent("agent:x", tmp_path)


def test_a_missing_module_and_a_missing_import_are_told_apart(tmp_path: Path):
    (tmp_path / "cli_target_needs.py").write_text("import cli_target_not_there")
    with pytest.raises(Usage, match="there is no module cli_target_gone in"):
        load_agent("cli_target_gone:x", tmp_path)
    with pytest.raises(Usage, match="importing cli_target_needs failed"):
        load_agent("cli_target_needs:x", tmp_path)


@pytest.mark.parametrize("line", ["raise SystemExit(3)", "1 / 0", "def ("])
def test_a_module_that_cannot_be_imported_is_no_traceback(tmp_path: Path, line: str):
    name = f"cli_target_bad_{next(_NUMBER)}"
    (tmp_path / f"{name}.py").write_text(line)
    with pytest.raises(Usage, match=f"importing {name} failed"):
        load_agent(f"{name}:x", tmp_path)


def test_the_built_in_worker_is_an_agent(tmp_path: Path):
    assert isinstance(load_agent("worker", tmp_path), Agent)
