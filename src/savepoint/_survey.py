"""Reading a whole store, page by page, so that other work goes on between: every object, every row, the file."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from ._engine import Engine
from ._errors import SavepointError
from ._unit import Damage, Verified, shown

T = TypeVar("T")

_PAGE = 500


class Look(Protocol):
    """Runs a piece of reading in SQLite's thread."""

    async def __call__(self, work: Callable[[Engine], T], /) -> T: ...


async def survey(look: Look, file: Path) -> Verified:
    """What a reading of every byte finds. Where a table cannot be read on, that is damage too, and ends it."""
    damage = await _of_file(look, file)
    objects, bad_objects = await _objects(look, file)
    rows, bad_rows = await _rows(look, file)
    return Verified(objects=objects, rows=rows, damage=(*damage, *bad_objects, *bad_rows))


async def _of_file(look: Look, file: Path) -> Sequence[Damage]:
    try:
        found = await look(lambda engine: engine.tables.file_damage())
    except SavepointError as error:
        found = [error.message]
    return [Damage(what="file", name=str(file), cause=cause) for cause in found]


async def _objects(look: Look, file: Path) -> tuple[int, Sequence[Damage]]:
    count, last, damage = 0, -(1 << 63), list[Damage]()
    try:
        while page := await look(lambda engine, last=last: _page_of_objects(engine, last, damage)):
            count, last = count + len(page), page[-1][0]
    except SavepointError as error:
        damage.append(Damage(what="file", name=str(file), cause=error.message))
    return count, damage


def _page_of_objects(engine: Engine, last: int, damage: list[Damage]) -> Sequence[tuple[int, bytes, int, bytes]]:
    page = engine.tables.page_of_objects(last, _PAGE)
    for _, name, kind, body in page:
        damage += _judged("object", shown(name), partial(engine.tables.check_object, name, kind, body))
    return page


async def _rows(look: Look, file: Path) -> tuple[int, Sequence[Damage]]:
    count, last, damage = 0, b"", list[Damage]()
    try:
        while page := await look(lambda engine, last=last: _page_of_rows(engine, last, damage)):
            count, last = count + len(page), page[-1][0]
    except SavepointError as error:
        damage.append(Damage(what="file", name=str(file), cause=error.message))
    return count, damage


def _page_of_rows(engine: Engine, last: bytes, damage: list[Damage]) -> Sequence[tuple[bytes, bytes, bytes]]:
    page = engine.tables.page_of_rows(last, _PAGE)
    for row in page:
        damage += _judged("row", repr(row[0]), partial(engine.tables.check_row, *row))
    return page


def _judged(what: str, name: str, check: Callable[[], object]) -> Sequence[Damage]:
    try:
        check()
    except (SavepointError, ValueError, TypeError) as error:  # damage may change a column's type as well
        return [Damage(what=what, name=name, cause=str(error))]
    return []
