"""Law 13: no fork, hydration or crash changes the host world: not a byte, a mode or a time."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from law_host_program import change
from law_kills import WAL, Kills, few

from effects import Idempotency, effect
from savepoint import (
    Abandon,
    Cell,
    KeyValue,
    Point,
    Registry,
    RunStatus,
    Workspace,
    World,
    at_savepoint,
    fork_program,
    hydrate,
    open_store,
    resumable,
    resume_program,
    run_program,
    savepoint,
)
from savepoint._crashpoint import CrashPoint
from savepoint._point import current_world
from savepoint._run import run_key
from savepoint._store import Space
from savepoint.crash import Kill
from savepoint.testing import arm

STATE = Cell("state", list, default=[])


class Killed(BaseException):
    """The process is gone."""


@effect("host/spoil", idempotency=Idempotency.CONTAINED)
async def spoil(n: int) -> int:
    """Changes all that it finds in the world."""
    world = current_world()
    files = world.system("files")
    assert isinstance(files, Workspace)
    for path in sorted(files.path.rglob("*")):
        if path.is_symlink() or path.is_dir():
            continue
        path.chmod(0o600)
        path.write_bytes(b"spoilt")
        os.utime(path, ns=(n, n))
    (files.path / "empty").rmdir()
    (files.path / f"new {n}").write_text("new")
    (files.path / "empty").mkdir()
    world.system("kv")["k"] = n  # type: ignore[index]
    return n


@resumable("host/work")
async def work(world: World, step: int) -> int:
    while step < 2:
        await spoil(step)
        world[STATE] = [*world[STATE], step]
        step += 1
        await savepoint("step", resume=work.at(step), state=[STATE])
    return step


def all_of(root: Path) -> dict[str, Any]:
    """Every byte, mode and time below `root`, its own included."""
    found: dict[str, Any] = {}
    for path in [root, *sorted(root.rglob("*"))]:
        status = path.lstat()
        content = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(root))] = (
            status.st_mode,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_ino,
            content,
        )
    return found


@pytest.fixture
def host(tmp_path: Path) -> Path:
    root = tmp_path / "host"
    (root / "empty").mkdir(parents=True)
    (root / "deep/er").mkdir(parents=True)
    (root / "a").write_bytes(bytes(range(256)))
    (root / "deep/er/b").write_text("b")
    (root / "deep/er/b").chmod(0o4755)
    (root / "out").symlink_to("../outside")
    (tmp_path / "outside").write_text("outside")
    os.utime(root / "a", ns=(5, 7))
    return root


def world_of(host: Path, kv: KeyValue) -> World:
    return World({"files": Workspace(host), "kv": kv})


# -- any tree, any changes, real kills ------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
MODES = st.sampled_from([0o600, 0o644, 0o755, 0o4711, 0o1777, 0o440])
TIMES = st.integers(0, 2**60)
CHANGES = st.one_of(
    st.tuples(st.sampled_from(["file", "more"]), PATHS, st.text(max_size=20)),
    st.tuples(st.sampled_from(["dir", "remove"]), PATHS, st.none()),
    st.tuples(st.sampled_from(["link", "hard", "move"]), PATHS, PATHS),
    st.tuples(st.just("link"), PATHS, st.sampled_from(["../outside", "..", "/nowhere"])),
    st.tuples(st.just("mode"), PATHS, MODES),
    st.tuples(st.just("time"), PATHS, TIMES),
)
TREE = st.lists(CHANGES, min_size=1, max_size=12)
TURNS = st.lists(st.lists(CHANGES, max_size=4), min_size=1, max_size=3)
POINTS = st.sampled_from([each.value for each in CrashPoint if not each.startswith(("reply", "settle", "park"))])
KILLS = st.lists(st.none() | st.builds(Kill, POINTS, st.integers(1, 3)), max_size=3)


@example(
    tree=[("file", "a", "x"), ("hard", "b", "a"), ("mode", "a", 0o4711), ("time", "a", 7), ("link", "c", "../outside")],
    turns=[[("more", "a", "y"), ("mode", "b", 0o600)], [("remove", "a", None), ("move", "b", "a")]],
    killed=[Kill("body.after", 2), Kill("fork.after", 1)],
    wal=None,
)
@example(
    tree=[("dir", "b/a", None)],
    turns=[[("link", "a", "a"), ("file", "a/a", ""), ("move", "b", "a/a"), ("hard", "c", "a/a")]],
    killed=[],
    wal=False,
)
@few(20)
@given(tree=TREE, turns=TURNS, killed=KILLS, wal=WAL)
def test_law_13_host_untouched_by_any_program_that_is_killed_anywhere(
    kills: Kills, tree: Any, turns: Any, killed: Any, wal: bool | None
) -> None:
    place, server = kills.room(), kills.server("law_host_program:live")
    (place / "host").mkdir()
    for each in tree:
        change(place / "host", *each)
    before = all_of(place / "host")
    told = {"place": str(place), "turns": turns, "wal": wal}
    for kill in [*killed, None]:
        reply = server.attempt({**told, "do": "run"}, kill)
        assert all_of(place / "host") == before
        assert reply.killed or reply.report["said"] == "completed"
    for do, kill in (("fork", Kill("enter", 1)), ("fork", None), ("hydrate", Kill("fork.after", 1)), ("hydrate", None)):
        reply = server.attempt({**told, "do": do, "at": len(turns) - 1}, kill)
        assert all_of(place / "host") == before
        assert reply.killed or reply.report["said"] == "completed"


# -- every way in which a run ends ----------------------------------------------------------------------------------


async def test_whatever_a_run_does_and_however_it_ends_the_host_is_as_it_was(tmp_path: Path, host: Path) -> None:
    before, kv = all_of(host), KeyValue({"k": "host"})
    registry = Registry([work], effects=[spoil])
    ids: list[bytes] = []

    async def fork_and_persist(point: Point) -> None:
        if point.end is None:
            ids.append(await point.persist(store))
            async with point.fork(store=store) as continuation:
                await continuation.enter()

    async def give_up(point: Point) -> None:
        if point.end is None:
            raise Abandon

    async with open_store(tmp_path / "store") as store:
        whole = await run_program(work.at(0), store=store, run_id="whole", world=world_of(host, kv))
        assert whole.status is RunStatus.COMPLETED
        with at_savepoint(fork_and_persist, name="step"):
            await run_program(work.at(0), store=store, run_id="forked", world=world_of(host, kv))
        with at_savepoint(give_up):
            await run_program(work.at(0), store=store, run_id="abandoned", world=world_of(host, kv))
        for point in ids:
            async with hydrate(point, store=store, host=world_of(host, kv), registry=registry) as revived:
                await revived.enter()
        fork = await fork_program("whole", store=store, registry=registry, at=1, world=world_of(host, kv))
        assert fork.status is RunStatus.COMPLETED
        assert list(store.forks.iterdir()) == [], "a fork was left behind"
    assert all_of(host) == before
    assert dict(kv.items()) == {"k": "host"}
    assert (tmp_path / "outside").read_text() == "outside"


async def test_wherever_a_run_is_stopped_the_host_is_as_it_was(tmp_path: Path, host: Path) -> None:
    before, kv = all_of(host), KeyValue({"k": "host"})
    registry = Registry([work], effects=[spoil])
    points = [CrashPoint.FORK_AFTER, CrashPoint.BODY_AFTER, CrashPoint.GAP_BEFORE, CrashPoint.END_BEFORE]
    async with open_store(tmp_path / "store") as store:
        for point in points:

            def die(reached: CrashPoint, at: CrashPoint = point) -> None:
                if reached is at:
                    raise Killed

            arm(die)
            try:
                with pytest.raises(Killed):
                    await run_program(work.at(0), store=store, run_id=point.value, world=world_of(host, kv))
            finally:
                arm(None)
            assert all_of(host) == before, point
            async with store.commit() as tx:
                tx.delete(Space.LEASE, run_key(point.value))
            resumed = await resume_program(point.value, store=store, registry=registry, world=world_of(host, kv))
            assert resumed.status is RunStatus.COMPLETED
            assert all_of(host) == before, point
    assert dict(kv.items()) == {"k": "host"}
