"""`Log` is an immutable list: against a plain list, with any grouping of appends, from several threads."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, rule

from savepoint import _strategies
from savepoint._codec import encode
from savepoint._errors import NotPortable
from savepoint._log import EMPTY_ROOT, Log
from savepoint._portable import same

ELEMENTS = _strategies.values()


class Grown(RuleBasedStateMachine):
    """Any version may be appended to at any time; every version stays what it was."""

    versions = Bundle("versions")

    def __init__(self) -> None:
        super().__init__()
        self.roots: dict[tuple[bytes, ...], bytes] = {}

    @rule(target=versions)
    def empty(self):
        return Log(), []

    @rule(target=versions, version=versions, element=ELEMENTS, encoded=st.booleans())
    def append(self, version, element, encoded):
        log, plain = version
        return log.append(encode(element) if encoded else element), [*plain, element]

    @rule(target=versions, version=versions, elements=st.lists(ELEMENTS, max_size=3))
    def extend(self, version, elements):
        log, plain = version
        return log.extend(iter(elements)), plain + elements

    @rule(version=versions)
    def settle(self, version):
        version[0].settle_encoded()

    @rule(version=versions)
    def is_its_list(self, version):
        log, plain = version
        assert len(log) == len(plain)
        assert same(list(log), plain)
        assert same([log[i] for i in range(-len(plain), 0)], plain)
        assert same([log.encoded_at(i).value for i in range(len(plain))], plain)
        content = tuple(encode(element).digest for element in plain)
        assert self.roots.setdefault(content, log.root) == log.root
        assert log.root == Log(plain).root == log.root_at(len(log))
        assert log == Log(plain)
        assert hash(log) == hash(Log(plain))

    @rule(one=versions, other=versions)
    def equal_exactly_where_the_lists_are(self, one, other):
        assert (one[0] == other[0]) == same(one[1], other[1])

    @rule(version=versions, start=st.integers(-5, 5), stop=st.integers(-5, 5), step=st.sampled_from([1, 2, -1]))
    def slices(self, version, start, stop, step):
        log, plain = version
        assert type(log[start:stop:step]) is list
        assert same(log[start:stop:step], plain[start:stop:step])


TestGrown = Grown.TestCase


@given(st.lists(st.integers(), max_size=30), st.lists(st.integers(0, 30), max_size=5))
def test_the_root_does_not_depend_on_grouping(elements, cuts):
    log, start = Log(), 0
    for cut in sorted(cuts):
        log, start = log.extend(elements[start:cut]), max(start, min(cut, len(elements)))
    assert log.extend(elements[start:]).root == Log(elements).root


def test_elements_cannot_be_changed_from_outside():
    element: dict[str, Any] = {"a": [1]}
    log = Log([element, (1, [2])])
    root = log.root
    element["a"].append(2)
    log[0]["a"].append(3)
    for item in (*log, *log[:], log[1]):
        (item["a"] if isinstance(item, dict) else item[1]).append(4)
    assert list(log) == [{"a": [1]}, (1, [2])]
    assert Log(log).root == root


def test_outside_its_length_there_is_nothing():
    log = Log([1, 2])
    log.append(3)
    for index in (2, -3):
        with pytest.raises(IndexError):
            log[index]
    with pytest.raises(IndexError):
        log.root_at(3)
    assert list(log) == [1, 2]
    assert 3 not in log


def test_all_or_none_are_appended_and_the_offender_is_named():
    log = Log([1])
    with pytest.raises(NotPortable, match=r"^log\[2\]\.a: object is not portable"):
        log.extend([2, {"a": object()}])
    assert log.append(9) == Log([1, 9])


def test_empty_and_unequal():
    assert Log().root == EMPTY_ROOT == Log([]).root
    assert not Log()
    assert Log([1]) != [1]
    assert Log([1]) != Log([True])
    assert repr(Log([1, "a"])) == "Log([1, 'a'])"
    assert repr(Log(range(9))).startswith("Log(<9 elements, ")


def test_appending_to_an_old_version_leaves_the_newer_one_alone():
    old = Log(range(100))
    new = old.append("new")
    branch = old.append("branch")
    assert list(new)[100:] == ["new"]
    assert list(branch)[100:] == ["branch"]
    assert old == Log(range(100))


def test_one_version_may_be_appended_to_by_many_threads():
    base = Log(range(50))

    def grow(n: int) -> Log[Any]:
        log = base
        for element in range(20):
            log = log.append((n, element))
        return log

    with ThreadPoolExecutor(8) as pool:
        grown = list(pool.map(grow, range(32)))
    for n, log in enumerate(grown):
        assert log == Log([*range(50), *((n, element) for element in range(20))])
    assert base == Log(range(50))
