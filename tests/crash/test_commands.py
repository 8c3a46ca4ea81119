"""The rig on programs that use none of our code: what survives passes, what does not is told, bad targets are named."""

import os
import shutil
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from savepoint import Usage
from savepoint.crash import Kill, Schedule, Verdict, Violation, _trace
from savepoint.crash._campaign import Campaign
from savepoint.crash._command import CommandTarget
from savepoint.crash._judge import Rules, Saw
from savepoint.crash._report import Kills, Report
from savepoint.crash._scratch import Scratch
from savepoint.crash._text import text

EXAMPLES = Path(__file__).parent / "examples"
FAST = ("-S",)  # without site-packages an interpreter starts in half the time


def target(program: str, *words: str, **fields: object) -> CommandTarget:
    known = {"start": [sys.executable, *FAST, program, *words], "resume": (), "ledger": "ledger", "here": EXAMPLES}
    return CommandTarget(**{**known, **fields})


def kill(found: CommandTarget, kills: Kills = Kills.SINGLE, **fields: object) -> Report:
    with Scratch() as scratch:
        settings = {"budget_s": 100.0, **fields}
        report = Campaign(
            workers=[found] * 2, place=scratch.place, command=found.command, kills=kills, **settings
        ).run()
    assert not scratch.place.exists()
    return report


def kinds(report: Report) -> set[Verdict]:
    return {each.verdict for each in report.findings}


def test_an_unsafe_program_duplicates_loses_and_gets_stuck():
    report = kill(target("shop_unsafe.py"))
    assert report.complete
    assert kinds(report) == {Verdict.DUPLICATE, Verdict.LOST, Verdict.STUCK}
    assert "'charge ann 20' came 2 times" in text(report)
    assert "'mail bob' never came" in text(report)
    again = kill(target("shop_unsafe.py"), only=Schedule.parse(report.findings[0].schedule))
    assert [each.what for each in again.findings] == [report.findings[0].what]
    assert again.findings[0].where == report.findings[0].where != []


def test_the_mended_program_survives_every_single_kill():
    report = kill(target("shop_safe.py", compares=["progress.json"]))
    assert report.passed
    assert report.complete
    assert report.places == report.places_tried == len(report.tried) > 40


def test_second_kills_are_tried_after_all_first_ones_as_far_as_the_time_goes():
    report = kill(target("waits.py"), Kills.DOUBLE)
    assert report.passed
    assert report.complete
    assert report.planned is not None
    assert report.planned > report.places > 0
    assert {each.schedule.count(",") for each in report.tried} == {0, 1}
    part = kill(target("shop_safe.py"), Kills.DOUBLE, budget_s=1.0)
    assert not part.complete
    assert "all" not in text(part).split("PASSED")[1].splitlines()[0]


def test_storms_are_survived_by_the_mended_program_and_not_by_the_other():
    assert kill(target("shop_safe.py"), Kills.STORM, budget_s=2.0).passed
    assert kill(target("shop_unsafe.py"), Kills.STORM, budget_s=30.0, first=True).violated


def test_a_program_that_waits_is_parked_where_it_cannot_know():
    report = kill(target("waits.py"))
    assert report.passed
    assert set(report.verdicts) == {"parked", "pass"}
    assert not kill(target("waits.py", rules=Rules(parked_code=4))).passed


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        ("not_deterministic.py", Verdict.NOT_DETERMINISTIC),
        ("leaves_children.py", Verdict.LEAVES_CHILDREN),
        ("never_finishes.py", Verdict.NEVER_FINISHES),
        ("rewrites_ledger.py", Verdict.BAD_LEDGER),
        ("prints.py", Verdict.PRINTS),
        ("fails.py", Verdict.FAILS),
    ],
)
def test_a_bad_target_is_named_and_never_passed(program: str, verdict: Verdict):
    report = kill(target(program, timeout_s=1.0 if program == "never_finishes.py" else 20.0))
    assert [each.verdict for each in report.rejected] == [verdict]
    assert not report.passed
    assert f"REJECTED: {verdict}" in text(report)


def test_printing_may_be_allowed():
    assert kill(target("prints.py", rules=Rules(allow_stdout=True)), only=Schedule().then(0, Kill("call", 1))).passed


def test_a_file_that_the_program_needs_is_copied_into_every_run(tmp_path: Path):
    shutil.copy(EXAMPLES / "fails.py", tmp_path)
    (tmp_path / "prices.json").write_text("{}")
    report = kill(target("fails.py", here=tmp_path, copies=["prices.json"]))
    assert [each.verdict for each in report.rejected] == [Verdict.BAD_LEDGER]  # it runs now, and does nothing


def test_a_program_that_changes_a_file_of_here_is_rejected(tmp_path: Path):
    (tmp_path / "state").write_text("")
    (tmp_path / "program.py").write_text(
        "import sys\nopen('ledger', 'a').write('paid\\n')\nopen(sys.argv[1], 'a').write('x')\n"
    )
    report = kill(target("program.py", "state", here=tmp_path))
    assert [each.verdict for each in report.rejected] == [Verdict.LEAK]
    assert str(tmp_path / "state") in text(report)


def test_everything_temporary_lies_in_the_runs_own_directory(tmp_path: Path):
    (tmp_path / "program.py").write_text(
        "import os, tempfile\n"
        "from pathlib import Path\n"
        "assert Path(tempfile.gettempdir()).parent == Path.cwd().parent\n"
        "assert Path(os.environ['XDG_STATE_HOME']).parent == Path.cwd().parent\n"
        "assert os.environ['PWD'] == os.getcwd() and os.read(0, 1) == b''\n"
        "open('ledger', 'a').write(f'in {os.getcwd()}\\n')\n"
    )
    report = kill(target("program.py", here=tmp_path), only=Schedule().then(0, Kill("call", 1)))
    assert report.passed, text(report)


def test_a_module_is_found_as_it_is_where_one_types_it(tmp_path: Path):
    (tmp_path / "shop.py").write_text("open('ledger', 'a').write('paid\\n')\n")
    report = kill(target("-m", "shop", here=tmp_path), only=Schedule().then(0, Kill("call", 1)))
    assert report.passed, text(report)


def test_a_campaign_that_is_stopped_ends_its_processes_and_judges_none():
    with Scratch() as scratch:
        found = target("shop_safe.py")
        campaign = Campaign(workers=[found] * 2, place=scratch.place, command=found.command)
        stopping = threading.Timer(1.0, campaign.stop)
        stopping.start()
        report = campaign.run()
        stopping.join()
    assert report.interrupted
    assert not report.complete
    assert {each.verdict for each in report.tried} <= {Verdict.PASS}


def test_a_worker_that_fails_ends_the_campaign_with_its_error(monkeypatch: pytest.MonkeyPatch):
    judged = CommandTarget.judge

    def broken(self: CommandTarget, history: Saw, references: Sequence[Saw]) -> list[Violation]:
        judged(self, history, references)
        raise RuntimeError("a fault of the rig")

    monkeypatch.setattr(CommandTarget, "judge", broken)
    with pytest.raises(RuntimeError, match="a fault of the rig"):
        kill(target("waits.py"))


def test_a_named_point_of_our_own_code_is_a_place_to_die(tmp_path: Path):
    (tmp_path / "program.py").write_text(
        "import os, sys\n"
        "from savepoint._crashpoint import CrashPoint, reach\n"
        "from savepoint.testing import kill_from_environment\n"
        "kill_from_environment()\n"
        "if not os.path.exists('ledger'):\n"
        "    open('ledger', 'a').write('paid\\n')\n"
        "    reach(CrashPoint.BODY_AFTER)\n"
    )
    source = str(Path(__file__).parents[2] / "src")
    found = target(
        "program.py",
        here=tmp_path,
        environment={**os.environ, "PYTHONPATH": source},
        start=[sys.executable, "program.py"],
    )
    report = kill(found, only=Schedule.parse("0@body.after:1"))
    assert report.passed, text(report)
    (run,) = report.tried
    assert run.reached
    assert report.killed == 1


def test_where_tracing_is_refused_it_kills_by_time_and_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_trace, "refused", lambda: "ptrace is refused: not here")
    report = kill(target("waits.py"))
    assert report.killed > 0
    assert not report.complete
    assert "killed at times, not at system calls (ptrace is refused: not here)" in text(report)
    assert "all" not in text(report).split("PASSED")[1].splitlines()[0]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ledger": "/etc/passwd"}, "--ledger"),
        ({"ledger": "../ledger"}, "--ledger"),
        ({"ledger": "."}, "--ledger"),
        ({"compares": ["/etc"]}, "--compare"),
        ({"copies": ["nowhere"]}, "--copy"),
        ({"resume": ["no-such-program-anywhere"]}, "no program"),
    ],
)
def test_words_that_cannot_be_meant_are_refused_before_anything_runs(fields: dict[str, object], words: str):
    with pytest.raises(Usage, match=words):
        target("shop_safe.py", **fields)


def test_the_command_of_a_target_is_that_of_the_command_line():
    found = target(
        "my shop.py", resume=["sh", "-c", "exit 0"], copies=["prints.py"], compares=["out"], timeout_s=5.0,
        rules=Rules(parked_code=75, allow_stdout=True),
    )  # fmt: skip
    assert found.command == (
        f"savepoint crash --start '{sys.executable} -S '\"'\"'my shop.py'\"'\"'' --resume 'sh -c '\"'\"'exit 0'\"'\"'' "
        "--ledger ledger --copy prints.py --compare out --timeout 5s --parked-code 75 --allow-stdout"
    )
