"""Runs in real processes on a store that is busy, locked, moved, cut, replaced, read-only, full, or cannot be synced.

Whatever befalls it: a named error with a next move, nothing entered that must not be, and once the fault is mended the
run ends as it always does, with everything done once.
"""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer

import pytest
from faults import ACTS, LARGE_PLAN, PLAN, acts, entered, failing_syncs, finished, holding, named, right, same
from lives import Lives, lived_anew
from small_program import Json

SHORT = {"busy_s": 0.3}
SECOND_SEND = [("intent.before", 2), ("body.after", 4)]
"""Before the intent of `send 2`, and between its body and its outcome; `read x` is the body before it."""
BEFORE, AFTER = SECOND_SEND


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    with Lives() as server:
        yield server


@pytest.fixture(scope="module")
def reference(lives: Lives, tmp_path_factory: pytest.TempPathFactory) -> Json:
    place = tmp_path_factory.mktemp("reference")
    report = lives.lived(place=place, plan=PLAN)[1]
    assert report["status"] == "completed"
    assert acts(place) == ACTS
    return report


@pytest.fixture
def begun(lives: Lives, memory: Path) -> Path:
    """A run whose process died behind its first savepoint."""
    assert lives.lived(place=memory, plan=PLAN, die=("gap.after", 1))[0] == -signal.SIGKILL
    assert entered(memory) == ["note a", "send 1"]
    return memory


# -- busy and locked ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "wal"), [("immediate", True), ("exclusive", True), ("exclusive", False)])
def test_a_store_that_another_process_keeps_is_refused_and_nothing_is_entered(
    lives: Lives, how: str, wal: bool, memory: Path, reference: Json
) -> None:
    settings = {**SHORT, "wal": wal}
    lives.lived(place=memory, plan=PLAN, die=("gap.after", 1), how=settings)
    before = entered(memory)
    with holding(memory / "store/store.db", how):
        named(lives.lived(place=memory, plan=PLAN, how=settings)[1], "NotWritable", "store.db", "locked")
        assert entered(memory) == before
    right(memory, finished(lives, place=memory, plan=PLAN, how={"wal": wal}), reference)


def test_a_store_that_is_busy_for_less_is_waited_for(lives: Lives, begun: Path, reference: Json) -> None:
    with holding(begun / "store/store.db", "immediate") as holder:
        timer = Timer(0.8, holder.let_go)
        timer.start()
        right(begun, lives.lived(place=begun, plan=PLAN, how={"busy_s": 20})[1], reference)
        timer.join()


def test_an_intent_that_meets_a_busy_store_starts_nothing(lives: Lives, memory: Path, reference: Json) -> None:
    with (
        lives.stopped(BEFORE, place=memory, plan=PLAN, how=SHORT) as process,
        holding(memory / "store/store.db", "immediate"),
    ):
        named(process.go_on(), "NotWritable", "another process kept writing")
    assert "send 2" not in entered(memory)
    right(memory, finished(lives, place=memory, plan=PLAN), reference)


def test_an_outcome_that_meets_a_busy_store_is_asked_about(lives: Lives, memory: Path, reference: Json) -> None:
    with (
        lives.stopped(AFTER, place=memory, plan=PLAN, how=SHORT) as process,
        holding(memory / "store/store.db", "immediate"),
    ):
        named(process.go_on(), "NotWritable", "another process kept writing")
    assert_asked_about_send_2(lives, memory)
    right(memory, finished(lives, place=memory, plan=PLAN), reference)


def assert_asked_about_send_2(lives: Lives, place: Path, **more: object) -> None:
    """It happened, its outcome was lost: whoever resumes is asked, and nothing is entered."""
    assert acts(place) == ["send 1", "send 2"]
    before = entered(place)
    report = lives.lived(**{"place": place, "plan": PLAN, **more})[1]
    assert (report["status"], report["questions"]) == ("waiting", ["in_doubt"])
    assert entered(place) == before


# -- moved, cut, replaced ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", SECOND_SEND)
def test_a_store_moved_away_under_a_process_and_back_loses_and_repeats_nothing(
    lives: Lives, point: tuple[str, int], memory: Path, reference: Json
) -> None:
    with lives.stopped(point, place=memory, plan=PLAN) as process:
        shutil.move(memory / "store", memory / "elsewhere")
        report = process.go_on()
    assert report.get("status") == "completed" or report["next"], report
    known = acts(memory)
    named(lives.lived(place=memory, plan=PLAN, how={"create": False})[1], "Missing", "there is no store")
    shutil.rmtree(memory / "store", ignore_errors=True)  # what the process may have made there again
    shutil.move(memory / "elsewhere", memory / "store")
    assert acts(memory) == known
    right(memory, finished(lives, place=memory, plan=PLAN, how={"create": False}), reference)


Change = Callable[[Path], object]
SPOILED: dict[str, tuple[Change, str]] = {
    "cut to nothing": (lambda file: os.truncate(file, 0), "Corrupt"),
    "cut to half": (lambda file: os.truncate(file, file.stat().st_size // 2), "Corrupt"),
    "a directory": (lambda file: (file.unlink(), file.mkdir()), "NotWritable"),
    "gone": (lambda file: file.unlink(), "Corrupt"),
    "a dangling link": (lambda file: (file.unlink(), file.symlink_to("nowhere")), "Corrupt"),
}


@pytest.mark.parametrize("what", SPOILED)
def test_a_spoiled_database_is_named_left_alone_and_good_again_when_it_is_put_back(
    lives: Lives, what: str, begun: Path, reference: Json
) -> None:
    finished_once = lives.lived(place=begun, plan="note a", run="fold")[1]  # closes the store: all is in one file
    assert finished_once["status"] == "completed"
    file, kept = begun / "store/store.db", begun / "kept.db"
    assert not (begun / "store/store.db-wal").exists()
    shutil.copy(file, kept)
    spoil, error = SPOILED[what]
    spoil(file)
    before = entered(begun)
    for _ in range(2):  # and it stays so
        named(lives.lived(place=begun, plan=PLAN)[1], error, "store.db")
    assert entered(begun) == before
    if file.is_dir() and not file.is_symlink():
        file.rmdir()
    file.unlink(missing_ok=True)
    shutil.copy(kept, file)
    right(begun, finished(lives, place=begun, plan=PLAN), reference)


@pytest.mark.parametrize("part", [0, 0.5])
def test_a_database_cut_under_a_process_is_named_or_harmless_and_nothing_is_repeated(
    lives: Lives, part: float, memory: Path, reference: Json
) -> None:
    lives.lived(place=memory, plan="note z", run="fold")  # so that the database, and not only its log, holds something
    with lives.stopped(BEFORE, place=memory, plan=PLAN) as process:
        file = memory / "store/store.db"
        os.truncate(file, int(file.stat().st_size * part))
        report = process.go_on()
    for _ in range(2):
        if "error" in report:
            assert report["next"], report
        elif report["status"] == "completed":
            assert same(report) == same(reference)
        else:
            assert (report["status"], report["questions"]) == ("waiting", ["damaged"])
        report = lives.lived(place=memory, plan=PLAN)[1]
    done = acts(memory)
    assert done == ACTS[: len(done)]


def test_a_store_that_became_a_file_is_named(lives: Lives, begun: Path, reference: Json) -> None:
    shutil.move(begun / "store", begun / "kept")
    (begun / "store").write_text("not a store")
    named(lives.lived(place=begun, plan=PLAN)[1], "Usage", "is not a store but a file")
    assert (begun / "store").read_text() == "not a store"
    (begun / "store").unlink()
    shutil.move(begun / "kept", begun / "store")
    right(begun, finished(lives, place=begun, plan=PLAN), reference)


# -- read-only --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["store", "store/store.db", "store/locks", "store/packs", "store/forks"])
def test_what_may_not_be_written_is_refused_before_anything_is_entered(
    lives: Lives, what: str, begun: Path, reference: Json
) -> None:
    if not lives.private:
        pytest.skip("no name spaces of users here in which root gives up its rights over files")
    lives.lived(place=begun, plan="note a", run="fold")
    path = begun / what
    mode = path.stat().st_mode
    path.chmod(mode & 0o555)
    before = entered(begun)
    try:
        report = lives.lived(place=begun, plan=PLAN, rights=False)[1]
    finally:
        path.chmod(mode)
    named(report, "NotWritable")
    # Packs are needed when the world is snapshotted; what comes before lies in the database.
    assert entered(begun) == before or what == "store/packs"
    right(begun, finished(lives, place=begun, plan=PLAN), reference)


def test_a_read_only_file_system_is_refused_and_the_run_goes_on_where_it_can_be_written(
    lives: Lives, memory: Path, reference: Json
) -> None:
    with lives.disk(memory / "disk", "4m") as disk:
        settings = {"place": memory, "plan": PLAN, "store": str(disk.place / "store")}
        assert lives.lived(die=("gap.after", 1), **settings)[0] == -signal.SIGKILL
        lives.lived(**{**settings, "plan": "note a", "run": "fold"})
        before = entered(memory)
        disk.remount("ro")
        named(lives.lived(**settings)[1], "NotWritable")
        assert entered(memory) == before
        disk.remount("rw")
        right(memory, finished(lives, **settings), reference)


# -- full -------------------------------------------------------------------------------------------------------------


def test_a_disk_that_is_full_between_two_processes_starts_nothing(lives: Lives, memory: Path, reference: Json) -> None:
    with lives.disk(memory / "disk", "1m") as disk:
        settings = {"place": memory, "plan": LARGE_PLAN, "store": str(disk.place / "store")}
        assert lives.lived(die=("gap.after", 1), **settings)[0] == -signal.SIGKILL
        for _ in range(2):
            disk.fill()  # again: a process that fails folds the log in, which gives room back
            named(lives.lived(**settings)[1], "NotWritable")
            assert acts(memory) == ["send 1"]
        disk.make_room()
        right(memory, finished(lives, **settings), reference)


@pytest.mark.parametrize(
    ("point", "doubt"),
    [
        (("create.before", 1), False),
        (("intent.before", 1), False),
        (BEFORE, False),
        (("body.before", 4), True),
        (AFTER, True),
        (("gap.before", 2), False),
        (("snapshot.before", 2), False),
        (("end.before", 1), False),
    ],
)
def test_a_disk_that_fills_under_a_process_loses_and_repeats_nothing(
    lives: Lives, point: tuple[str, int], doubt: bool, memory: Path, reference: Json
) -> None:
    with lives.disk(memory / "disk", "1m") as disk:
        settings = {"place": memory, "plan": LARGE_PLAN, "store": str(disk.place / "store")}
        with lives.stopped(point, **settings) as process:
            done = acts(memory)
            disk.fill()
            report = process.go_on()
        named(report, "NotWritable")
        # One body may have been entered already; an intent that is not durable lets none begin.
        assert acts(memory) == (ACTS[:2] if doubt else done)
        disk.make_room()
        if doubt:
            assert_asked_about_send_2(lives, **settings)
        right(memory, finished(lives, **settings), reference)


# -- syncs that fail --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nth", [1, 2, 3, 5, 6])
def test_a_sync_that_fails_is_told_and_what_it_was_for_does_not_begin(
    lives: Lives, nth: int, memory: Path, reference: Json
) -> None:
    settings = {"place": memory, "plan": PLAN, "how": {"durability": "power"}}
    report = lived_anew(failing_syncs(memory / "store/store.db-wal", str(nth)), **settings)[1]
    if "error" in report:
        named(report, "NotWritable")
    else:  # a savepoint that cannot be kept costs resumability, not progress
        assert "no savepoint at step" in report["warnings"][0]
    done = acts(memory)
    again = lives.lived(**settings)[1]
    assert again["status"] in {"completed", "waiting"}, again
    assert acts(memory)[: len(done)] == done
    right(memory, finished(lives, **settings), reference)
