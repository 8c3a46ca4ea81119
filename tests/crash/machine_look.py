"""What a process of the state machine sees of a store: every run, every savepoint, every byte."""

import hashlib
import sqlite3
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from machine_program import REGISTRY, host
from programs import TRANSCRIPT

from savepoint import KeyValue, Workspace, hydrate, open_store
from savepoint._events import read_mark
from savepoint._form import read_form, snapshot_ids
from savepoint._past import read_marks
from savepoint._questions import open_questions
from savepoint._run_result import find_run, get_run
from savepoint._sqlite import SqliteStore
from savepoint._stored import get_value
from savepoint._verify import verify_store
from savepoint.crash._observe import receipts

Json = dict[str, Any]


@contextmanager
def _scratch() -> Any:
    with tempfile.TemporaryDirectory(prefix="look") as name:
        yield Path(name)


async def hydrated(request: Json, place: Path, _: object) -> Json:
    async with open_store(place / "store", durability="process") as store:
        record = await get_run(store, request["run"])
        point = read_mark((await read_marks(store, record.lineage))[request["mark"]]).point
        async with hydrate(point, store=store, host=host(place), registry=REGISTRY) as revived:
            kv, files = revived.world.system("kv"), revived.world.system("files")
            assert isinstance(files, Workspace)
            said = {"said": list(revived.world[TRANSCRIPT]), "kv": dict(kv.items()), "files": _tree(files.path)}  # type: ignore[attr-defined]
            # What a continuation writes is its own.
            (files.path / "stray.txt").write_text("stray")
            kv["stray"] = 1  # type: ignore[index]
    return said


def _tree(path: Path) -> dict[str, str]:
    return {str(each.relative_to(path)): each.read_text() for each in sorted(path.rglob("*")) if each.is_file()}


async def look(request: Json, place: Path, _: object) -> Json:
    """Every run as its store has it; the content of savepoints that are not in `known` (ids)."""
    async with open_store(place / "store", durability="process") as store:
        damage = (await verify_store(store, REGISTRY.types)).damage
        runs = {run: await _look_at(store, run, set(request["known"])) for run in request["runs"]}
    return {"damage": [f"{each.what} {each.name}: {each.cause}" for each in damage], "runs": runs}


async def _look_at(store: SqliteStore, run: str, known: set[str]) -> Json | None:
    record = await find_run(store, run)
    if record is None:
        return None
    points: Json = {}
    for step, row in (await read_marks(store, record.lineage)).items():
        point = read_mark(row).point
        content = None
        if point.hex() not in known:
            form = await read_form(store, point, REGISTRY)
            content = await _content(store, list(form.state.get("transcript", ())), form.world)  # type: ignore[call-overload]
        points[str(step)] = [point.hex(), content]
    final = None
    if record.final is not None:
        assert record.result is not None
        ids = snapshot_ids(await get_value(store, record.final, REGISTRY.types))
        final = await _content(store, await get_value(store, record.result, REGISTRY.types), ids)
    return {
        "status": record.status.value,
        "points": points,
        "final": final,
        "lineage": record.lineage.hex(),
        "receipts": {key: [each.status.value, each.effect] for key, each in (await receipts(store, record)).items()},
        "open": sorted(
            [each.kind.value, each.effect] for each in await open_questions(store, record.lineage, REGISTRY.types)
        ),
    }


async def _content(store: SqliteStore, said: list[Any], ids: Any) -> Json:
    kv = await KeyValue().fork(store.contents, at=ids["kv"].id, place=Path())
    with _scratch() as place:
        files = await Workspace(place).fork(store.contents, at=ids["files"].id, place=place / "tree")
        return {"said": said, "kv": dict(kv.items()), "files": _tree(files.path)}


def rows_of(place: Path) -> str:
    """Names every row and object of the store: equal where nobody wrote."""
    database = place / "store" / "store.db"
    if not database.exists():
        return ""
    with closing(sqlite3.connect(database)) as db:
        found = [*db.execute("select * from ledger order by place"), *db.execute("select * from object order by name")]
    return hashlib.blake2b(repr(found).encode()).hexdigest()
