"""What the demo's agent works on, a small package with a bug that its tests find, and what its model says."""

from pathlib import Path

from agent._scripted import Turn, call, calls, say

FILES = {
    "README.md": """\
# semver

Sorts versions by the rules of semver.org: `sorted(versions, key=semver.key)`, `semver.newest(versions)`.
""",
    "semver.py": '''\
"""Versions in order, by the rules of semver.org."""

import re

_FORM = re.compile(r"(\\d+)\\.(\\d+)\\.(\\d+)(?:-([0-9A-Za-z.-]+))?(?:\\+[0-9A-Za-z.-]+)?")


def key(version):
    """What to sort versions by. Raises ValueError for what is no version; build metadata does not count."""
    found = _FORM.fullmatch(version)
    if not found:
        raise ValueError(f"{version!r} is not a version")
    numbers = tuple(int(number) for number in found.group(1, 2, 3))
    stage = found[4]
    return *numbers, stage is None, _stage_key(stage or "")  # a release comes after its pre-releases


def newest(versions):
    return max(versions, key=key)


def _stage_key(stage):
    return tuple(stage.split("."))
''',
    "tests/__init__.py": "",
    "tests/__main__.py": '''\
"""`python -m tests`, where there is no pytest: one line for each failing test, no paths, no times."""

import sys
import unittest

result = unittest.TestResult()
unittest.defaultTestLoader.loadTestsFromName("tests.test_semver").run(result)
print(f"{result.testsRun} tests run")
for case, trace in result.failures + result.errors:
    print(f"FAILED {case.id()} - {trace.strip().splitlines()[-1]}")
sys.exit(not result.wasSuccessful())
''',
    "tests/test_semver.py": """\
import unittest

from semver import key, newest


class TestOrder(unittest.TestCase):
    def test_numbers_are_not_compared_as_text(self):
        self.assertLess(key("1.9.0"), key("1.10.0"))

    def test_a_release_comes_after_its_pre_releases(self):
        self.assertLess(key("2.0.0-rc.1"), key("2.0.0"))

    def test_pre_releases_count_up(self):
        self.assertLess(key("2.0.0-rc.9"), key("2.0.0-rc.10"))

    def test_build_metadata_does_not_count(self):
        self.assertEqual(key("1.0.0+linux"), key("1.0.0+mac"))

    def test_what_is_no_version_is_refused(self):
        with self.assertRaises(ValueError):
            key("1.0")

    def test_the_newest_is_the_last_in_order(self):
        self.assertEqual(newest(["1.0.0", "1.0.1-beta", "0.9.9"]), "1.0.1-beta")
""",
}

PYTEST = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 python -m pytest -qq -p no:cacheprovider"
"""Only what pytest itself brings: plugins of this environment may reorder tests or print times."""
UNITTEST = "python -m tests"

TASK = "A test of this package fails. Mend the package and post a report of what was wrong."
_REPORT = (
    "Pre-release numbers were compared as text, so rc.10 came before rc.9. They are compared as numbers now; "
    "all tests pass."
)


def turns(tests: str) -> list[Turn]:
    """The model's replies; `tests` is the command that runs the tests. They depend on nothing else."""
    mended = 'tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in stage.split("."))'
    return [
        calls(say("I look around."), call("list", depth=2), call("read", path="semver.py")),
        call("shell", command=tests),
        call("edit", path="semver.py", old='tuple(stage.split("."))', new=mended),
        call("shell", command=tests),
        call("post_report", text=_REPORT),
        say("The bug is mended, the tests pass, and the report is posted."),
    ]


def unpack(place: Path) -> None:
    """Writes the package's files below `place`."""
    for name, text in FILES.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
