"""A damaged store says so: no flipped or missing byte is ever taken for content, or for nothing."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from savepoint._digest import Domain, seal
from savepoint._errors import Corrupt, Missing, SavepointError
from savepoint._sqlite import SqliteStore, open_store
from savepoint._store import Kind, Space

BODIES = [bytes((number,)) * (50 + number * 100) for number in range(25)]
USED = (Space.EVENT, Space.HEAD, Space.RUN)
Content = dict[Space, list[tuple[bytes, bytes]]]


async def fill(place: Path) -> Content:
    async with open_store(place) as store:
        async with store.commit() as tx:
            for body in BODIES:
                tx.put(seal(Domain.OBJECT, body), body)
            for run in range(4):
                lineage = seal(Domain.LINEAGE, bytes((run,)))[:16]
                for number in range(12):
                    tx.write(Space.EVENT, lineage + number.to_bytes(8, "big"), bytes((number, run)) * 40)
                tx.write(Space.HEAD, lineage, b"head of " + lineage)
                tx.write(Space.RUN, b"run-%d" % run, b"record " + lineage)
        return {space: await rows_of(store, space) for space in USED}


async def rows_of(store: SqliteStore, space: Space) -> list[tuple[bytes, bytes]]:
    return [(row.key, row.body) for row in await store.scan(space)]


async def read_everything(store: SqliteStore, content: Content) -> Sequence[SavepointError]:
    """Every way of reading either gives what was written or names the damage; returns the errors."""
    errors: list[SavepointError] = []
    for body in BODIES:
        try:
            assert await store.objects([seal(Domain.OBJECT, body)]) == [body]
        except (Corrupt, Missing) as error:
            errors.append(error)
    for space, rows in content.items():
        for key, body in rows:
            try:
                row = await store.read(space, key)
                assert row is not None, f"{space} {key!r} was taken for absent"
                assert row.body == body
            except Corrupt as error:
                errors.append(error)
        try:
            assert await rows_of(store, space) == rows
        except Corrupt as error:
            errors.append(error)
    return errors


async def test_any_flipped_byte_leaves_all_equal_or_is_named(tmp_path: Path) -> None:
    place = tmp_path / "s"
    content = await fill(place)
    whole = (place / "store.db").read_bytes()
    chance = random.Random(len(whole))
    named = 0
    for position in sorted(chance.sample(range(len(whole)), 250)):
        damaged = bytearray(whole)
        damaged[position] ^= chance.randrange(1, 256)
        (place / "store.db").write_bytes(damaged)
        try:
            async with open_store(place, read_only=True) as store:
                errors = await read_everything(store, content)
                if any(isinstance(error, Corrupt) for error in errors):
                    assert (await store.verify()).damage, f"byte {position}: verify finds nothing"
                named += bool(errors)
        except SavepointError:
            named += 1
        assert (place / "store.db").read_bytes() == damaged, "damaged bytes were overwritten"
    assert named > 60


async def test_a_row_whose_key_was_changed_is_never_taken_for_absent(tmp_path: Path) -> None:
    content = await fill(tmp_path / "s")
    file = tmp_path / "s/store.db"
    whole = file.read_bytes()
    for space in USED:
        for key, _ in content[space]:
            place = space.encode() + b"\0" + key
            offset = whole.index(place) + len(place) - 1
            damaged = bytearray(whole)
            damaged[offset] ^= 0x80
            file.write_bytes(damaged)
            async with open_store(tmp_path / "s", read_only=True) as store:
                with pytest.raises(Corrupt, match=r"store\.db"):
                    await store.read(space, key)
                with pytest.raises(Corrupt, match=r"store\.db"):
                    await store.scan(space)


async def test_a_commit_that_expects_absence_is_refused_over_a_damaged_key(tmp_path: Path) -> None:
    """Else the same run id would start afresh over the run that it hides."""
    await fill(tmp_path / "s")
    file = tmp_path / "s/store.db"
    damaged = file.read_bytes().replace(b"run\0run-2", b"run\0rnn-2")
    file.write_bytes(damaged)
    async with open_store(tmp_path / "s") as store:

        async def start_afresh() -> None:
            async with store.commit() as tx:
                tx.expect(Space.RUN, b"run-2", None)
                tx.write(Space.RUN, b"run-2", b"fresh")

        with pytest.raises(Corrupt):
            await start_afresh()
        async with store.commit() as tx:  # other runs are not affected
            tx.write(Space.LEASE, b"run-1", b"")


async def test_damage_names_the_thing_and_the_file_and_the_next_move(tmp_path: Path) -> None:
    await fill(tmp_path / "s")
    file = tmp_path / "s/store.db"
    file.write_bytes(file.read_bytes().replace(BODIES[3], BODIES[3][:-1] + b"!").replace(b"record ", b"rekord "))
    name = seal(Domain.OBJECT, BODIES[3]).hex()
    async with open_store(tmp_path / "s", create=False) as store:
        with pytest.raises(Corrupt, match=f"object {name} in {file}") as damage:
            await store.objects([seal(Domain.OBJECT, BODIES[3])])
        assert "savepoint verify" in damage.value.next
        with pytest.raises(Corrupt, match=f"row run {b'run-1'.hex()} in {file}"):
            await store.read(Space.RUN, b"run-1")
        assert await store.objects([seal(Domain.OBJECT, BODIES[4])]) == [BODIES[4]]
        found = await store.verify()
    assert (found.objects, found.rows) == (len(BODIES), 56)
    assert [(damage.what, damage.name) for damage in found.damage if damage.what == "object"] == [("object", name)]
    assert len([damage for damage in found.damage if damage.what == "row"]) == 4


async def test_a_whole_store_verifies_clean(tmp_path: Path) -> None:
    await fill(tmp_path / "s")
    async with open_store(tmp_path / "s") as store:
        found = await store.verify()
    assert (found.objects, found.rows, list(found.damage)) == (len(BODIES), 56, [])


async def test_verify_knows_a_segment_that_is_none(tmp_path: Path) -> None:
    async with open_store(tmp_path / "s") as store:
        async with store.commit() as tx:
            tx.put(bytes(32), bytes(64), Kind.SEGMENT)
        assert [damage.what for damage in (await store.verify()).damage] == ["object"]


async def test_a_damaged_page_header_is_at_least_found_by_verify(tmp_path: Path) -> None:
    """A point read cannot see that a page's count of cells was changed (`design/0005-store.md`); `verify` can."""
    await fill(tmp_path / "s")
    file = tmp_path / "s/store.db"
    whole = file.read_bytes()
    kinds = {2: "inner page of an index", 5: "inner page of a table", 10: "leaf of an index", 13: "leaf of a table"}
    pages = [page for page in range(2048, len(whole), 2048) if whole[page] in kinds]
    assert {whole[page] for page in pages} >= {2, 10, 13}
    for page in pages:
        damaged = bytearray(whole)
        damaged[page + 4] ^= 1
        file.write_bytes(damaged)
        async with open_store(tmp_path / "s", read_only=True) as store:
            assert (await store.verify()).damage, f"{kinds[whole[page]]} at {page}"


@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
async def test_a_cut_file_is_refused_and_kept(tmp_path: Path, part: float) -> None:
    await fill(tmp_path / "s")
    file = tmp_path / "s/store.db"
    cut = file.read_bytes()[: int(file.stat().st_size * part)]
    file.write_bytes(cut)
    with pytest.raises(Corrupt, match=r"store\.db"):
        async with open_store(tmp_path / "s") as store:
            await store.scan(Space.EVENT)
    assert file.read_bytes() == cut
