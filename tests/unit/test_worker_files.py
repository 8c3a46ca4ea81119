"""Files of a workspace through the worker's tools."""
# ruff: noqa: ASYNC240, PTH208  nothing else runs in a test's loop; parameters of cases

import asyncio
import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.worker._errors import Mismatch, Outside, Unsuitable, WorkerError
from agent.worker._files import (
    LINE_BYTES,
    LIST_ENTRIES,
    READ_BYTES,
    edit_file,
    list_files,
    read_file,
    write_file,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    (tmp_path / "secret").write_text("secret")
    return root


async def test_reads_numbered_lines_and_says_how_to_go_on(root: Path):
    (root / "f").write_text("a\nb\nc\nd")
    assert await read_file(root, "f", start_line=2, lines=2) == "2\tb\n3\tc\n[more lines: go on with start_line=4]"
    assert await read_file(root, "f", start_line=4) == "4\td"


async def test_an_empty_file_and_a_start_past_the_end(root: Path):
    (root / "empty").touch()
    assert await read_file(root, "empty") == "[empty file]"
    (root / "f").write_text("a\n")
    with pytest.raises(Unsuitable, match="has 1 lines, start_line=2 is past its end"):
        await read_file(root, "f", start_line=2)
    with pytest.raises(Unsuitable, match="count from 1"):
        await read_file(root, "f", start_line=0)


async def test_reading_is_bounded_in_bytes_and_goes_on(root: Path):
    (root / "f").write_text("\n".join("x" * 1000 for _ in range(300)))
    seen, start = 0, 1
    while start:
        *lines, last = (await read_file(root, "f", start_line=start)).splitlines()
        more = last.startswith("[more")
        assert sum(map(len, lines)) < READ_BYTES + 2 * LINE_BYTES
        seen += len(lines) + (not more)
        start = int(last.rstrip("]").rpartition("=")[2]) if more else 0
    assert seen == 300


async def test_a_long_line_is_cut_and_the_next_is_whole(root: Path):
    (root / "f").write_text("x" * 5_000_000 + "\nnext\n")
    first, second = (await read_file(root, "f")).splitlines()
    assert len(first) < LINE_BYTES + 50
    assert first.endswith("[line cut]")
    assert second == "2\tnext"


async def test_binary_is_refused_and_undecodable_is_escaped(root: Path):
    (root / "b").write_bytes(b"\x7fELF\0\0")
    with pytest.raises(Unsuitable, match=r"b: is binary \(6 bytes\)"):
        await read_file(root, "b")
    (root / "latin").write_bytes(b"caf\xe9\n")
    assert await read_file(root, "latin") == "1\tcaf\\xe9"


async def test_what_is_not_a_file_is_named(root: Path):
    os.mkfifo(root / "pipe")
    for path, words in (("gone", "No such file"), (".", "directory"), ("pipe", "named pipe"), ("pipe/x", "Not a dir")):
        with pytest.raises(Unsuitable, match=words):
            await read_file(root, path)


async def test_writing_makes_parents_and_keeps_the_mode(root: Path):
    assert await write_file(root, "a/b/f", "é\n") == "wrote 3 bytes to a/b/f"
    (root / "a/b/f").chmod(0o751)
    await write_file(root, "a/b/f", "new")
    assert (root / "a/b/f").read_text() == "new"
    assert stat.S_IMODE((root / "a/b/f").stat().st_mode) == 0o751
    assert os.listdir(root / "a/b") == ["f"]


async def test_writing_never_shows_a_part(root: Path):
    """A reader that holds the old file keeps all of it: the name moves, the bytes do not."""
    (root / "f").write_text("old")
    with (root / "f").open() as reader:
        await write_file(root, "f", "new text")
        assert reader.read() == "old"


async def test_writing_over_what_is_not_a_file_is_refused(root: Path):
    (root / "d").mkdir()
    os.mkfifo(root / "pipe")
    for path in ("d", ".", "pipe"):
        with pytest.raises(Unsuitable, match="not a file"):
            await write_file(root, path, "x")
    with pytest.raises(Unsuitable, match="surrogate"):
        await write_file(root, "f", "\ud800")
    assert sorted(os.listdir(root)) == ["d", "pipe"]


async def test_a_failed_write_leaves_nothing(root: Path):
    (root / "f").write_text("old")
    with pytest.raises(Unsuitable, match="File name too long"):
        await write_file(root, "n" * 300, "x")
    assert os.listdir(root) == ["f"]


async def test_an_edit_is_exact(root: Path):
    (root / "f").write_bytes(b"one\ntwo\nthree\xff\n")
    assert await edit_file(root, "f", "two\nthr", "2\n3") == "edited f: 1 place(s), the first at line 2"
    assert (root / "f").read_bytes() == b"one\n2\n3ee\xff\n"


async def test_an_edit_must_occur_as_often_as_said(root: Path):
    (root / "f").write_text("x x x")
    for old, count, words in (("x", 1, "3 times, not 1"), ("x", 2, "3 times, not 2"), ("y", 1, "not found")):
        with pytest.raises(Mismatch, match=words):
            await edit_file(root, "f", old, "z", count=count)
    for old, new in (("", "z"), ("x", "x")):
        with pytest.raises(Mismatch, match="differ"):
            await edit_file(root, "f", old, new)
    assert (root / "f").read_text() == "x x x"
    await edit_file(root, "f", "x", "z", count=3)
    assert (root / "f").read_text() == "z z z"


async def test_an_edit_keeps_the_files_line_ends(root: Path):
    (root / "f").write_bytes(b"a\r\nb\r\nc\r\n")
    await edit_file(root, "f", "a\nb", "a\nx\nb")
    assert (root / "f").read_bytes() == b"a\r\nx\r\nb\r\nc\r\n"


async def test_parallel_edits_of_one_file_do_not_undo_each_other(root: Path):
    (root / "f").write_text("".join(f"<{n}>" for n in range(40)))
    await asyncio.gather(*(edit_file(root, "f", f"<{n}>", f"[{n}]") for n in range(40)))
    assert (root / "f").read_text() == "".join(f"[{n}]" for n in range(40))


async def test_lists_in_byte_order_with_kinds(root: Path):
    (root / "b").mkdir()
    (root / "b/c").write_text("123")
    (root / "B").symlink_to("b")
    os.mkfifo(root / "p")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff")).touch()
    assert (await list_files(root)).splitlines() == ["B -> b", "b/", "p (named pipe)", "\\xff (0 bytes)"]
    assert (await list_files(root, depth=2)).splitlines()[1:3] == ["b/", "b/c (3 bytes)"]
    assert await list_files(root, "B") == "c (3 bytes)"
    (root / "e").mkdir()
    assert await list_files(root, "e") == "[empty]"


async def test_a_list_is_bounded(root: Path):
    for number in range(LIST_ENTRIES + 1):
        (root / f"{number:04}").touch()
    assert (await list_files(root)).splitlines()[LIST_ENTRIES:] == [
        f"[more than {LIST_ENTRIES} entries: list a directory below, or use a smaller depth]"
    ]
    (root / "0000").unlink()
    assert len((await list_files(root)).splitlines()) == LIST_ENTRIES


async def test_links_inside_are_followed(root: Path):
    (root / "a").mkdir()
    (root / "a/f").write_text("in\n")
    (root / "relative").symlink_to("a/../a")
    (root / "absolute").symlink_to(root / "a")
    (root / "file").symlink_to("relative/f")
    for path in ("relative/f", "absolute/f", "file", "a/./../a//f", str(root / "a/f")):
        assert await read_file(root, path) == "1\tin"
    await write_file(root, "file", "new\n")
    assert (root / "file").is_symlink()
    assert (root / "a/f").read_text() == "new\n"


async def test_nothing_leads_outside(root: Path, tmp_path: Path):
    (root / "a").mkdir()
    links = {"up": "..", "abs": str(tmp_path), "file": "../secret", "a/deep": "../../secret", "twice": "up"}
    for name, target in links.items():
        (root / name).symlink_to(target)
    (root / "dangling").symlink_to(tmp_path / "made")
    paths = ("../secret", "/etc/passwd", str(tmp_path / "secret"), "up/secret", "abs/secret", "file", "a/deep")
    for path in (*paths, "twice/secret", "a/../../secret", "dangling", f"{root}/../secret", f"{root}x/f"):
        for work in (read_file(root, path), write_file(root, path, "x"), edit_file(root, path, "s", "x")):
            with pytest.raises(Outside, match="leads out of the workspace"):
                await work
        with pytest.raises(Outside):
            await list_files(root, path)
    assert (tmp_path / "secret").read_text() == "secret"
    assert sorted(os.listdir(tmp_path)) == ["secret", "work"]


async def test_a_circle_of_links_and_what_is_no_path(root: Path):
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    for path in ("a", "a/x", "", "x\0y", "\ud800"):
        with pytest.raises(Unsuitable):
            await read_file(root, path)


PARTS = st.sampled_from(["..", ".", "", "d", "in", "out", "f", "loop", "new", "in2"])


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(PARTS, min_size=1, max_size=6), absolute=st.booleans())
def test_any_path_stays_inside(tmp_path: Path, parts: list[str], absolute: bool):
    """Compared with the kernel's own idea of where a path leads."""
    root = tmp_path / "work"
    (root / "d/d").mkdir(parents=True, exist_ok=True)
    for name, target in {"in": "d", "out": "../", "loop": "loop", "d/in2": "../d/d", "d/out": "../../other"}.items():
        if not (root / name).is_symlink():
            (root / name).symlink_to(target)
    (root / "f").write_text("inside\n")
    path = ("/" if absolute else "") + "/".join(parts)
    try:
        asyncio.run(write_file(root, path, "inside\n"))
    except WorkerError:
        pass
    else:
        assert Path(os.path.realpath(root / path)).is_relative_to(root)
        assert (root / path.rstrip("/")).read_text() == "inside\n"
    assert os.listdir(tmp_path) == ["work"]
