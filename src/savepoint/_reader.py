"""Strict reading of canonical bytes: nothing else than the one encoding of a value is taken. Mirrors `Walk`."""

from collections.abc import Callable, Mapping
from struct import unpack
from typing import Any
from zoneinfo import ZoneInfoNotFoundError

from ._atoms import ARRAY, BUILD, BYTES, MAP, NEGATIVE, NONE, SIMPLE, TAG, TEXT, UNSIGNED, Tag, atom, real, tagged
from ._cursor import Cursor
from ._digest import SIZE
from ._errors import Corrupt, Foreign, Missing
from ._log import Log
from ._portable import is_immutable
from ._types import Types
from ._walk import CROWDED, DEPTH, KEY_INT_BYTES, KEY_SETS, crowd


class Reader(Cursor):
    """Reads values one after the other. Every method raises `Corrupt`; what builds classes also `Foreign` and `Newer`."""

    __slots__ = ("crowded", "keys", "logs", "mutable", "sets", "types")

    def __init__(self, types: Types, logs: Mapping[bytes, Log[Any]] | None) -> None:
        super().__init__(b"")
        self.types = types
        self.logs = logs  # None: the whole profile
        self.mutable = False  # whether the value holds something that can be changed

    def read(self, data: bytes) -> Any:
        """The one value that all the bytes are."""
        self.turn_to(data)
        self.keys = self.sets = self.crowded = 0
        self.mutable = False
        try:
            value = self.item(0)
        except IndexError:  # what costs least at each of thousands of items: no check, but the one that Python makes
            raise self.cut() from None
        self.finish()
        return value

    def item(self, depth: int) -> Any:
        data = self.data
        pos = self.pos
        first = data[pos]
        if first < 24:  # the most frequent items first
            self.pos = pos + 1
            return first
        if 0x60 <= first <= 0x79:
            start, stop = self.span(first - 0x60, pos)
            try:
                return data[start:stop].decode()
            except UnicodeDecodeError:
                raise Corrupt(f"text that is not UTF-8 at byte {pos}") from None
        if first == 0xD9:  # a tag of two bytes, as all of ours are
            tag = data[pos + 1] << 8 | data[pos + 2]
            if tag > 255:
                self.pos = pos + 3
                read = _TAGS.get(tag)
                return self.atom(tag) if read is None else read(self, depth)
        if 0x40 <= first <= 0x59:
            start, stop = self.span(first - 0x40, pos)
            return data[start:stop]
        if first >= 0xE0:
            return self.simple(first)
        return _MAJOR[first >> 5](self, self.any_head()[1], depth)

    def span(self, info: int, pos: int) -> tuple[int, int]:
        """Where the bytes of a text or byte string stand whose length has up to two bytes; goes past them."""
        if info < 24:
            start, size = pos + 1, info
        elif info == 24:
            start, size = pos + 2, self.data[pos + 1]
            if size < 24:
                raise self.too_long(pos)
        else:
            start, size = pos + 3, self.data[pos + 1] << 8 | self.data[pos + 2]
            if size < 256:
                raise self.too_long(pos)
        self.pos = stop = start + size
        if stop > self.end:
            raise self.cut()
        return start, stop

    def simple(self, first: int) -> bool | float | None:
        at = self.pos
        size = _FLOATS.get(first)
        if size is None:
            self.pos = at + 1
            return self.constant(first)
        form, width = size
        data = self.take(1 + width)
        value: float = unpack(form, data[1:])[0]
        if real(value) != data:
            raise Corrupt(f"a float in another form than the shortest at byte {at}")
        return value

    def constant(self, first: int) -> bool | None:
        if first not in _CONSTANTS:
            raise Corrupt(f"an undefined simple value at byte {self.pos - 1}")
        return _CONSTANTS[first]

    def room(self, count: int, depth: int, each: int = 1) -> None:
        """Refuses a container that is too deep or cannot be that long."""
        if depth >= DEPTH:
            raise Corrupt(f"nested deeper than {DEPTH} at byte {self.pos}")
        if count * each > self.end - self.pos:
            raise self.cut()

    def unsigned(self, argument: int, _: int) -> int:
        return argument

    def negative(self, argument: int, _: int) -> int:
        return -1 - argument

    def octets(self, argument: int, _: int) -> bytes:
        return self.take(argument)

    def text(self, argument: int, _: int) -> str:
        start = self.pos
        try:
            return self.take(argument).decode()
        except UnicodeDecodeError:
            raise Corrupt(f"text that is not UTF-8 at byte {start}") from None

    def items(self, depth: int, count: int) -> list[Any]:
        self.room(count, depth)
        item = self.item
        return [item(depth + 1) for _ in range(count)]

    def array(self, count: int, depth: int) -> list[Any]:
        self.mutable = True
        return self.items(depth, count)

    def map(self, count: int, depth: int) -> dict[Any, Any]:
        self.room(count, depth, 2)
        self.mutable = True
        depth += 1
        keys: list[Any] = []
        values: list[Any] = []
        previous = b""
        for _ in range(count):
            start = self.pos
            short = 0x60 <= self.data[start] <= 0x79  # a text: nothing inside it that counts as inside a key
            keys.append(self.item(depth) if short else self.key(depth))
            previous = self.ascending(previous, start)
            values.append(self.item(depth))
        if all(type(key) is str for key in keys):
            return dict(zip(keys, values, strict=True))
        self.check_keys(keys)
        return self.distinct(dict(zip(keys, values, strict=True)), count)

    def set_of(self, kind: type[Any], depth: int) -> Any:
        count = self.head(ARRAY)
        self.room(count, depth)
        self.mutable |= kind is set
        self.sets += self.keys > 0
        if self.sets > KEY_SETS:
            raise Corrupt(f"sets nested deeper than {KEY_SETS} inside a key")
        keys: list[Any] = []
        previous = b""
        for _ in range(count):
            start = self.pos
            keys.append(self.key(depth + 1))
            previous = self.ascending(previous, start)
        self.sets -= self.keys > 0
        self.check_keys(keys)
        return self.distinct(kind(keys), count)

    def key(self, depth: int) -> Any:
        self.keys += 1
        key = self.item(depth)
        self.keys -= 1
        return key

    def ascending(self, previous: bytes, start: int) -> bytes:
        """The bytes of the key that was read from `start` on; they must follow the previous ones."""
        data = self.data[start : self.pos]
        if data <= previous:
            raise Corrupt(f"keys out of order or repeated at byte {start}")
        return data

    def check_keys(self, keys: list[Any]) -> None:
        try:
            self.crowded += crowd(keys)
            for key in keys:
                hash(key)
        except Exception as error:  # unhashable, or a registered class that refuses to be a key
            raise Corrupt(f"a key that cannot be one before byte {self.pos}") from error
        if self.crowded > CROWDED:
            raise Corrupt(f"too many keys share their hash before byte {self.pos}")

    def distinct(self, built: Any, count: int) -> Any:
        """Refuses keys that are equal in Python though their bytes differ: 1 and True."""
        if len(built) != count:
            raise Corrupt(f"two keys are equal before byte {self.pos}")
        return built

    def tagged(self, tag: int, depth: int) -> Any:
        read = _TAGS.get(tag)
        return self.atom(tag) if read is None else read(self, depth)

    def tuple_of(self, depth: int) -> tuple[Any, ...]:
        return tuple(self.items(depth, self.head(ARRAY)))

    def atom(self, tag: int) -> object:
        """A scalar. Whether its payload was canonical shows when it is written again."""
        if tag not in BUILD:
            raise Foreign(f"tag {tag} is unknown here (at byte {self.pos})")
        start = self.pos
        payload = self.payload(0)
        try:
            value = BUILD[tag](payload)
            again = atom(value)
        except ZoneInfoNotFoundError as error:
            raise Foreign(f"{error} on this machine", next="install its time zone database") from error
        except Exception as error:
            raise Corrupt(f"no {Tag(tag).name.lower()} at byte {start}: {type(error).__name__}") from error
        if again[len(tagged(Tag(tag))) :] != self.data[start : self.pos]:
            raise Corrupt(f"a {Tag(tag).name.lower()} in another form than its own at byte {start}")
        return value

    def payload(self, nesting: int) -> Any:
        if self.skip(NONE):
            return None
        at = self.pos
        major, argument = self.any_head()
        if major == ARRAY and nesting < 2:
            self.room(argument, 0)
            return tuple(self.payload(nesting + 1) for _ in range(argument))
        if major == TAG and argument in (Tag.BIG, Tag.BIG_NEGATIVE):
            return self.big(argument)
        if major in (ARRAY, MAP, TAG, SIMPLE):
            raise Corrupt(f"an item that no scalar has at byte {at}")
        return _MAJOR[major](self, argument, 0)

    def big(self, tag: int) -> int:
        at = self.pos
        data = self.take(self.head(BYTES))
        if len(data) <= 8 or not data[0]:
            raise Corrupt(f"a big int in another form than the shortest at byte {at}")
        if self.keys and len(data) > KEY_INT_BYTES:
            raise Corrupt(f"an int of more than {KEY_INT_BYTES} bytes inside a key at byte {at}")
        magnitude = int.from_bytes(data, "big")
        return magnitude if tag == Tag.BIG else -1 - magnitude

    def named(self) -> tuple[str, int]:
        """Name and version of a registered class; one more item follows."""
        if self.head(ARRAY) != 3:
            raise Corrupt(f"a registered class without its three parts at byte {self.pos}")
        name = self.text(self.head(TEXT), 0)
        return name, self.head(UNSIGNED)

    def record(self, depth: int) -> object:
        """An instance of a registered class. The start that all bytes of a known one have is looked up as a whole."""
        data = self.data
        pos = self.pos
        # Tag, array of three, name, version, map: of one byte each where name, version and fields are few.
        stop = pos + data[pos + 1] - TEXT_HEAD + 4
        plan = self.types.starts.get(data[pos - TAG_SIZE : stop])
        if plan is None:
            return self.other_record(depth)
        if depth >= DEPTH:
            raise Corrupt(f"nested deeper than {DEPTH} at byte {pos}")
        self.pos = stop
        fields: dict[str, Any] = {}
        depth += 1
        for name, key in plan.keys:
            at = self.pos
            if not data.startswith(key, at):
                raise Foreign(
                    f"what is stored at byte {at} has other fields than {plan.name!r} version {plan.version}: {list(plan.fields)}",
                    next="raise the version of the class and register a migration",
                )
            self.pos = at + len(key)
            fields[name] = self.item(depth)
        self.mutable |= not plan.immutable
        return plan.build(fields)

    def other_record(self, depth: int) -> object:
        """An instance of any version, after its tag."""
        name, version = self.named()
        mutable = self.mutable
        fields = self.map(self.head(MAP), depth)
        if not all(type(key) is str for key in fields):
            raise Corrupt(f"fields of {name[:100]!r} without names")
        value = self.types.record(name, version, fields)
        self.mutable = mutable or not is_immutable(value)
        return value

    def member(self) -> object:
        name, version = self.named()
        return self.types.member(name, version, self.text(self.head(TEXT), 0))

    def log(self) -> Log[Any]:
        if self.logs is None:
            raise Corrupt("linked bytes, where whole ones are expected")
        count, root = self.count_and_root()
        found = self.logs.get(root)
        if found is None:
            raise Missing(f"log {root.hex()[:12]} of {count} elements was not loaded")
        if len(found) != count or found.root != root:
            raise Corrupt(f"log {root.hex()[:12]} should have {count} elements, not {len(found)}")
        return found

    def count_and_root(self) -> tuple[int, bytes]:
        if self.head(ARRAY) != 2:
            raise Corrupt(f"a log without count and root at byte {self.pos}")
        count = self.head(UNSIGNED)
        if self.head(BYTES) != SIZE:
            raise Corrupt(f"a log without a root at byte {self.pos}")
        return count, self.take(SIZE)

    def log_whole(self, depth: int) -> Log[Any]:
        if self.logs is not None:
            raise Corrupt("whole bytes, where linked ones are expected")
        return Log(self.items(depth, self.head(ARRAY)))


TAG_SIZE, TEXT_HEAD = 3, 0x60
_FLOATS = {0xF9: (">e", 2), 0xFA: (">f", 4), 0xFB: (">d", 8)}
_CONSTANTS = {0xF4: False, 0xF5: True, 0xF6: None}
_MAJOR: dict[int, Callable[[Reader, int, int], Any]] = {
    UNSIGNED: Reader.unsigned,
    NEGATIVE: Reader.negative,
    BYTES: Reader.octets,
    TEXT: Reader.text,
    ARRAY: Reader.array,
    MAP: Reader.map,
    TAG: Reader.tagged,
}
_TAGS: dict[int, Callable[[Reader, int], Any]] = {
    Tag.BIG: lambda reader, _: reader.big(Tag.BIG),
    Tag.BIG_NEGATIVE: lambda reader, _: reader.big(Tag.BIG_NEGATIVE),
    Tag.TUPLE: Reader.tuple_of,
    Tag.SET: lambda reader, depth: reader.set_of(set, depth),
    Tag.FROZENSET: lambda reader, depth: reader.set_of(frozenset, depth),
    Tag.RECORD: Reader.record,
    Tag.MEMBER: lambda reader, _: reader.member(),
    Tag.LOG: lambda reader, _: reader.log(),
    Tag.LOG_WHOLE: Reader.log_whole,
}
