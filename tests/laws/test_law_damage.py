"""Law 12: after a flip of any one bit of a store, or a cut, all that can be read is equal, or the damage is named.

Seen as a user sees it: through runs. What the store itself finds is in `tests/unit/test_store_damage.py`;
each single byte is in `tests/crash/test_every_byte.py`.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from attrs import frozen
from hypothesis import example, given, note
from hypothesis import strategies as st
from law_kills import few

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
from savepoint.crash._damage import Damage, Hurt, Stock

LOG: Cell[Log[Any]] = Cell("log", Log, default=Log())
RUNS = ("finished", "interrupted")
sent: list[int] = []


@effect("damage/send", idempotency=Idempotency.ONCE)
async def send(n: int) -> str:
    sent.append(n)
    return f"sent {n}"


@effect("damage/note", idempotency=Idempotency.CONTAINED)
async def write(n: int) -> int:
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
        world[LOG] = world[LOG].append([await write(step), await send(step)])
        if step == 2 and Told.stop:
            raise Stopped(OSError("the model is away"))
        step += 1
        await savepoint("step", resume=work.at(step), state=[LOG])
    texts = {path.name: path.read_text() for path in sorted(files.path.iterdir())}
    return [list(world[LOG]), texts, dict(world.system("kv").items())]  # type: ignore[attr-defined]


REGISTRY = Registry([work], effects=[send, write])


async def run(place: Path, run_id: str) -> RunResult:
    host = place.parent / "host"
    host.mkdir(exist_ok=True)
    world = World({"files": Workspace(host), "kv": KeyValue({})})
    async with open_store(place, durability="process") as store:
        return await run_program(work.at(0), store=store, run_id=run_id, registry=REGISTRY, world=world)


@frozen(kw_only=True)
class Whole:
    """A store with a finished and an interrupted run, as it was left, and what both come to."""

    stock: Stock
    expected: Any

    def files(self) -> list[str]:
        """Those that hold something, the database first."""
        return sorted(name for name, content in self.stock.contents.items() if content)[::-1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return asyncio.run(_made(tmp_path_factory.mktemp("whole")))


async def _made(place: Path) -> Whole:
    Told.stop = False
    expected = (await run(place / "store", "finished")).value
    Told.stop = True
    assert (await run(place / "store", "interrupted")).status is RunStatus.INTERRUPTED
    Told.stop = False
    return Whole(stock=Stock.of(place / "store"), expected=expected)


def damaged(whole: Whole, file: int, at: int, mask: int) -> Damage:
    """`file` counts round the files; `at` round its bytes that are not zero: most others are free space of a
    database. With no mask it is cut there.
    """
    name = whole.files()[file % len(whole.files())]
    used = [number for number, byte in enumerate(whole.stock.contents[name]) if byte]
    byte = used[at % len(used)]
    return Damage(how=Hurt.FLIP if mask else Hurt.CUT, file=name, at=byte, size=mask)


FILE, AT = st.integers(0, 2), st.integers(0, 1 << 20)
MASK = st.sampled_from([0, *(1 << bit for bit in range(8))])


@example(file=0, at=0, mask=0)
@few(60)
@given(file=FILE, at=AT, mask=MASK)
async def test_law_12_damage_by_a_flipped_bit_or_a_cut_is_harmless_or_named(
    whole: Whole, file: int, at: int, mask: int
) -> None:
    damage = damaged(whole, file, at, mask)
    note(str(damage))
    await verdicts(whole, damage)


async def test_some_damage_is_named_and_some_does_no_harm(whole: Whole) -> None:
    """Or the test above sees it everywhere, or nowhere."""
    largest = max(
        (name for name in whole.files() if name.startswith("packs/")), key=lambda name: len(whole.stock.contents[name])
    )
    places = [(whole.files().index(name), 97 * part) for name in ("store.db", largest) for part in range(10)]
    found = [any(await verdicts(whole, damaged(whole, file, at, 1))) for file, at in places]
    assert len(found) / 10 < found.count(True) < 9 * len(found) / 10


async def verdicts(whole: Whole, damage: Damage) -> list[bool]:
    """Per run, whether the damage was named; else all was equal."""
    with TemporaryDirectory() as place:
        whole.stock.put(Path(place) / "store", damage)
        return [await is_named(Path(place) / "store", run_id, whole.expected, str(damage)) for run_id in RUNS]


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
