"""The guide's programs are files, its commands are run, and what it shows is what they say."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "tests" / "crash" / "examples"
GUIDE = (ROOT / "design" / "crash-guide.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
SHOWN = re.findall(r"```console\n\$ (.*?)\n(.*?)```", GUIDE, re.DOTALL)
MEASURED = re.compile(r"\d+\.\d s, \d+\.\d runs a second")


@pytest.mark.parametrize("name", ["shop_unsafe.py", "shop_safe.py", "mailer.py"])
def test_the_programs_are_those_that_are_run(name: str):
    assert (EXAMPLES / name).read_text() in PROGRAMS


@pytest.mark.parametrize("number", range(len(SHOWN)))
def test_the_rig_says_what_the_guide_shows(number: int):
    command, shown = SHOWN[number]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    words = [sys.executable, "-m", "agent.cli", *shlex.split(command)[1:]]
    done = subprocess.run(
        words, cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert MEASURED.sub("", done.stdout) == MEASURED.sub("", shown)
    assert done.returncode == (0 if "PASSED" in shown else 1), done.stderr


def test_the_example_of_a_test_is_one():
    (example,) = [each for each in PROGRAMS if "crash_rig" in each]
    compile(example, "design/crash-guide.md", "exec")
