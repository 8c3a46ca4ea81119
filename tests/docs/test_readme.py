"""The README's examples are run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def first_agent(place: Path, *, inside_charge: str = "") -> Path:
    """The first example as a file; `inside_charge` is put before the line that charges."""
    text = BLOCKS[0]
    line = '    return f"charged {cents}"'
    assert line in text
    path = place / "first.py"
    path.write_text(text.replace(line, f"{inside_charge}\n{line}") if inside_charge else text)
    return path


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False)


def test_the_first_agent_fits_in_thirty_lines_and_runs(tmp_path):
    code = [line for line in BLOCKS[0].splitlines() if line.strip() and not line.startswith(("import", "from"))]
    assert len(code) <= 30
    path = first_agent(tmp_path)
    store = str(tmp_path / "store")
    for _ in range(2):
        done = run(path, store)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "completed Tea is paid.\n"


def test_the_first_agent_killed_in_its_charge_waits_and_does_not_charge_twice(tmp_path):
    ledger = tmp_path / "ledger"
    store = str(tmp_path / "store")
    charge = f"    open({str(ledger)!r}, 'a').write('x'); import os; os.kill(os.getpid(), 9)"
    assert run(first_agent(tmp_path, inside_charge=charge), store).returncode == -9
    again = run(first_agent(tmp_path), store)
    assert again.stdout == "waiting None\n", again.stderr
    assert run(first_agent(tmp_path), store).stdout == "waiting None\n"
    assert ledger.read_text() == "x"


@pytest.mark.parametrize("number", range(1, len(BLOCKS)))
def test_the_other_examples_compile(number):
    compile(BLOCKS[number], f"README block {number}", "exec", flags=0x2000)  # top-level await allowed


def test_the_example_of_sessions_handoffs_and_agents_as_tools_runs(tmp_path):
    path = tmp_path / "claims.py"
    path.write_text(BLOCKS[2])
    said = "completed Paid back.\n"
    for _ in range(2):
        done = run(path, str(tmp_path / "store"))
        assert done.stdout == said, done.stderr
    shown = subprocess.run(
        [sys.executable, "-m", "agent.cli", "sessions", "anna", "--entries", "--store", str(tmp_path / "store")],
        capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=True,
    )  # fmt: skip
    assert "outcome clerk: It was late." in shown.stdout
    assert "outcome refund: refunded 320" in shown.stdout


def test_the_program_example_runs(tmp_path):
    lines = BLOCKS[1].replace("-> str: ...", '-> str:\n    return f"to {to}"')
    lines = lines.replace("store=store)", "store=MemoryStore())")
    body, last = lines.rsplit("\nresult = ", 1)
    text = (
        f"import asyncio\nfrom savepoint import MemoryStore\n{body}\n"
        f"async def main():\n    result = {last.strip()}\n    print(result.status, result.value)\n"
        "asyncio.run(main())\n"
    )
    path = tmp_path / "program.py"
    path.write_text(text)
    done = run(path)
    assert done.stdout == "completed 1\n", done.stderr
