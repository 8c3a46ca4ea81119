"""Damaged receipts are never taken for none: the run waits, and says so."""

import sqlite3
from pathlib import Path

import outside
import pytest
from rig import Json, Server

EVENT, POINT = b"event\0", b"point\0"
SCENARIO = "COMPOSITE: ONCE, CONTAINED, ONCE of it"


def attempt(server: Server, place: Path, *, scenario: str = SCENARIO, **more: object) -> Json:
    reply = server.attempt({"scenario": scenario, "place": str(place), "first": False, **more})
    return {"killed": True} if reply["killed"] else reply["report"]


@pytest.fixture
def stopped(servers: list[Server], memory: Path) -> Path:
    """A run with several receipts behind its only savepoint; the last call was about to start."""
    assert attempt(servers[0], memory, kill=["intent.before", 2], first=True)["killed"]
    return memory


def rows(place: Path, space: bytes) -> list[bytes]:
    with sqlite3.connect(place / "store" / "store.db") as db:
        found = db.execute("select place from ledger order by place").fetchall()
    return [key for (key,) in found if key.startswith(space)]


def flip(place: Path, key: bytes, column: str, at: float) -> None:
    """Changes one byte of a row."""
    with sqlite3.connect(place / "store" / "store.db") as db:
        (value,) = db.execute(f"select {column} from ledger where place=?", (key,)).fetchone()
        changed = bytearray(value)
        changed[int(at * (len(changed) - 1))] ^= 0x10
        db.execute(f"update ledger set {column}=? where place=?", (bytes(changed), key))


def cut(place: Path, key: bytes) -> None:
    with sqlite3.connect(place / "store" / "store.db") as db:
        db.execute("delete from ledger where place=?", (key,))


def test_the_spaces_are_where_this_test_looks(stopped: Path) -> None:
    assert len(rows(stopped, EVENT)) >= 4
    assert len(rows(stopped, POINT)) == 1


@pytest.mark.parametrize("index", [1, 2, 3])
@pytest.mark.parametrize(("column", "at"), [("body", 0.0), ("body", 0.5), ("body", 1.0), ("digest", 0.5), ("cut", 0.0)])
def test_a_bad_receipt_parks_the_run_and_nothing_is_entered(
    index: int, column: str, at: float, servers: list[Server], stopped: Path
) -> None:
    entered = outside.entered(stopped / "outside")
    key = rows(stopped, EVENT)[index]
    if column == "cut":
        cut(stopped, key)
    else:
        flip(stopped, key, column, at)
    for _ in range(2):  # and it stays so
        report = attempt(servers[0], stopped)
        assert report["status"] == "waiting"
        assert [kind for kind, *_ in report["questions"] if kind == "damaged"] == ["damaged"]
    assert outside.entered(stopped / "outside") == entered


def test_the_last_receipts_cut_off_park_the_run_too(servers: list[Server], stopped: Path) -> None:
    cut(stopped, rows(stopped, EVENT)[-1])
    assert attempt(servers[0], stopped)["status"] == "waiting"


def test_who_says_redo_goes_on_and_what_was_done_since_is_not_done_again(servers: list[Server], memory: Path) -> None:
    assert attempt(servers[0], memory, scenario="composite", kill=["body.after", 2], first=True)["killed"]
    assert len(outside.ledger(memory / "outside")) == 1
    flip(memory, rows(memory, EVENT)[-1], "body", 0.5)
    assert attempt(servers[0], memory, scenario="composite")["status"] == "waiting"
    # Told to go on without the receipts, it sends a second time; the receipt of that lies behind the damage.
    assert attempt(servers[0], memory, scenario="composite", answer=True, kill=["outcome.after", 1])["killed"]
    assert len(outside.ledger(memory / "outside")) == 2
    report = attempt(servers[0], memory, scenario="composite")
    assert report["status"] == "completed"
    assert len(outside.ledger(memory / "outside")) == 2


def test_the_savepoint_before_a_damaged_one_is_used_and_said(servers: list[Server], memory: Path) -> None:
    assert attempt(servers[0], memory, scenario="ONCE, ONCE", kill=["gap.after", 1], first=True)["killed"]
    flip(memory, rows(memory, POINT)[-1], "body", 0.5)
    report = attempt(servers[0], memory, scenario="ONCE, ONCE")
    assert report["status"] == "completed"
    assert "savepoint 1" in report["warnings"][0]
    assert len(outside.ledger(memory / "outside")) == 2  # reused, not repeated


def test_a_result_that_cannot_be_read_stops_the_run_and_is_not_the_calls_own_error(
    servers: list[Server], memory: Path
) -> None:
    """The program would take damage for a refusal, and do it in another way."""
    scenario = "COMPOSITE: ONCE fails, another one"
    assert attempt(servers[0], memory, scenario=scenario, kill=["intent.before", 2], first=True)["killed"]
    with sqlite3.connect(memory / "store" / "store.db") as db:
        outcomes = db.execute("select rowid, body from object where instr(body, cast('ValueError' as blob))").fetchall()
        assert len(outcomes) == 1
        for row, body in outcomes:
            db.execute("update object set body=? where rowid=?", (body[:-1] + bytes([body[-1] ^ 1]), row))
    with pytest.raises(RuntimeError, match="Corrupt"):
        attempt(servers[0], memory, scenario=scenario)
    assert not outside.ledger(memory / "outside")
