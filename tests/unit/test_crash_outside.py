"""The outside of the crash rig: every fault, what it leaves behind, and that nothing of it survives its parent."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from effects import NotPerformed, Performed, Unknown
from savepoint import Corrupt, Usage
from savepoint.crash import Outside, OutsideClient, OutsideFault, OutsidePlan, OutsideRefused
from savepoint.crash._outside_fault import ANY, LIES
from savepoint.crash._outside_ledger import LEDGER, RECEIVED, append_bytes, held, ledger, mend, received, repaired

LINE = b'{"kind": "once", "tag": "a", "arguments": [], "key": "k", "value": "a![]"}\n'


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    with Outside() as started:
        yield started


@pytest.fixture
def client(outside: Outside, tmp_path: Path) -> OutsideClient:
    return outside.client(tmp_path / "ledger", timeout_s=20)


def plan(client: OutsideClient, **listed: str) -> None:
    """`act_1="lost"`: the first act of tag `a`."""
    OutsidePlan(listed={" a ".join(name.split("_")): OutsideFault(fault) for name, fault in listed.items()}).write(
        client.place
    )


def act(client: OutsideClient, *arguments: object, tag: str = "a", key: str = "k", **more: object) -> str:
    return client.act_blocking(*arguments, tag=tag, key=key, **more)


# -- what it does where nothing goes wrong ----------------------------------------------------------------------------


async def test_an_act_is_in_the_ledger_as_it_was_asked_for(client: OutsideClient):
    value = await client.act("x", {"y": 2}, tag="0.pay", key="k", kind="once", epoch=3, now_s=5.0)
    [done] = ledger(client.place)
    assert (done.kind, done.tag, done.arguments, done.key, done.epoch, done.at_s) == (
        *("once", "0.pay", ["x", {"y": 2}], "k", 3, 5.0),
    )
    assert done.value == value
    assert len(done.digest) == 64
    [asked] = received(client.place)
    assert (asked.number, asked.operation, asked.digest, asked.fault) == (1, "act", done.digest, None)


async def test_every_observation_is_another_one_and_acts_are_counted_by_tag(client: OutsideClient):
    assert [await client.read(), await client.read(tag="b")] == ["r1", "r2"]
    for tag in ("a", "b", "a"):
        await client.act(tag=tag, key=tag)
    assert [await client.count(tag="a"), await client.count(tag="b"), await client.count()] == [2, 1, 3]


def test_a_keyed_act_is_done_once_within_the_window_on_the_clock_of_the_harness(client: OutsideClient):
    first = act(client, 1, kind="keyed", now_s=100.0, window_s=10.0)
    assert act(client, 1, kind="keyed", now_s=109.0, window_s=10.0) == first
    assert len(ledger(client.place)) == 1
    act(client, 1, kind="keyed", key="other", now_s=109.0, window_s=10.0)
    act(client, 1, kind="keyed", now_s=110.0, window_s=10.0)
    assert [done.at_s for done in ledger(client.place)] == [100.0, 109.0, 110.0]
    assert len(received(client.place)) == 4


def test_no_other_class_is_deduplicated(client: OutsideClient):
    for kind in ("once", "idempotent"):
        act(client, kind=kind, window_s=10.0)
        act(client, kind=kind, window_s=10.0)
    assert len(ledger(client.place)) == 4


async def test_a_truthful_probe_says_what_the_ledger_says(client: OutsideClient):
    assert await client.probe(tag="a", key="k", final=True) == NotPerformed(final=True)
    value = await client.act(1, tag="a", key="k")
    assert await client.probe(tag="a", key="k") == Performed(value)
    assert await client.probe(tag="a", key="other") == NotPerformed(final=False)


def test_two_ledger_directories_know_nothing_of_each_other(outside: Outside, tmp_path: Path):
    one, other = outside.client(tmp_path / "1"), outside.client(tmp_path / "2")
    act(one)
    assert (len(ledger(one.place)), len(ledger(other.place))) == (1, 0)


def test_clients_at_once_each_get_their_answer_and_no_line_is_torn(client: OutsideClient):
    def many(name: str) -> None:
        said[name] = [act(client, number, tag=name, key=f"{name} {number}") for number in range(20)]

    said: dict[str, list[str]] = {}
    threads = [threading.Thread(target=many, args=(f"t{number}",)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert said == {f"t{name}": [f"t{name}![{number}]" for number in range(20)] for name in range(4)}
    assert len(ledger(client.place)) == 80
    assert [each.number for each in received(client.place)] == list(range(1, 81))
    assert not repaired(client.place)


# -- each fault -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "raised", "acts"),
    [
        ("dropped", ConnectionError, 1),
        ("lost", ConnectionError, 0),
        ("refused", OutsideRefused, 0),
        ("dies before", ConnectionError, 0),
        ("dies appending", ConnectionError, 0),
        ("dies after", ConnectionError, 1),
        ("held", TimeoutError, 1),
        ("slow", None, 1),
        ("twice", None, 1),
    ],
)
@pytest.mark.parametrize("blocking", [False, True])
async def test_what_an_act_that_goes_wrong_raises_and_leaves(
    client: OutsideClient, fault: str, raised: type[Exception] | None, acts: int, blocking: bool
):
    plan(client, act_1=fault)
    client = attrs.evolve(client, timeout_s=0.3) if fault == "held" else client
    with contextlib.nullcontext() if raised is None else pytest.raises(raised):
        said = act(client, 1) if blocking else await client.act(1, tag="a", key="k")
        assert said == "a![1]"
    assert await client.count() == acts  # the ledger is whole again, whoever answers now
    assert [each.fault for each in received(client.place)] == [fault, None]
    assert act(client, 2) == "a![2]"  # only the first went wrong


@pytest.mark.parametrize(
    ("fault", "performed", "found"),
    [
        ("denies", True, NotPerformed(final=True)),
        ("denies", False, NotPerformed(final=True)),
        ("affirms", True, Performed("a![1]")),
        ("affirms", False, Performed("a![1]")),
        ("unsure", True, Unknown()),
        ("slow", True, Performed("a![1]")),
        ("twice", False, NotPerformed(final=True)),
    ],
)
async def test_a_probe_is_told_what_the_plan_says(client: OutsideClient, fault: str, performed: bool, found: object):
    plan(client, probe_1=fault)
    if performed:
        await client.act(1, tag="a", key="k")
    assert await client.probe(1, tag="a", key="k", final=True) == found
    assert len(ledger(client.place)) == performed


@pytest.mark.parametrize("fault", ["dropped", "lost", "dies before", "dies after"])
async def test_a_probe_that_is_hung_up_on_raises(client: OutsideClient, fault: str):
    plan(client, probe_1=fault)
    with pytest.raises(ConnectionError):
        await client.probe(tag="a", key="k")


async def test_a_probe_that_is_never_answered_ends_with_the_timeout_of_the_client(client: OutsideClient):
    plan(client, probe_1="held")
    with pytest.raises(TimeoutError):
        await attrs.evolve(client, timeout_s=0.1).probe(tag="a", key="k")


def raw(client: OutsideClient, line: bytes) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(20)
    connection.connect(str(client.socket))
    connection.sendall(line)
    return connection


def request(client: OutsideClient) -> bytes:
    return b'{"operation": "act", "place": "%s", "tag": "a", "key": "k"}\n' % bytes(client.place)


def test_an_answer_that_is_held_comes_when_the_caller_is_gone(client: OutsideClient):
    plan(client, act_1="held")
    with raw(client, request(client)) as connection:
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        assert held(client.place) == [1]
        assert len(ledger(client.place)) == 1
        connection.shutdown(socket.SHUT_WR)  # what the outside sees of a caller's death; but this one still listens
        connection.settimeout(20)
        assert connection.recv(100) == b'{"value": "a![]"}\n'


def test_twice_is_twice(client: OutsideClient):
    plan(client, act_1="twice")
    with raw(client, request(client)) as connection, connection.makefile("rb") as answers:
        assert answers.read() == b'{"value": "a![]"}\n' * 2
    assert len(ledger(client.place)) == 1


def test_a_fault_of_each_request_of_a_tag_and_of_the_nth_of_all(client: OutsideClient):
    OutsidePlan(listed={"act a *": OutsideFault.REFUSED, "#3": OutsideFault.LOST}).write(client.place)
    for _ in range(2):
        with pytest.raises(OutsideRefused):
            act(client)
    with pytest.raises(ConnectionError):
        act(client, tag="b")
    assert act(client, tag="b") == "b![]"


# -- its own ledger ---------------------------------------------------------------------------------------------------


def test_what_was_done_is_known_after_it_died(client: OutsideClient):
    plan(client, act_2="dies after")
    act(client, 1, kind="keyed", key="k1", window_s=10.0)
    with pytest.raises(ConnectionError):
        act(client, 2, kind="keyed", key="k2", window_s=10.0)
    assert act(client, 2, kind="keyed", key="k2", window_s=10.0) == "a![2]"
    assert [done.arguments for done in ledger(client.place)] == [[1], [2]]


def test_another_outside_goes_on_with_the_same_ledger(client: OutsideClient):
    act(client, 1)
    with Outside() as other:
        assert other.client(client.place).act_blocking(2, tag="a", key="k2") == "a![2]"
    assert [done.arguments for done in ledger(client.place)] == [[1], [2]]
    assert [each.number for each in received(client.place)] == [1, 2]


def test_a_torn_last_line_is_cut_off_and_reported_before_anything_else_is_done(client: OutsideClient):
    plan(client, act_2="dies appending")
    act(client, 1)
    with pytest.raises(ConnectionError):
        act(client, 2)
    torn = (client.place / LEDGER).read_bytes().splitlines()[1]
    assert len(ledger(client.place)) == 1  # who reads it meanwhile does not count it
    act(client, 3)
    assert [done.arguments for done in ledger(client.place)] == [[1], [3]]
    [repair] = repaired(client.place)
    assert (repair.file, repair.torn) == (LEDGER, torn.decode())
    assert (client.place / LEDGER).read_bytes()[: repair.offset].count(b"\n") == 1


@pytest.mark.parametrize("cut", range(len(LINE) - 1))
def test_a_ledger_cut_anywhere_in_its_last_line_keeps_all_before_it(tmp_path: Path, cut: int):
    append_bytes(tmp_path / LEDGER, LINE + LINE[:cut])
    mend(tmp_path)
    assert (tmp_path / LEDGER).read_bytes() == LINE
    assert [(each.offset, each.torn) for each in repaired(tmp_path)] == ([(len(LINE), LINE[:cut].decode())] * (cut > 0))


def test_a_bad_line_that_is_not_torn_is_named_and_never_repaired(client: OutsideClient):
    act(client, 1)
    append_bytes(client.place / LEDGER, b"rubbish\n")
    before = (client.place / LEDGER).read_bytes()
    with pytest.raises(Corrupt, match="line 2 of"):
        ledger(client.place)
    with pytest.raises(Usage, match="line 2 of"):
        act(client, 1, kind="keyed", window_s=1.0)
    assert (client.place / LEDGER).read_bytes() == before
    assert not repaired(client.place)


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [b"{\n", b"[]\n", b'{"operation": "act"}\n', b'{"operation": "eat", "place": "x"}\n'])
def test_a_request_that_makes_no_sense_is_answered_and_does_nothing(client: OutsideClient, line: bytes):
    with raw(client, line) as connection, connection.makefile("rb") as answers:
        assert b'"error"' in answers.readline()
    assert not ledger(client.place)
    act(client)


async def test_a_request_that_makes_no_sense_raises_in_the_client(client: OutsideClient):
    client.place.mkdir()
    (client.place / "plan").write_text("{")
    with pytest.raises(Usage, match="the plan"):
        await client.act(tag="a", key="k")


@pytest.mark.parametrize("listed", ["act a", "eat a 1", "act a 0", "act a x", "#", "#*", "3", "act a -1"])
def test_a_plan_that_names_no_request_is_refused(listed: str):
    with pytest.raises(Usage, match="names no request"):
        OutsidePlan(listed={listed: OutsideFault.LOST})


def test_only_probes_are_lied_to():
    with pytest.raises(Usage, match="only a probe"):
        OutsidePlan(listed={"act a 1": OutsideFault.DENIES})


def test_a_seeded_plan_is_the_same_each_time_and_as_frequent_as_it_says():
    def drawn(seed: int) -> list[OutsideFault | None]:
        seeded = OutsidePlan(seed=seed, rate=0.25)
        return [seeded.fault(number=n, operation="act", tag="a", nth=n) for n in range(1, 2001)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert 400 < sum(fault is not None for fault in drawn(1)) < 600
    assert set(drawn(1)) == {None, *ANY}
    assert not LIES & set(ANY)


def test_an_outside_that_does_not_run_says_so(tmp_path: Path):
    with pytest.raises(Usage, match="does not run"):
        _ = Outside().socket
    with Outside() as ended:
        client = ended.client(tmp_path)
    with pytest.raises(ConnectionRefusedError, match="has ended"):
        act(client)


def test_a_directory_that_is_too_deep_for_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(Usage, match="too long"), Outside():
        pass
    assert not list(deep.iterdir())


# -- its end ----------------------------------------------------------------------------------------------------------

PARENT = """
import os, signal, sys
from pathlib import Path
from savepoint.crash import Outside
with Outside() as outside:
    client = outside.client(Path(sys.argv[1]))
    client.act_blocking(tag="a", key="k")
    print(outside.socket, flush=True)
    sys.stdin.read()
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
"""


def eventually(holds: Callable[[], object]) -> None:
    """Another process does it, and tells nobody."""
    pause = threading.Event()
    for _ in range(1000):
        if holds():
            return
        pause.wait(0.01)
    assert holds()


@pytest.mark.parametrize("end", ["killed", "ended"])
def test_it_dies_with_its_parent_and_leaves_nothing_but_its_ledger(tmp_path: Path, end: str):
    place = tmp_path / "ledger"
    OutsidePlan(listed={"act a 2": OutsideFault.HELD}).write(place)
    temporary = tempfile.mkdtemp(dir="/tmp")  # short enough for a socket
    try:
        with subprocess.Popen(
            [sys.executable, "-c", PARENT, str(place), end],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": temporary, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        ) as parent:
            assert parent.stdin is not None
            assert parent.stdout is not None
            path = parent.stdout.readline().strip()
            client = OutsideClient(socket=Path(path), place=place)
            with raw(client, request(client)) as waiting:
                eventually(lambda: held(place))
                parent.stdin.close()
                assert parent.wait(20) == (-signal.SIGKILL if end == "killed" else 0)
                assert waiting.recv(1) == b""  # its serving process has ended
        # Its keeper, which gives no other sign of life, takes the socket away.
        eventually(lambda: not list(Path(temporary).iterdir()))
        assert sorted(each.name for each in place.iterdir()) == ["held", LEDGER, "plan", RECEIVED]
    finally:
        shutil.rmtree(temporary)
