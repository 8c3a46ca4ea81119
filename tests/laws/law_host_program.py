"""A program that changes its workspace as it is told; one life of it, for the fork server (`law_host_program:live`)."""

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from effects import Idempotency, effect
from savepoint import (
    Registry,
    Workspace,
    World,
    fork_program,
    hydrate,
    open_store,
    resumable,
    resume_program,
    run_program,
    savepoint,
)
from savepoint._events import read_mark
from savepoint._past import read_marks
from savepoint._point import current_world
from savepoint._run_result import find_run, get_run
from savepoint._sqlite import SqliteStore

Json = dict[str, Any]
Change = Sequence[Any]
"""What, where, and with what: `file`, `more`, `dir`, `link`, `hard`, `remove`, `move`, `mode` or `time`."""
RUN = "run"


def change(root: Path, what: str, where: str, value: Any) -> None:
    """Does it below `root`; what cannot be done on this tree is nothing. Never through a link that leads elsewhere."""
    path = root / where
    if not _inside(root, path.parent) or (path.is_symlink() and what != "remove"):
        return
    try:
        _change(root, path, what, value)
    except (FileNotFoundError, NotADirectoryError, FileExistsError, IsADirectoryError, PermissionError, shutil.Error):
        return
    except OSError as error:
        if error.strerror not in ("Directory not empty", "Invalid argument", "Too many levels of symbolic links"):
            raise


def _inside(root: Path, path: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # a link that leads to itself
        return False


def _change(root: Path, path: Path, what: str, value: Any) -> None:
    match what:
        case "file":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(value)
        case "more":  # in place: whoever shares the file would see it
            with path.open("a") as file:
                file.write(value)
        case "dir":
            path.mkdir(parents=True, exist_ok=True)
        case "link":
            path.symlink_to(value)
        case "hard":
            if not (root / value).is_symlink() and _inside(root, root / value):
                path.hardlink_to(root / value)
        case _:
            _change_what_is_there(root, path, what, value)


def _change_what_is_there(root: Path, path: Path, what: str, value: Any) -> None:
    match what:
        case "remove":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        case "move":
            if _inside(root, (root / value).parent):
                path.rename(root / value)
        case "mode":
            path.chmod(value | (0o700 if path.is_dir() else 0o400))
        case "time":
            os.utime(path, ns=(value, value))
        case _:
            raise AssertionError(what)


@effect("law/change", idempotency=Idempotency.CONTAINED)
async def changes(which: list[Any]) -> int:
    files = current_world().system("files")
    assert isinstance(files, Workspace)
    for each in which:
        change(files.path, *each)
    return len(which)


@resumable("law/changing")
async def changing(world: World, turns: list[Any], step: int) -> int:
    while step < len(turns):
        await changes(turns[step])
        step += 1
        await savepoint("turn", resume=changing.at(turns, step))
    return step


REGISTRY = Registry([changing], effects=[changes])


def live(request: Json) -> Json:
    return asyncio.run(_lived(request, Path(request["place"])))


async def _lived(request: Json, place: Path) -> Json:
    world = World({"files": Workspace(place / "host")})
    async with open_store(place / "store", durability="process", wal=request["wal"]) as store:
        match request["do"]:
            case "run":
                more: Json = {"store": store, "world": world, "registry": REGISTRY}
                if await find_run(store, RUN) is None:
                    result = await run_program(changing.at(request["turns"], 0), run_id=RUN, **more)
                else:
                    result = await resume_program(RUN, **more)
                return {"said": result.status.value}
            case "fork":
                result = await fork_program(RUN, store=store, registry=REGISTRY, at=request["at"], world=world)
                return {"said": result.status.value}
            case _:
                return {"said": await _hydrated(store, world, request["at"])}


async def _hydrated(store: SqliteStore, world: World, step: int) -> str:
    marks = await read_marks(store, (await get_run(store, RUN)).lineage)
    async with hydrate(read_mark(marks[step]).point, store=store, host=world, registry=REGISTRY) as revived:
        await revived.enter()
    return "completed"
