"""Law 12: each byte of each file of a store flipped, its files cut, lost and blanked: equal content, or a name.

Four stores, left by real processes (`small_stores.py`), are read part by part, verified, and their runs resumed
(`flips.py`). Never another value, a fresh start, a repeated call, an error without a name or a next move, or no end.
Two limits of the store (`design/0005-store.md`) are allowed exactly as they are written there, counted and shown:
`earlier` (a flip in the write-ahead log ends it there) and `hidden` (a page header hides rows, and `verify` finds it).
With CRASH_EXHAUSTIVE set: every byte; else some, others with each CRASH_SEED.
"""

import os
import re
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from flips_judge import EARLIER, EQUAL, HIDDEN, NAMED, WRONG
from small_program import Json
from small_stores import VARIANTS, build, look

from savepoint import Usage
from savepoint.crash._damage import Damage, Hurt, Stock, hurt, page_size, spread

EXHAUSTIVE = bool(os.environ.get("CRASH_EXHAUSTIVE"))
SEED = int(os.environ.get("CRASH_SEED") or int.from_bytes(os.urandom(2), "big"))
READ, RESUMED = 120, 16
"""Flips of one store that are read, and those after which its runs are resumed, unless all are."""
RESUMED_OF_ALL = 1500
"""Resuming after each of them would take half an hour."""


@pytest.fixture(scope="module")
def stores() -> Iterator[dict[str, Path]]:
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        yield build(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def shown(variant: str, said: Sequence[Json]) -> str:
    counts = Counter(f"{each['kind']} {each['verdict']}" for each in said)
    return f"{variant}: " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


def wrong(variant: str, said: Sequence[Json]) -> str:
    bad = [f"{each['kind']} after {each['damage']}: {each['why']}"[:1500] for each in said if each["verdict"] == WRONG]
    return "\n".join([f"CRASH_SEED={SEED}: {len(bad)} of {shown(variant, said)}", *bad[:10]]) if bad else ""


@pytest.mark.timeout(3600 if EXHAUSTIVE else 120)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_flip_of_any_byte_is_harmless_or_named(variant: str, stores: dict[str, Path]) -> None:
    stock = Stock.of(stores[variant] / "store")
    # One mask a byte: a bit and all bits in turn, the other way round with the next seed.
    flips = [each for each in stock.flips() if (each.size == 0xFF) == ((each.at + SEED) % 2 == 0)]
    read = flips if EXHAUSTIVE else spread(flips, SEED, few=READ)
    resumed = spread(flips, SEED + 1, few=RESUMED_OF_ALL if EXHAUSTIVE else RESUMED)
    said = look(stores[variant], variant, list(map(str, read)), list(map(str, resumed)))
    print(shown(variant, said))  # noqa: T201  how often a known limit was met is part of the answer
    assert not wrong(variant, said), wrong(variant, said)
    assert len(said) == len(read) + len(resumed)
    found = Counter(each["verdict"] for each in said)
    assert found[EQUAL] > len(said) / 20  # or the reader sees damage everywhere
    assert found[NAMED] + found[EARLIER] > len(said) / 20  # or nowhere
    assert found[HIDDEN] <= len(said) / 100
    assert found[EARLIER] == 0 or variant == "log"


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_cut_lost_or_blank_is_harmless_or_named(variant: str, stores: dict[str, Path]) -> None:
    stock = Stock.of(stores[variant] / "store")
    damages = list(map(str, [*stock.cuts(), *stock.losses(), *stock.pages()]))
    damages = damages if EXHAUSTIVE else damages[SEED % 2 :: 2]
    said = look(stores[variant], variant, damages, damages)
    print(shown(variant, said))  # noqa: T201  as above
    assert not wrong(variant, said), wrong(variant, said)
    assert len(said) == 2 * len(damages)
    assert all(each["verdict"] != EARLIER or ":store.db-wal" in each["damage"] for each in said)


# -- places that were found ---------------------------------------------------------------------------------------


def _all_bits(*places: int) -> list[Damage]:
    return [Damage(how=Hurt.FLIP, file="store.db", at=at, size=1 << bit) for at in places for bit in range(8)]


def _after(content: bytes, part: bytes) -> list[int]:
    """Where something ends, each time that it is there."""
    return [found.end() for found in re.finditer(re.escape(part), content)]


def _root(store: Stock) -> list[Damage]:
    """The number of a tree's first page, in the schema: with another one, both runs look as if they never were."""
    return _all_bits(*_after(store.contents["store.db"], b"ledgerledger"))


def _keys(store: Stock) -> list[Damage]:
    """A key that does not stand in its order any more: who goes on behind it comes by it again and again."""
    starts = [at - 4 for at in _after(store.contents["store.db"], b"run\0")]
    return [Damage(how=Hurt.FLIP, file="store.db", at=at, size=0xFF) for at in starts]


def _rowids(store: Stock) -> list[Damage]:
    """An index's entry that leads to another object: its bytes are not those of the name."""
    return _all_bits(*(at for name in list(_objects(store))[::4] for at in _after(store.contents["store.db"], name)))[
        ::2
    ]


def _segments(store: Stock) -> list[Damage]:
    """Each third byte of a log's segments: their name is no digest of them, so their own reader judges them."""
    found = [
        (at - len(body), at) for body in _objects(store, 1).values() for at in _after(store.contents["store.db"], body)
    ]
    return [damage for start, end in found for damage in _all_bits(*range(start, end, 3))[::9]]


def _objects(store: Stock, kind: int | None = None) -> dict[bytes, bytes]:
    """Name -> body, asked of SQLite itself."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(_closed(store.contents["store.db"]))
        rows = db.execute("select name, kind, body from object order by name")
        return {name: body for name, of, body in rows if kind in (None, of)}


def _closed(content: bytes) -> bytes:
    """Said to have a rollback journal: what is in memory has no log."""
    return content[:18] + b"\1\1" + content[20:]


def _types(store: Stock) -> list[Damage]:
    """The schema's words: a column that is looked up under another name is null in each row."""
    (start,) = (at for at in _after(store.contents["store.db"], b"CREATE TABLE object"))
    return _all_bits(*range(start, start + 80))[::5]


@pytest.mark.parametrize("places", [_root, _keys, _rowids, _segments, _types])
def test_where_a_flip_once_did_harm_it_is_named(
    places: Callable[[Stock], list[Damage]], stores: dict[str, Path]
) -> None:
    damages = list(map(str, places(Stock.of(stores["folded"] / "store"))))
    assert damages
    said = look(stores["folded"], "folded", damages, damages[::8])
    assert not wrong("folded", said), wrong("folded", said)


# -- the helpers --------------------------------------------------------------------------------------------------


def test_every_byte_of_every_file_is_in_the_enumeration(stores: dict[str, Path]) -> None:
    stock = Stock.of(stores["log"] / "store")
    flips = list(stock.flips())
    assert {(each.file, each.at) for each in flips} == {
        (n, at) for n, c in stock.contents.items() for at in range(len(c))
    }
    assert len({str(each) for each in flips}) >= stock.size * 1.8  # where the bit's mask is all bits, they are one
    assert {each.file for each in stock.losses()} == set(stock.contents)
    pages = list(stock.pages())
    assert [each.at for each in pages] == list(range(0, len(stock.contents["store.db"]), 2048))
    assert {each.file for each in pages} == {"store.db"}
    assert {each.file for each in stock.cuts()} == {name for name, content in stock.contents.items() if content}
    assert {seed: spread(flips[:100], seed, few=10) for seed in range(10)}.keys() == set(range(10))
    assert sorted(map(str, (each for seed in range(10) for each in spread(flips[:100], seed, few=10)))) == sorted(
        map(str, flips[:100])
    )


@pytest.mark.parametrize(
    ("damage", "after"),
    [
        (Damage(how=Hurt.FLIP, file="a/b", at=1, size=0xFF), b"0\xce23"),
        (Damage(how=Hurt.CUT, file="a/b", at=2), b"01"),
        (Damage(how=Hurt.BLANK, file="a/b", at=2, size=100), b"01\0\0"),
        (Damage(how=Hurt.GONE, file="a/b"), None),
    ],
)
def test_damage_is_done_and_undone_and_is_one_line(damage: Damage, after: bytes | None, tmp_path: Path) -> None:
    (tmp_path / "whole/a").mkdir(parents=True)
    (tmp_path / "whole/a/b").write_bytes(b"0123")
    stock = Stock.of(tmp_path / "whole")
    assert Damage.parse(str(damage)) == damage
    place = tmp_path / "copy"
    stock.put(place, damage)
    assert ((place / "a/b").read_bytes() if (place / "a/b").exists() else None) == after
    (place / "a/more").write_bytes(b"")
    (place / "c/d").mkdir(parents=True)
    stock.put(place)
    assert Stock.of(place) == stock
    with hurt(place, damage):
        assert ((place / "a/b").read_bytes() if (place / "a/b").exists() else None) == after
    assert Stock.of(place) == stock


@pytest.mark.parametrize("text", ["", "flip:1:store.db", "melt:0:0:x", "flip:-1:1:x"])
def test_what_is_no_damage_is_refused(text: str) -> None:
    with pytest.raises(Usage, match="is no damage"):
        Damage.parse(text)


def test_only_a_database_has_pages() -> None:
    assert page_size(b"SQLite format 3\0\x10\x00" + bytes(90)) == 4096
    assert page_size(b"SQLite format 3\0\x00\x01" + bytes(90)) == 65536
    assert page_size(b"SVPTPK01" + bytes(200)) == 0
