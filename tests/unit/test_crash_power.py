"""What a power cut leaves, on recordings made by hand; and that a recording is what the program did."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from savepoint.crash._image import Image, write
from savepoint.crash._power import MOST, SECTOR, durable, images
from savepoint.crash._record import Recorder, record
from savepoint.crash._recording import ROOT, Change, Event, Named, Node, Recording, Resized, Sort, Synced, Wrote
from savepoint.crash._trace import refused

OLD, NEW, SUB, INNER = 1, 2, 3, 4
DIRECTORY = Node(sort=Sort.DIRECTORY, mode=0o755)


def recording(*changes: Change) -> Recording:
    """At the start there is a file `a` that holds `old`, and a directory `d`."""
    nodes = {
        ROOT: DIRECTORY,
        OLD: Node(sort=Sort.FILE, content=b"old"),
        NEW: Node(sort=Sort.FILE),
        SUB: DIRECTORY,
        INNER: Node(sort=Sort.FILE),
    }
    events = [Event(change=each, text=f"call {n}", calls=n + 1) for n, each in enumerate(changes)]
    return Recording(nodes=nodes, names={ROOT: {"a": OLD, "d": SUB}, SUB: {}}, events=events)


def disk(image: Image) -> dict[str, bytes]:
    return {path: each.content for path, each in image.entries.items() if each.sort is Sort.FILE}


def after(*changes: Change, spared: Sequence[str] = ()) -> list[dict[str, bytes]]:
    """Every disk after the last of them: the first is the strictest."""
    made = recording(*changes)
    return [disk(each) for each in images(made, len(made.events), spared=spared)]


def named(*changes: tuple[int, str, int | None]) -> Named:
    return Named(changes=changes)


MAKE = named((ROOT, "b", NEW))
FILL = Wrote(node=NEW, offset=0, data=b"new")
OVER = Wrote(node=OLD, offset=0, data=b"NEW")


def test_an_unsynced_write_may_be_lost_or_there() -> None:
    assert after(OVER) == [{"a": b"old"}, {"a": b"NEW"}]


def test_a_synced_write_is_there() -> None:
    assert after(OVER, Synced(node=OLD)) == [{"a": b"NEW"}]


def test_a_sync_covers_only_what_was_written_before_it() -> None:
    assert after(OVER, Synced(node=OLD), Wrote(node=OLD, offset=3, data=b"!")) == [
        {"a": b"NEW"},
        {"a": b"NEW!"},
        {"a": b"NEW\0"},
    ]


def test_a_sync_of_another_file_covers_nothing() -> None:
    assert after(OVER, Synced(node=NEW))[0] == {"a": b"old"}


def test_a_new_file_needs_its_data_and_its_name_synced() -> None:
    assert after(MAKE, FILL)[0] == {"a": b"old"}
    assert after(MAKE, FILL, Synced(node=NEW))[0] == {"a": b"old"}
    assert after(MAKE, FILL, Synced(node=ROOT))[0] == {"a": b"old", "b": b""}
    assert after(MAKE, FILL, Synced(node=NEW), Synced(node=ROOT)) == [{"a": b"old", "b": b"new"}]
    found = after(MAKE, FILL, Synced(node=ROOT))
    assert {each["b"] for each in found} == {b"", b"new", b"\0\0\0"}


REPLACE = named((ROOT, "b", None), (ROOT, "a", NEW))


def test_a_rename_without_a_sync_of_its_directory_is_undone() -> None:
    found = after(MAKE, FILL, Synced(node=NEW), REPLACE)
    assert found[0] == {"a": b"old"}
    assert {"a": b"new"} in found
    assert {"a": b"old", "b": b"new"} in found  # the making of `b` came through, the rename did not
    assert all(each["a"] in (b"old", b"new") for each in found)


def test_a_rename_with_a_sync_of_its_directory_is_there() -> None:
    assert after(MAKE, FILL, Synced(node=NEW), REPLACE, Synced(node=ROOT)) == [{"a": b"new"}]


def test_a_rename_before_its_data_may_leave_nothing_of_either() -> None:
    found = after(MAKE, FILL, REPLACE, Synced(node=ROOT))
    assert found[0] == {"a": b""}
    assert {"a": b"\0\0\0"} in found
    assert {"a": b"new"} in found


def test_a_rename_between_directories_is_whole() -> None:
    move = named((ROOT, "a", None), (SUB, "a", OLD))
    found = after(move)
    assert found == [{"a": b"old"}, {"d/a": b"old"}]
    assert after(move, Synced(node=SUB)) == [{"d/a": b"old"}]
    assert after(move, Synced(node=ROOT)) == [{"d/a": b"old"}]


def test_a_sync_of_a_directory_brings_what_its_names_need() -> None:
    """`b` is made in the one, moved to the other: the sync of the other brings the making too."""
    made = recording(MAKE, named((ROOT, "b", None), (SUB, "b", NEW)), Synced(node=SUB))
    assert durable(made, 3) == {0, 1, 2}


def test_a_file_in_a_lost_directory_is_lost() -> None:
    made = recording(named((ROOT, "e", INNER)), named((INNER, "f", NEW)), FILL, Synced(node=NEW), Synced(node=INNER))
    nodes = {**made.nodes, INNER: DIRECTORY}
    made = Recording(nodes=nodes, names=made.names, events=made.events)
    found = [disk(each) for each in images(made, 5)]
    assert found == [{"a": b"old"}, {"a": b"old", "e/f": b"new"}]


def test_an_emptied_file_may_still_be_full() -> None:
    empty = Resized(node=OLD, size=0)
    found = after(empty, OVER)
    assert found[0] == {"a": b"old"}
    assert {"a": b""} in found
    assert {"a": b"NEW"} in found
    assert after(empty, OVER, Synced(node=OLD)) == [{"a": b"NEW"}]


def test_an_append_may_be_torn_at_a_sector() -> None:
    data = bytes(range(256)) * 8
    found = {each["a"] for each in after(Wrote(node=OLD, offset=3, data=data))}
    assert b"old" in found
    assert b"old" + data in found
    assert (b"old" + data)[:SECTOR] in found
    assert (b"old" + data)[: 4 * SECTOR] in found
    assert b"old" + bytes(len(data)) in found
    assert (b"old" + data)[:SECTOR].ljust(3 + len(data), b"\0") in found
    assert all(len(each) in (3, 3 + len(data)) or not len(each) % SECTOR for each in found)


def test_overwrites_may_come_through_in_any_order() -> None:
    found = after(Wrote(node=OLD, offset=0, data=b"1"), Wrote(node=OLD, offset=1, data=b"2"))
    assert {each["a"] for each in found} == {b"old", b"1ld", b"o2d", b"12d"}


def test_a_write_past_the_end_leaves_a_hole() -> None:
    assert {"a": b"old\0\0x"} in after(Wrote(node=OLD, offset=5, data=b"x"))
    assert after(Resized(node=OLD, size=5), Synced(node=OLD)) == [{"a": b"old\0\0"}]


def test_an_unlinked_file_may_come_back() -> None:
    assert after(named((ROOT, "a", None))) == [{"a": b"old"}, {}]
    assert after(named((ROOT, "a", None)), Synced(node=ROOT)) == [{}]


def test_a_lost_name_takes_with_it_what_needs_it() -> None:
    """`a` is moved away and made anew: never is the new one there while the old one is nowhere."""
    found = after(named((ROOT, "a", None), (ROOT, "c", OLD)), named((ROOT, "a", NEW)))
    assert all(b"old" in each.values() for each in found)
    assert {"a": b"", "c": b"old"} in found


def test_a_hard_link_is_one_file(tmp_path: Path) -> None:
    made = recording(named((SUB, "a", OLD)), OVER, Synced(node=None))
    (image,) = images(made, 3)
    write(image, tmp_path / "disk")
    assert (tmp_path / "disk/a").samefile(tmp_path / "disk/d/a")
    assert (tmp_path / "disk/a").read_bytes() == b"NEW"


def test_a_sync_of_all_makes_all_durable() -> None:
    assert after(MAKE, FILL, OVER, Synced(node=None)) == [{"a": b"NEW", "b": b"new"}]


def test_what_is_on_another_disk_is_spared() -> None:
    made = after(named((SUB, "f", NEW)), FILL, OVER, spared=["d"])
    assert all(each["d/f"] == b"new" for each in made)
    assert {each["a"] for each in made} == {b"old", b"NEW"}


def test_images_are_bounded_distinct_and_begin_with_the_strictest() -> None:
    changes = [Wrote(node=OLD, offset=n * SECTOR, data=b"x" * SECTOR * 3) for n in range(200)]
    found = after(*changes)
    assert len(found) <= MOST
    assert len({each["a"] for each in found}) == len(found)
    assert found[0] == {"a": b"old"}


def test_an_earlier_cut_knows_nothing_of_later_events() -> None:
    made = recording(OVER, Synced(node=OLD))
    assert [disk(each) for each in images(made, 0)] == [{"a": b"old"}]
    assert [disk(each) for each in images(made, 1)] == [{"a": b"old"}, {"a": b"NEW"}]


# -- recordings of real programs ------------------------------------------------------------------------------------

PROGRAM = """
import ctypes, os, shutil, subprocess, threading
def sync(path):
    fd = os.open(path, os.O_RDONLY); os.fsync(fd); os.close(fd)
fd = os.open("a", os.O_RDWR); os.write(fd, b"one"); os.write(fd, b"two"); os.lseek(fd, 20, 0); os.write(fd, b"hole")
os.pwrite(fd, b"P", 1); os.pwritev(fd, [b"v", b"", b"w"], 3); os.writev(fd, [b"x" * 3, b"y" * 600]); os.fdatasync(fd)
os.ftruncate(fd, 500); os.posix_fallocate(fd, 0, 700); os.close(fd)
with open("log", "ab") as log:
    log.write(b"1"); log.flush(); os.pwrite(log.fileno(), b"2", 0); log.write(b"3")
os.mkdir("e"); open("e/f", "w").write("inner"); os.rename("e", "d/moved"); sync("d")
os.link("d/moved/f", "hard"); os.symlink("hard", "soft"); open("soft", "a").write("!"); os.chmod("hard", 0o600)
open("t", "w").write("t"); os.rename("t", "log2"); os.unlink("gone"); os.truncate("cut", 2); open("emptied", "w").close()
src = os.open("a", os.O_RDONLY); dst = os.open("copy", os.O_RDWR | os.O_CREAT, 0o640)
os.copy_file_range(src, dst, 300); os.copy_file_range(src, dst, 50, 0, 400); os.sendfile(dst, src, 0, 20)
subprocess.run(["sh", "-c", "cd d; echo shell > by; cat by >> ../log; mv by there; mkdir -p x/y; rm -r x"], check=True)
thread = threading.Thread(target=lambda: open("thread", "w").write("x")); thread.start(); thread.join()
os.rename(os.environ["OUTSIDE"] + "/in", "brought"); os.rename("give", os.environ["OUTSIDE"] + "/out")
os.rename(os.environ["OUTSIDE"] + "/tree", "tree"); open("tree/leaf", "a").write("more")
libc = ctypes.CDLL(None); libc.renameat2(-100, b"x1", -100, b"x2", 2)
open("db-shm", "w").write("volatile")
os.unlink("hard"); open("again", "w").write("again")
"""


@pytest.mark.skipif(refused() is not None, reason=str(refused()))
def test_a_recording_replayed_is_the_disk_that_the_program_left(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    (root / "d").mkdir(parents=True)
    (other / "tree/deep").mkdir(parents=True)
    (other / "tree/leaf").write_text("leaf")
    (other / "tree/deep/link").symlink_to("../leaf")
    (other / "in").write_text("from outside")
    for name in ("a", "gone", "cut", "emptied", "log", "give", "x1", "x2"):
        (root / name).write_text(f"{name} at the start")
    traced, made = record(
        [sys.executable, "-I", "-S", "-c", PROGRAM],
        root=root,
        cwd=root,
        env={**os.environ, "OUTSIDE": str(other)},
        stdout=tmp_path / "out",
        stderr=tmp_path / "err",
        timeout_s=60,
    )
    assert traced.code == 0, (tmp_path / "err").read_text()
    everything = next(each for each in images(made, len(made.events)) if each.label == "everything")
    (root / "db-shm").unlink()
    write(everything, tmp_path / "again")
    assert told(tmp_path / "again") == told(root)
    assert told(root)["x1"] == b"x2 at the start"
    # The strictest has what was synced: the move into `d`, the first writes to `a`.
    strict = next(iter(images(made, len(made.events))))
    assert {path for path in strict.entries if path.startswith("d")} == {"d", "d/moved"}
    assert strict.entries["a"].content == b"oPevwohe start".ljust(20, b"\0") + b"holexxx" + b"y" * 600
    assert strict.entries["log"].content == b"log at the start"
    # Digests do not depend on how nodes are numbered.
    assert Image(everything.entries).digest == build_again(tmp_path / "again").digest


def build_again(place: Path) -> Image:
    return next(iter(images(Recorder(place).recording(), 0)))


def told(root: Path) -> dict[str, object]:
    """All below it: contents, links, modes, which names are one file."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_dir():
            found[name] = oct(path.stat().st_mode)
        else:
            found[name] = path.read_bytes()
            found[f"{name} is"] = (oct(path.stat().st_mode), path.stat().st_nlink)
    return found
