"""The pytest plugin, in a pytest of its own."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]
EXAMPLES = Path(__file__).parent / "examples"
PLUGIN = ("-p", "savepoint_pytest", "-p", "no:cacheprovider")
TEST = """
import sys
from pathlib import Path
import pytest

def test_shop(crash_rig):
    report = crash_rig.commands(start=[sys.executable, "-S", {program!r}], here=Path({here!r}), {more})
    assert report.complete

@pytest.mark.crash_budget("7s")
def test_time(crash_rig):
    assert crash_rig.budget_s == {budget}
"""


def suite(pytester: pytest.Pytester, program: str, *words: str, more: str = "", budget: int = 7) -> pytest.RunResult:
    pytester.makepyfile(TEST.format(program=program, here=str(EXAMPLES), more=more, budget=budget))
    pytester.makeini("[pytest]\n")
    return pytester.runpytest_subprocess(*PLUGIN, *words)


@pytest.fixture(autouse=True)
def source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    # By its module, whether or not the installed distribution names it; and no other plugin's start is waited for.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def test_a_program_that_survives_passes(pytester: pytest.Pytester):
    suite(pytester, "waits.py").assert_outcomes(passed=2)


def test_one_that_does_not_fails_with_the_report_and_the_line_that_shows_it_again(pytester: pytest.Pytester):
    result = suite(pytester, "shop_unsafe.py", more='only="0@call:2+"')
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines([
        "*VIOLATED: 1 of 1 run went wrong*",
        "*'charge ann 20' came 2 times*",
        "*$ savepoint crash --start * --ledger ledger --only 0@call:2+*",
    ])  # fmt: skip


def test_the_option_beats_the_marker_and_must_be_a_time(pytester: pytest.Pytester):
    suite(pytester, "waits.py", "--crash-budget", "1m", budget=60).assert_outcomes(passed=2)
    wrong = suite(pytester, "waits.py", "--crash-budget", "soon")
    assert wrong.ret != 0
    wrong.stdout.fnmatch_lines(["*--crash-budget 'soon' is not a time*"])


def test_a_target_that_is_rejected_fails(pytester: pytest.Pytester):
    result = suite(pytester, "prints.py")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*REJECTED: prints to standard output*"])


def test_the_distribution_names_it_and_loading_it_imports_nothing_of_ours():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (module,) = project["entry-points"]["pytest11"].values()
    code = f"import pytest, {module}, sys; print([n for n in sys.modules if n.split('.')[0] in ('savepoint', 'attr')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
