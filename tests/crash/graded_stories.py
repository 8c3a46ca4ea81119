"""Stories that kills alone do not tell: forks, restarts, limits, damage, full disks, merges."""

import sqlite3
from collections import Counter
from pathlib import Path

import outside
from graded_ways import Story

from savepoint.crash import Verdict


def fork_pays_itself(story: Story) -> None:
    """A fork's KEYED call is another one than its parent's: the remote must not take it for a repeat."""
    story.life()
    story.life(fork=0)
    paid = [act for act in story.ledger if act.kind == "keyed"]
    story.must(
        len(paid) == 2, Verdict.LOST, f"parent and fork have each paid once, the remote was paid {len(paid)} times"
    )


def fork_asks_itself(story: Story) -> None:
    """What was approved in the parent is not approved in its fork."""
    story.life()
    story.life(answer=True)
    forked = story.life(fork=0)
    story.must(forked["status"] == "waiting", Verdict.DUPLICATE, "the fork posted with its parent's approval")
    again = story.life(run_id="fork")
    story.must(again["status"] == "waiting", Verdict.DUPLICATE, "the fork posted with its parent's approval")


def first_answer_stands(story: Story) -> None:
    """Who answers otherwise than somebody before is refused."""
    question = story.life()["shown"][0]["id"]
    said = story.life(only_decide=True, decide=[[question, "approve"], [question, "deny"]])["decided"]
    story.must(said == ["approve", "conflict"], Verdict.DIVERGED, f"one question was answered {said}")


def restart_begins_anew(story: Story) -> None:
    """A run that is started anew does everything again."""
    story.life(kill="outcome.after:1")
    before = len(story.ledger)
    story.life(restart=True)
    story.must(len(story.ledger) == 2 * before, Verdict.LOST, f"{before} call before the restart, after it none")


def limit_holds(story: Story) -> None:
    """Ten replies of the model, whatever number of processes they took."""
    story.life(kill="gap.before:7")
    story.life(kill="gap.before:3")
    ended = story.life()
    asked = len([each for each in outside.asked(story.place / "outside") if isinstance(each, int)])
    story.must(ended["status"] == "waiting", Verdict.BUDGET, f"{asked} replies of the model, the limit is 10")


def next_run_heals(story: Story) -> None:
    """A run completed, and its process died before it landed; nobody resumes it, another run comes."""
    story.life(kill="land.before:1")
    runs = story.life(anew="next")["session"]
    story.must(runs == ["earlier", "run", "next"], Verdict.LOST, f"the session holds {runs}")


def undone_stays_undone(story: Story) -> None:
    """What a run stands on is rewound while no process has it."""
    story.life(kill="gap.after:1")
    resumed = story.life(rewind=0)
    story.must(resumed.get("refused") == "conflict", Verdict.DIVERGED, f"what was undone goes on: {resumed}")


def interrupted_is_asked_about(story: Story) -> None:
    """SIGTERM inside a ONCE call: nobody knows, and the run waits."""
    story.life(halt="0.0")
    story.life(answer=True)
    story.must(len(story.ledger) == 1, Verdict.LOST, "the interrupted call was never made, and nobody was asked")


def parent_keeps_its_world(story: Story) -> None:
    """A parent that died in a call that writes the world, and a fork of it beside its remains."""
    story.life(kill="body.after:2")
    before = _tree(story.place / "store" / "forks")
    story.life(fork=0, kill="body.before:2")
    after = _tree(story.place / "store" / "forks")
    lost = {name for name, text in before.items() if after.get(name) != text}
    story.must(not lost, Verdict.LEAK, f"the fork changed {sorted(lost)} of its parent's world")


def _tree(place: Path) -> dict[str, bytes]:
    return {str(each.relative_to(place)): each.read_bytes() for each in place.rglob("*") if each.is_file()}


def one_owner(story: Story) -> None:
    """Several processes want one run: it is done once, by one of them, and nobody else touches anything."""
    seen = story.life()
    met = [each.split(":")[0] for each in seen["met"]]
    right = met.count("completed") == 1 and met.count("held") == len(met) - 1
    story.must(right, Verdict.DOUBLE_OWNER, f"they met {seen['met']}")
    story.must(not seen.get("written"), Verdict.DOUBLE_OWNER, "a former owner wrote")
    story.must(not seen.get("entered"), Verdict.DOUBLE_OWNER, "a former owner entered a body")
    story.must(seen["acts"] == 1, Verdict.DUPLICATE, f"one call was made {seen['acts']} times")


def held_while_alive(story: Story) -> None:
    """Somebody who wants a run whose owner is slow is told so."""
    seen = story.life()
    met = sorted(each.split(":")[0] for each in seen["met"])
    story.must(met == ["completed", "held"], Verdict.DOUBLE_OWNER, f"they met {seen['met']}")
    story.must(seen["acts"] == 1, Verdict.DUPLICATE, f"one call was made {seen['acts']} times")


def old_answer(story: Story) -> None:
    """A READ that may be five seconds old, recorded a hundred seconds ago, and nothing rests on it."""
    story.life(kill="gap.after:1")
    story.life(clock_s=100)
    times = story.entered.count("0.m")
    story.must(times == 2, Verdict.DIVERGED, f"an answer of 100 s ago was used: it was observed {times} times")


# -- damage -----------------------------------------------------------------------------------------------------------


def _event(place: Path) -> bytes:
    """The place of the newest row of receipts."""
    with sqlite3.connect(place / "store" / "store.db") as db:
        found = db.execute("select place from ledger order by place").fetchall()
    return [key for (key,) in found if key.startswith(b"event\0")][-1]


def damaged_receipt(story: Story) -> None:
    """One bit of the newest receipt: it is not there any more, and that is not "no receipt"."""
    story.life(kill="intent.after:2")
    story.must(len(story.ledger) == 1, Verdict.CORRUPT, "the first call was not made")
    with sqlite3.connect(story.place / "store" / "store.db") as db:
        (body,) = db.execute("select body from ledger where place=?", (_event(story.place),)).fetchone()
        changed = bytes([*body[:40], body[40] ^ 0x10, *body[41:]])
        db.execute("update ledger set body=? where place=?", (changed, _event(story.place)))
    _must_wait(story)


def cut_receipts(story: Story) -> None:
    """The newest receipts are gone."""
    story.life(kill="outcome.after:1")
    for _ in range(2):  # the outcome's, and the intent's
        with sqlite3.connect(story.place / "store" / "store.db") as db:
            db.execute("delete from ledger where place=?", (_event(story.place),))
    _must_wait(story)


def _must_wait(story: Story) -> None:
    before = Counter(story.entered)
    ended = story.life()
    for tag in Counter(story.entered) - before:
        story.wrong(Verdict.DUPLICATE, f"{tag} was entered though receipts are damaged")
    story.must(ended["status"] == "waiting", Verdict.UNDETECTED, f"damaged receipts, and the run is {ended['status']}")


def damaged_result(story: Story) -> None:
    """A recorded result that is another one."""
    story.life(kill="intent.after:1")
    with sqlite3.connect(story.place / "store" / "store.db") as db:
        rows = db.execute("select rowid, body from object where body=?", (b"\x62r1",)).fetchall()
        for row, body in rows:
            db.execute("update object set body=? where rowid=?", (body.replace(b"r1", b"r7"), row))
    story.must(len(rows) == 1, Verdict.CORRUPT, f"{len(rows)} objects hold the result")
    ended = story.life()
    used = ended["status"] == "completed" or any("r7" in str(act.arguments) for act in story.ledger)
    story.must(not used, Verdict.UNDETECTED, "the damaged result was used")


def damaged_world(story: Story) -> None:
    """A file of the world's snapshot is another one."""
    story.life(kill="gap.after:1")
    for pack in (story.place / "store" / "packs").iterdir():
        pack.write_bytes(pack.read_bytes().replace(b"one\n", b"two\n"))
    ended = story.life()
    story.must(ended["status"] != "completed", Verdict.UNDETECTED, "the damaged world was used")


# -- disks ------------------------------------------------------------------------------------------------------------


def full_disk(story: Story) -> None:
    """An intent for which there is no room: its call is not made."""
    story.life(room=4, kill="body.after:1")
    story.life()
    story.must(len(story.ledger) == 1, Verdict.DUPLICATE, f"one call, made {len(story.ledger)} times")


def half_merged(story: Story) -> None:
    """A merge that died half-way can only be finished."""
    done = story.life()
    story.must(done["status"] == "completed", Verdict.STUCK, f"the run is {done['status']}")
    story.life(kind="merge", audit=["os.rename", 1])
    begun = story.life(kind="discard")
    story.must(begun["status"] == "refused", Verdict.LEAK, "the world was discarded, and part of it is in the host")
    story.life(kind="merge")
    story.must((story.place / "files" / "notes.txt").exists(), Verdict.LOST, "the merge was never finished")
