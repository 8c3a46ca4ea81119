"""The two tables: every statement that reads or changes them, and the check of every byte that they return.

Runs in SQLite's thread, inside the engine's transaction. Design: `design/0005-store.md`.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from ._digest import SIZE
from ._errors import Corrupt, SavepointError
from ._log import verify_segment
from ._memory import absent, looped, stale
from ._store import Kind, Row, Space
from ._unit import Unit, checked_object, checked_row, shown

_SEGMENT = int(Kind.SEGMENT)

SCHEMA = (
    # Bodies beside an index of names: in one tree, 2 kB bodies would spill to overflow pages and random names would
    # move them. 2 kB pages: what a commit writes is mostly one page for each random name.
    "pragma page_size=2048",
    "create table object(name blob not null primary key, kind int not null, body blob not null)",
    # One tree: rows are small, and a lineage's events are neighbours. One column for space and key: SQLite re-tests the
    # condition on two columns at every row, and would silently skip a row with a damaged space.
    "create table ledger(place blob not null primary key, body blob not null, digest blob not null) without rowid",
)
EXPECTED = (
    ("table", "object", "object", 2, f"CREATE TABLE {SCHEMA[1].removeprefix('create table ')}"),
    ("index", "sqlite_autoindex_object_1", "object", 3, None),
    ("table", "ledger", "ledger", 4, f"CREATE TABLE {SCHEMA[2].removeprefix('create table ')}"),
)
"""SQLite's own list of what it made of the schema, and on which pages. It has no check of its own: a flipped page number
would show another tree, in which no run is found and every run starts afresh.
"""
_PUT = "insert or ignore into object values(?,?,?)"
_WRITE = "insert or replace into ledger values(?,?,?)"
_DELETE = "delete from ledger where place=?"
_READ = "select body, digest from ledger where place=?"
_BEFORE = "select place, body, digest from ledger where place<? order by place desc limit 1"
_BEHIND = "select place, body, digest from ledger where place>? order by place limit 1"
_WALK = "select place, body, digest from ledger where place>=? order by place"
_BATCH = 200
_OBJECT = "select name, kind, body from object where name=?"
_OBJECTS = f"select name, kind, body from object where name in ({','.join('?' * _BATCH)})"  # noqa: S608  question marks only
# The walk carries 32 bytes a segment and ends by itself where a damaged chain leads back to itself (`union`);
# `cross join` fixes the order of the loops, hence of the answer.
_SEGMENTS = """
with recursive chain(id, prior) as (
    select rowid, substr(body, 1, 32) from object where name = ?1
    union select o.rowid, substr(o.body, 1, 32) from chain cross join object o on o.name = prior where prior <> ?2
) select body from chain cross join object on rowid = id
"""
_PAGE_OF_OBJECTS = "select rowid, name, kind, body from object where rowid > ? order by rowid limit ?"
_PAGE_OF_ROWS = "select place, body, digest from ledger where place > ? order by place limit ?"


class Tables:
    """The tables behind one connection; `run` is its `execute`, `place` the file for messages."""

    def __init__(self, run: Callable[..., Any], place: str) -> None:
        self._run = run
        self.place = place

    def attempt(self, unit: Unit) -> SavepointError | None:
        """Writes what the unit holds if all that it expects is so; else returns why not and writes nothing."""
        try:
            for space, key, digest in unit.expected:
                found = self.read(space, key)
                if (found and found.digest) != digest:
                    return stale(space, key)
        except SavepointError as error:
            return error
        self._write(unit)
        return None

    def _write(self, unit: Unit) -> None:
        for item in unit.objects.values():
            self._run(_PUT, item)
        for (space, key), row in unit.rows.items():
            if row is None:
                self._run(_DELETE, (at(space, key),))
            else:
                self._run(_WRITE, (at(space, key), *row))

    def read(self, space: Space, key: bytes) -> Row | None:
        found = self._run(_READ, (at(space, key),)).fetchone()
        if found is None:
            self._look_beside(space, key)
            return None
        return checked_row(space, key, *found, place=self.place)

    def _look_beside(self, space: Space, key: bytes) -> None:
        """Refuses to call a row absent where damage may hide it.

        A row whose stored key was changed, or that is found wrong because one on an inner page was, has the damaged
        row next to where it would be. Damaged rows of other spaces do not lead astray: space is compared first.
        """
        for query in (_BEFORE, _BEHIND):
            self._judge_beside(query, space, key)

    def _judge_beside(self, query: str, space: Space, key: bytes) -> None:
        for place, *row in self._run(query, (at(space, key),)):
            where, key_there = self._taken_apart(place)
            if where is space:
                checked_row(space, key_there, *row, place=self.place)

    def _taken_apart(self, place: bytes) -> tuple[Space, bytes]:
        try:
            space, _, key = place.partition(b"\0")
            return Space(space.decode()), key
        except (ValueError, TypeError, AttributeError):  # damage may change a column's type as well
            raise Corrupt(f"a row in {self.place} has the impossible place {place!r}") from None

    def scan(self, space: Space, prefix: bytes, after: bytes, limit: int | None) -> Sequence[Row]:
        """Walks to the first row outside and checks that one too: a damaged key must not end a scan early."""
        first = max(prefix, after + b"\0")  # the least key greater than `after`
        self._judge_beside(_BEFORE, space, first)
        found: list[Row] = []
        with closing(self._run(_WALK, (at(space, first),))) as walk:  # an open cursor would keep a read lock
            for place, *row in walk if limit != 0 else ():
                where, key = self._taken_apart(place)
                if where is not space:
                    break
                found.append(checked_row(space, key, *row, place=self.place))
                if not key.startswith(prefix):
                    return found[:-1]
                if len(found) == limit:
                    break
        return found

    def objects(self, names: Sequence[bytes]) -> Sequence[bytes]:
        found: dict[bytes, bytes] = {}
        whole = len(names) - len(names) % _BATCH
        parts = [(_OBJECTS, names[start : start + _BATCH]) for start in range(0, whole, _BATCH)]
        parts += [(_OBJECT, names[index : index + 1]) for index in range(whole, len(names))]
        for query, part in parts:
            for name, kind, body in self._run(query, part):
                found[name] = self.check_object(name, kind, body)
        for name in names:
            if name not in found:
                raise absent(name, self.place)
        return [found[name] for name in names]

    def segments(self, root: bytes, until: bytes) -> Sequence[bytes]:
        if root == until:
            return []
        bodies = [body for (body,) in self._run(_SEGMENTS, (root, until))]
        if not all(isinstance(body, bytes) for body in bodies):
            raise Corrupt(f"a segment before {root.hex()} in {self.place} is no bytes any more")
        last = bodies[-1][:SIZE] if bodies else root
        if last == until:
            return bodies
        raise looped(last, self.place) if self._has(last) else absent(last, self.place)

    def _has(self, name: bytes) -> bool:
        return self._run("select 1 from object where name=?", (name,)).fetchone() is not None

    def touch(self) -> None:
        """Fails where the tables cannot be read. Raises `Corrupt` where they are not those that were made."""
        listed = self._run("select type, name, tbl_name, rootpage, sql from sqlite_master").fetchall()
        if tuple(listed) != EXPECTED:
            raise Corrupt(f"{self.place}: SQLite's list of its tables is not as it was written")
        self._run("select name from object limit 1").fetchall()
        self._run("select place from ledger limit 1").fetchall()

    def page_of_objects(self, after: int, limit: int) -> Sequence[tuple[int, bytes, int, bytes]]:
        """Row number, name, kind, body; unverified, but in order: else a reading page by page would never end."""
        return self._ordered(self._run(_PAGE_OF_OBJECTS, (after, limit)).fetchall(), after)

    def page_of_rows(self, after: bytes, limit: int) -> Sequence[tuple[bytes, bytes, bytes]]:
        """Place, body, digest; unverified, but in order."""
        return self._ordered(self._run(_PAGE_OF_ROWS, (after, limit)).fetchall(), after)

    def _ordered(self, page: list[Any], after: Any) -> list[Any]:
        for key, *_ in page:
            if type(key) is not type(after) or key <= after:
                raise Corrupt(f"{self.place}: the key {key!r} is not where it belongs, behind {after!r}")
            after = key
        return page

    def check_object(self, name: bytes, kind: int, body: bytes) -> bytes:
        """Its body, which has this name. Raises `Corrupt`."""
        checked_object(name, kind, body, place=self.place)
        if kind == _SEGMENT and not verify_segment(name, body):
            raise Corrupt(f"segment {shown(name)} in {self.place} is damaged")
        return body

    def check_row(self, place: bytes, body: bytes, digest: bytes) -> None:
        checked_row(*self._taken_apart(place), body, digest, place=self.place)

    def file_damage(self) -> Sequence[str]:
        """What SQLite itself finds wrong with the file."""
        return [text for (text,) in self._run("pragma integrity_check") if text != "ok"]


def at(space: str, key: bytes) -> bytes:
    """Where a row stands in the ledger's order."""
    return b"%b\0%b" % (space.encode(), key)
