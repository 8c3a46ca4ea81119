"""Resumed by a new interpreter in other surroundings: the same end, the same savepoints, everything done once.

The first process dies behind a savepoint, with work of the next step recorded; each heir differs from it in one thing.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import field, frozen
from faults import acts
from lives import Lives, environment, lived_anew
from small_program import Json

PLAN = "note a;send 1|read ß;note b;send İ|note c;send é"
ACTS = ["send 1", "send İ", "send é"]


@frozen(kw_only=True)
class Surroundings:
    environ: dict[str, str] = field(factory=dict[str, str])
    without: tuple[str, ...] = ()
    shell: str = ""
    """what a shell does before it becomes the interpreter"""


def installed(*locales: str) -> str:
    """The first of these that this machine has; else the last, which then means C to it."""
    found = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout.lower().split()
    known = {each.replace("utf8", "utf-8") for each in found}
    return next((each for each in locales if each.lower() in known), locales[-1])


OTHERS = {
    "another order of hashes": Surroundings(environ={"PYTHONHASHSEED": "12345"}),
    "hashes at random": Surroundings(environ={"PYTHONHASHSEED": "random"}),
    "locale C": Surroundings(environ={"LC_ALL": "C"}),
    "locale C, no UTF-8 at all": Surroundings(environ={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    "locale C.UTF-8": Surroundings(environ={"LC_ALL": "C.UTF-8"}),
    "a locale with another i": Surroundings(environ={"LC_ALL": installed("tr_TR.UTF-8", "az_AZ.UTF-8")}),
    "a locale with another comma": Surroundings(environ={"LC_ALL": installed("de_DE.UTF-8", "fr_FR.UTF-8")}),
    "UTF-8 mode": Surroundings(environ={"PYTHONUTF8": "1"}),
    "another time zone": Surroundings(environ={"TZ": "Pacific/Kiritimati"}),
    "a time zone that is none": Surroundings(environ={"TZ": "No/Where"}),
    "another directory": Surroundings(shell="cd /"),
    "a directory that cannot be written": Surroundings(shell="mkdir -p ro && chmod 500 ro && cd ro"),
    "a directory that is gone": Surroundings(shell="mkdir -p gone && cd gone && rmdir ../gone"),
    "no home": Surroundings(without=("HOME", "USER", "LOGNAME")),
    "a home that is not there": Surroundings(environ={"HOME": "/no/such/home"}),
    "nothing for others to read": Surroundings(shell="umask 777"),
    "all for others to write": Surroundings(shell="umask 000"),
    "optimised": Surroundings(environ={"PYTHONOPTIMIZE": "2"}),
    "development mode": Surroundings(environ={"PYTHONDEVMODE": "1"}),
    "warnings are errors": Surroundings(environ={"PYTHONWARNINGS": "error"}),
    "no standard input": Surroundings(shell="exec <&-"),
    "no standard error": Surroundings(shell="exec 2>&-"),
    "few open files": Surroundings(shell="ulimit -n 40"),
    "no temporary directory": Surroundings(environ={"TMPDIR": "/no/such/place"}),
    "no environment": Surroundings(without=("PATH", "HOME", "LANG")),
}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Json]]:
    """What a process left that died in the second step, and the end of a run that did not die."""
    place = tmp_path_factory.mktemp("first")
    with Lives() as lives:
        (place / "whole").mkdir()
        reference = lives.lived(place=place / "whole", plan=PLAN)[1]
        (place / "left").mkdir()
        assert lives.lived(place=place / "left", plan=PLAN, die=("body.after", 5))[0] < 0
        assert acts(place / "left") == ACTS[:2]
        # It is in doubt whether the second one happened; who resumes is told so by the outside's own ledger.
        waiting = lives.lived(place=place / "left", plan=PLAN)[1]
        assert (waiting["status"], waiting["questions"]) == ("waiting", ["in_doubt"])
        yield place / "left", reference


@pytest.mark.parametrize("name", OTHERS)
def test_a_run_goes_on_in_other_surroundings(name: str, first: tuple[Path, Json], tmp_path: Path) -> None:
    left, reference = first
    place = Path(shutil.copytree(left, tmp_path / "run"))
    other = OTHERS[name]
    environ = {**environment(HOME=str(tmp_path)), **other.environ}
    for unset in other.without:
        environ.pop(unset, None)
    script = f'cd {tmp_path} && {other.shell or ":"} && exec "$@"'
    prefix = ["/bin/sh", "-c", script, "sh"]
    report = lived_anew(prefix, environ, place=place, plan=PLAN, decide="truth")[1]
    assert report["value"] == reference["value"]
    assert report["points"] == reference["points"]
    assert acts(place) == ACTS
    modes = {
        path.name: path.stat().st_mode & 0o077 for path in (place / "store").rglob("*") if "forks" not in path.parts
    }
    assert not [path for path, mode in modes.items() if mode], "others may look into the store"


def test_what_was_begun_elsewhere_ends_the_same_here(first: tuple[Path, Json], tmp_path: Path) -> None:
    """The other way round: it dies in odd surroundings, and ends in plain ones."""
    _, reference = first
    place = tmp_path / "run"
    place.mkdir()
    environ = {**environment(), "LC_ALL": "C", "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "7", "PYTHONOPTIMIZE": "2"}
    assert (
        lived_anew(["/bin/sh", "-c", 'cd / && exec "$@"', "sh"], environ, place=place, plan=PLAN, die=("gap.after", 1))[
            0
        ]
        < 0
    )
    with Lives() as lives:
        report = lives.lived(place=place, plan=PLAN)[1]
    assert report["value"] == reference["value"]
    assert report["points"] == reference["points"]
    assert list((place / "store/forks").iterdir()) == []
