"""Law 12: after a flip of any one byte of a store, all that can be read is equal, or the damage is named.

Seen as a user sees it: through runs. What the store itself finds is in `tests/unit/test_store_damage.py`.
"""

import random
import shutil
from pathlib import Path
from typing import Any

from effects import Idempotency, effect
from effects._question import QuestionKind
from savepoint import (
    Cell,
    KeyValue,
    Log,
    Registry,
    RunResult,
    RunStatus,
    SavepointError,
    Workspace,
    World,
    open_store,
    resumable,
    run_program,
    savepoint,
)
from savepoint._errors import Stopped
from savepoint._point import current_world

LOG: Cell[Log[Any]] = Cell("log", Log, default=Log())
FLIPS = 100
sent: list[int] = []


@effect("damage/send", idempotency=Idempotency.ONCE)
async def send(n: int) -> str:
    sent.append(n)
    return f"sent {n}"


@effect("damage/note", idempotency=Idempotency.CONTAINED)
async def note(n: int) -> int:
    files = current_world().system("files")
    assert isinstance(files, Workspace)
    (files.path / f"{n}.txt").write_text(f"note {n}\n" * 20)
    current_world().system("kv")[str(n)] = n  # type: ignore[index]
    return n


class Told:
    stop = False


@resumable("damage/work")
async def work(world: World, step: int) -> list[Any]:
    files = world.system("files")
    assert isinstance(files, Workspace)
    while step < 3:
        world[LOG] = world[LOG].append([await note(step), await send(step)])
        if step == 2 and Told.stop:
            raise Stopped(OSError("the model is away"))
        step += 1
        await savepoint("step", resume=work.at(step), state=[LOG])
    texts = {path.name: path.read_text() for path in sorted(files.path.iterdir())}
    return [list(world[LOG]), texts, dict(world.system("kv").items())]  # type: ignore[attr-defined]


REGISTRY = Registry([work], effects=[send, note])


async def run(place: Path, run_id: str) -> RunResult:
    host = place.parent / "host"
    host.mkdir(exist_ok=True)
    world = World({"files": Workspace(host), "kv": KeyValue({})})
    async with open_store(place, durability="process") as store:
        return await run_program(work.at(0), store=store, run_id=run_id, registry=REGISTRY, world=world)


async def test_a_flipped_byte_anywhere_is_harmless_or_named(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    Told.stop = False
    expected = (await run(whole, "finished")).value
    Told.stop = True
    assert (await run(whole, "interrupted")).status is RunStatus.INTERRUPTED
    Told.stop = False
    files = [path for path in sorted(whole.rglob("*")) if path.is_file() and path.stat().st_size]
    sizes = {path: path.stat().st_size for path in files}
    assert {path.name for path in files} >= {"store.db"}
    assert any(path.parent.name == "packs" for path in files)
    chance = random.Random(len(files))
    harmless = named = 0
    for _ in range(FLIPS):
        # Half of the flips hit the small files: the database would hide them.
        path = chance.choice([chance.choice(files), max(files, key=lambda each: sizes[each])])
        position = chance.randrange(sizes[path])
        place = tmp_path / "damaged"
        shutil.copytree(whole, place)
        content = bytearray(path.read_bytes())
        content[position] ^= chance.randrange(1, 256)
        (place / path.relative_to(whole)).write_bytes(content)
        where = f"{path.relative_to(whole)} at {position}"
        for run_id in ("finished", "interrupted"):
            if await is_named(place, run_id, expected, where):
                named += 1
            else:
                harmless += 1
        shutil.rmtree(place)
    assert harmless > FLIPS / 10
    assert named > FLIPS / 10


async def is_named(place: Path, run_id: str, expected: Any, where: str) -> bool:
    """Whether the damage was named; else all must be equal. Nothing is sent again either way."""
    sent.clear()
    try:
        result = await run(place, run_id)
    except SavepointError:
        assert sent == [], where
        return True
    assert sent == [], f"{where}: a fresh start"
    if result.status is RunStatus.WAITING:
        assert QuestionKind.DAMAGED in {question.kind for question in result.questions}, where
        return True
    assert (result.status, result.value) == (RunStatus.COMPLETED, expected), where
    assert result.replayed is (run_id == "finished"), where
    return bool(result.warnings)
