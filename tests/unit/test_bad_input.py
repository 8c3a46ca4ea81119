"""What bad input gets: an error that names it before anything is performed, and a run that can go on."""

import asyncio
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agent import Agent, Idempotency, Reply, Result, RunStatus, decide, resume, run, tool
from agent._answer import Answer, Wanted
from agent._message import ToolMessage
from agent.testing import ScriptedModel, call, calls, say
from effects._failure import Failure
from savepoint import (
    Cell,
    Corrupt,
    Foreign,
    KeyValue,
    MemoryStore,
    Missing,
    Newer,
    Point,
    Registry,
    SavepointError,
    Types,
    Usage,
    World,
    at_savepoint,
    dumps,
    hydrate,
    open_store,
    portable,
    resumable,
    run_program,
    same,
    savepoint,
    using_world,
)
from savepoint._codec import encode
from savepoint._form import FORMAT, Form
from savepoint._store import Space

STATE = Cell("state", object, default=None)
done: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()


@resumable("bad/rest")
async def rest(world: World, n: int = 0) -> Any:
    done.append("entered")
    return world[STATE]


REGISTRY = Registry([rest])

# -- ids ----------------------------------------------------------------------------------------------------------

NO_IDS = ["", "a\0b", "a\nb", "\x1b[31m", "x" * 300, "\ud800", "a\u202eb", b"bytes", 7]
ODD_IDS = [
    "../../etc/passwd",
    "/abs",
    ".",
    "a/../b",
    "'; DROP TABLE rows; --",
    "run id",
    "中文",
    "%s%n",
    "x" * 256,
    "*",
]


def children(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


@pytest.mark.parametrize("run_id", NO_IDS, ids=ascii)
async def test_what_is_no_run_id_is_refused_before_anything_happens(run_id: Any, tmp_path: Path) -> None:
    async with open_store(tmp_path / "s") as store:
        with pytest.raises(Usage, match="is not a run id"):
            await run_program(rest.at(), store=store, run_id=run_id)
        assert await store.scan(Space.RUN) == []
    assert done == []


async def test_any_other_text_is_an_id_and_no_part_of_a_path_or_of_sql(tmp_path: Path) -> None:
    before = children(tmp_path)
    async with open_store(tmp_path / "s") as store:
        for run_id in ODD_IDS:
            world = World({run_id: KeyValue({})})
            result = await run_program(rest.at(), store=store, run_id=run_id, world=world)
            assert (result.run_id, result.status) == (run_id, RunStatus.COMPLETED)
        assert len(await store.scan(Space.RUN)) == len(ODD_IDS)
    assert children(tmp_path) == [*before, "s"]
    names = {path.name for path in (tmp_path / "s").rglob("*")}
    assert not [name for name in names if any(odd in name for odd in ("passwd", "DROP", "中文", "xxx"))]


# -- savepoints ---------------------------------------------------------------------------------------------------


async def stored(value: Any) -> tuple[MemoryStore, bytes]:
    """A store that somebody wrote `value` to, with its right name."""
    store, encoded = MemoryStore(), encode(value)
    async with store.commit() as tx:
        tx.put(encoded.digest, encoded.body)
    return store, encoded.digest


def form(**changes: Any) -> Form:
    fields: dict[str, Any] = {
        "format": FORMAT,
        "name": "gap",
        "key": None,
        "resume": ("bad/rest", 1),
        "arguments": {"n": 1},
        "state": {"state": 5},
        "world": {},
    }
    return Form(**{**fields, **changes})


async def entering(store: MemoryStore, point: Any, **options: Any) -> Any:
    async with hydrate(point, store=store, registry=options.pop("registry", REGISTRY), **options) as revived:
        return await revived.enter()


async def test_a_form_that_somebody_wrote_by_hand_is_entered_if_all_is_right() -> None:
    assert await entering(*await stored(form())) == 5


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"resume": ("os:system", 1)}, Foreign, "'os:system' is not registered"),
        ({"resume": ("builtins:eval", 1)}, Foreign, "'builtins:eval' is not registered"),
        ({"resume": ("savepoint._thread.in_thread", 1)}, Foreign, "is not registered"),
        ({"resume": ("antigravity", 1)}, Foreign, "'antigravity' is not registered"),
        ({"resume": "os:system"}, Foreign, "shaped like a savepoint"),
        ({"resume": ("bad/rest", "1")}, Foreign, "shaped like a savepoint"),
        ({"resume": ("bad/rest", 2)}, Newer, "has version 1"),
        ({"resume": ("bad/rest", 0)}, Foreign, "no migration from version 0"),
        ({"format": FORMAT + 1}, Newer, "has format 2"),
        ({"format": "1"}, Foreign, "shaped like a savepoint"),
        ({"arguments": {"n": 1, "shell": "touch x"}}, Foreign, "unknown 'shell'"),
        ({"arguments": [1]}, Foreign, "shaped like a savepoint"),
        ({"arguments": {1: 1}}, Foreign, "shaped like a savepoint"),
        ({"state": {("a",): 1}}, Foreign, "shaped like a savepoint"),
        ({"world": {"files": "x"}}, Foreign, "shaped like a savepoint"),
        ({"world": {"files": ("workspace", 1, bytes(32))}}, Usage, "different systems: files"),
    ],
)
async def test_a_hostile_form_is_refused_before_anything_is_imported_or_entered(
    changes: dict[str, Any], error: type[SavepointError], words: str
) -> None:
    store, point = await stored(form(**changes))
    modules = set(sys.modules)
    with pytest.raises(error, match=words) as refused:
        await entering(store, point)
    assert refused.value.next
    assert set(sys.modules) == modules
    assert done == []


@pytest.mark.parametrize("value", [{"resume": ["os:system", 1]}, [1, 2], "text", b"\x80\x04K\x05.", None])
async def test_what_is_no_savepoint_is_not_taken_for_one(value: Any) -> None:
    with pytest.raises(Foreign, match="is not a savepoint"):
        await entering(*await stored(value))


@pytest.mark.parametrize("point", ["abc", b"", b"short", bytes(33), None, 7, "00" * 32])
async def test_what_is_no_id_is_not_looked_up(point: Any) -> None:
    with pytest.raises(Usage, match="is not the id of a savepoint"):
        await entering(MemoryStore(), point)


async def test_an_id_that_no_store_has_is_missing() -> None:
    with pytest.raises(Missing):
        await entering(MemoryStore(), bytes(32))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
        b"\x81" * 100_000,
        b"\x5b" + b"\x10" + bytes(7),
        b"\xd9\xd9\xf7\xa0",
        dumps(1) + b"\0",
    ],
    ids=["empty", "pickle", "deep", "length of 2**60", "another tag", "trailing"],
)
async def test_bytes_that_are_not_ours_are_refused_quickly(body: bytes) -> None:
    from savepoint._digest import Domain, seal

    store, name = MemoryStore(), seal(Domain.OBJECT, body)
    async with store.commit() as tx:
        tx.put(name, body)
    with pytest.raises((Corrupt, Foreign)):
        await entering(store, name)
    assert done == []


async def test_right_data_under_a_wrong_hash_is_damage() -> None:
    store, point = await stored(form())
    store._objects[bytes(32)] = store._objects[point]
    with pytest.raises(Corrupt):
        await entering(store, bytes(32))


async def test_arguments_that_the_resume_function_does_not_take_are_never_dropped_or_made_up() -> None:
    @resumable("bad/rest", version=2, migrations={1: lambda old: {"count": old["n"]}})
    async def renamed(world: World, count: int, added: str = "default") -> Any:
        return [count, added]

    @resumable("bad/rest")
    async def wants_more(world: World, n: int, more: int) -> None: ...

    store, point = await stored(form())
    assert await entering(store, point, registry=Registry([renamed])) == [1, "default"]
    with pytest.raises(Foreign, match="missing 'more'") as refused:
        await entering(store, point, registry=Registry([wants_more]))
    assert "pass a migration from 1" in refused.value.next


async def test_user_data_shaped_like_a_savepoint_comes_back_as_plain_data() -> None:
    envelope = {"format": 1, "name": "x", "resume": ("os:system", 1), "arguments": {}, "state": {}, "world": {}}
    for held in (envelope, dumps(form()), [{"tag": 27, "value": ["savepoint/form", 1]}]):
        store, point = await stored(form(state={"state": held}))
        assert same(await entering(store, point), held)


async def test_a_class_that_is_not_registered_is_never_built() -> None:
    from attrs import frozen

    built: list[int] = []

    @portable("bad/loaded")
    @frozen
    class Loaded:
        n: int

        def __attrs_post_init__(self) -> None:
            built.append(self.n)

    store, point = await stored(form(state={"state": Loaded(1)}))
    built.clear()
    with pytest.raises(Foreign, match="nothing is registered as 'bad/loaded'"):
        await entering(store, point)
    assert built == []
    assert await entering(store, point, registry=Registry([rest], types=Types([Loaded]))) == Loaded(1)


def test_two_of_one_name_fail_when_the_registry_is_built() -> None:
    @resumable("bad/rest")
    async def another(world: World) -> None: ...

    with pytest.raises(Usage, match="two resumables are named 'bad/rest'"):
        Registry([rest, another])


@pytest.mark.parametrize("name", ["", "a\nb", "\0"])
def test_a_resumable_needs_a_name_that_can_be_shown(name: str) -> None:
    with pytest.raises(Usage, match="is not a name for a resumable"):
        resumable(name)


# -- state --------------------------------------------------------------------------------------------------------

CONTAINERS: dict[str, Any] = {
    "s": {(1, 2), (3, 4)},
    "fs": frozenset({(1,)}),
    "k": {1: "i", "1": "s", None: "n", "None": "t", 2.5: "f", "2.5": "g"},
    "tk": {(1, 2): "x"},
    "t": (1, [2, (3,)]),
    "e": set(),
    "b": b"\x00\xff",
    "nest": {"a": {"b": ()}},
}


async def test_containers_and_keys_come_back_in_value_and_type() -> None:
    store, ids = MemoryStore(), list[bytes]()

    async def persist(point: Point) -> None:
        ids.append(await point.persist(store))

    world = World()
    world[STATE] = CONTAINERS
    with using_world(world), at_savepoint(persist):
        await savepoint("gap", resume=rest.at(), state=[STATE])
    assert same(await entering(store, ids[0]), CONTAINERS)


@resumable("bad/containers")
async def containers(world: World, step: int, extra: Any = None) -> Any:
    """Its second savepoint holds what cannot be kept."""
    world[STATE] = CONTAINERS
    await savepoint("good", resume=containers.at(1), state=[STATE])
    await savepoint("bad", resume=containers.at(2, {"dd": defaultdict(list)}), state=[STATE])
    return world[STATE]


async def test_what_cannot_be_kept_costs_the_savepoint_and_never_the_run() -> None:
    result = await run_program(containers.at(0), store=MemoryStore(), run_id="r")
    assert (result.status, result.step) == (RunStatus.COMPLETED, 2)
    assert same(result.value, CONTAINERS)
    (warning,) = result.warnings
    assert warning.startswith("no savepoint at step 2: arguments.extra.dd: defaultdict is not portable")


async def test_a_result_that_cannot_be_kept_fails_the_run_and_names_it() -> None:
    @resumable("bad/result")
    async def unportable(world: World) -> Any:
        return {"x": [object()]}

    result = await run_program(unportable.at(), store=MemoryStore(), run_id="r")
    assert result.status is RunStatus.FAILED
    assert result.error is not None
    assert result.error.message.startswith("the result of the run.x[0]: object is not portable")


# -- tools --------------------------------------------------------------------------------------------------------


@tool(idempotency=Idempotency.READ)
async def raises(text: str) -> str:
    """Raises."""
    raise LookupError(f"no {text}")


@tool(idempotency=Idempotency.READ)
async def opaque() -> Any:
    """Returns what is not portable."""
    return [object()]


@tool(idempotency=Idempotency.READ, timeout_s=0.02)
async def hangs() -> str:
    """Never returns."""
    await asyncio.Event().wait()
    return "never"


@tool(idempotency=Idempotency.ONCE, timeout_s=0.02)
async def hangs_once() -> str:
    """Never returns, and nobody knows what it did."""
    await asyncio.Event().wait()
    return "never"


@tool(idempotency=Idempotency.READ)
async def large() -> bytes:
    """Returns 50 MB."""
    done.append("large")
    return bytes(50_000_000)


@tool(idempotency=Idempotency.ONCE)
async def pay(amount: int) -> str:
    """Pays."""
    done.append(f"paid {amount}")
    return "paid"


TOOLS = (raises, opaque, hangs, hangs_once, large, pay)


def agent_of(turns: Any, **more: Any) -> Agent:
    return Agent(name="a", tools=TOOLS, model=turns if hasattr(turns, "reply") else ScriptedModel(turns), **more)


async def played(*turns: Any) -> Result:
    return await run(agent_of([*turns, say("done")]), "go", run_id="r", store=MemoryStore())


def outcomes(result: Result) -> list[Any]:
    return [each for each in result.transcript if not isinstance(each, Reply)][1:]


async def test_what_a_tool_raises_is_told_to_the_model() -> None:
    result = await played(call("raises", text="such thing"))
    assert (result.status, result.output) == (RunStatus.COMPLETED, "done")
    (failure,) = outcomes(result)
    assert isinstance(failure, Failure)
    assert "no such thing" in failure.message


async def test_a_result_that_is_not_portable_is_told_with_its_path() -> None:
    result = await played(call("opaque"))
    assert result.status is RunStatus.COMPLETED
    (failure,) = outcomes(result)
    assert "[0]: object is not portable" in failure.message


async def test_a_tool_that_hangs_ends_at_its_timeout() -> None:
    result = await played(call("hangs"), call("raises", text="x"))
    assert result.status is RunStatus.COMPLETED
    assert "no result within 0.02 s" in outcomes(result)[0].message


async def test_a_once_tool_that_hangs_is_in_doubt_and_nothing_is_made_of_it() -> None:
    store, turns = MemoryStore(), [call("hangs_once"), say("done")]
    parked = await run(agent_of(turns), "go", run_id="r", store=store)
    assert parked.status is RunStatus.WAITING
    (question,) = parked.questions
    assert "TimeoutError" in question.why
    await decide("r", question.id, "performed", store=store, value="by hand")
    result = await resume("r", agent=agent_of(turns), store=store)
    assert (result.status, outcomes(result)) == (RunStatus.COMPLETED, ["by hand"])


async def test_a_result_of_50_mb_is_kept_whole_shown_cut_and_not_made_again(tmp_path: Path) -> None:
    turns = [call("large"), say("done")]
    model = ScriptedModel(turns)
    async with open_store(tmp_path / "s", durability="process") as store:
        first = await run(agent_of([turns[0]]), "go", run_id="r", store=store)
        assert first.status is RunStatus.INTERRUPTED, "the script has no second turn"
        result = await resume("r", agent=agent_of(model), store=store)
        assert result.status is RunStatus.COMPLETED
        assert len(outcomes(result)[0]) == 50_000_000
    assert done == ["large"]
    shown = [message.text for message in model.requests[-1].messages if isinstance(message, ToolMessage)]
    assert len(shown[0]) < 50_000


# -- models -------------------------------------------------------------------------------------------------------


async def test_malformed_arguments_and_unknown_tools_are_told_and_nothing_is_performed() -> None:
    result = await played(
        calls(
            call("pay", _raw='{"amount": '),
            call("pay", _raw="[1]"),
            call("pay", amount="much"),
            call("pay", amount=1, extra=2),
            call("pay"),
            call("pya", amount=1),
            call("os.system", command="touch x"),
        )
    )
    assert (result.status, result.output) == (RunStatus.COMPLETED, "done")
    assert [each.kind for each in outcomes(result)] == ["BadArguments"] * 5 + ["UnknownTool"] * 2
    assert "did you mean 'pay'" in outcomes(result)[5].message
    assert done == []


async def test_equal_call_ids_are_two_calls() -> None:
    result = await played(calls(call("pay", _id="x", amount=1), call("pay", _id="x", amount=1)))
    assert outcomes(result) == ["paid", "paid"]
    assert done == ["paid 1", "paid 1"]


class Moody:
    """A model that answers what it is told to, whatever that is, until `answers` are used up; then sensibly."""

    name = "moody"
    settings: ClassVar[dict[str, object]] = {}

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def reply(self, request: Any, *, on_text: Any = None) -> Answer:
        self.asked += 1
        if not self.answers:
            return Answer(text="done")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_model_that_says_nothing_leaves_the_run_interrupted_and_resumable() -> None:
    store = MemoryStore()
    nothing = Moody(Answer(text=" "), Answer(), Answer(text="\n"), Answer())
    first = await run(agent_of(nothing), "go", run_id="r", store=store)
    assert (first.status, nothing.asked) == (RunStatus.INTERRUPTED, 3)
    assert first.error is not None
    assert "neither text nor calls" in first.error.message
    result = await resume("r", agent=agent_of(Moody()), store=store)
    assert (result.status, result.output) == (RunStatus.COMPLETED, "done")


async def test_a_model_that_breaks_in_an_unknown_way_fails_the_run_once_and_resuming_goes_on() -> None:
    store = MemoryStore()
    first = await run(agent_of(Moody(KeyError("choices"))), "go", run_id="r", store=store)
    assert first.status in (RunStatus.FAILED, RunStatus.INTERRUPTED)
    assert first.error is not None
    assert "choices" in first.error.message
    result = await resume("r", agent=agent_of(Moody()), store=store)
    assert (result.status, result.output) == (RunStatus.COMPLETED, "done")


async def test_lone_surrogates_and_nul_in_a_reply_do_no_harm() -> None:
    odd = Answer(text="\ud83d \x00 \ud83d\ude00", calls=(Wanted(tool="p\ud800y", arguments="\ud800"),))
    result = await run(agent_of(Moody(odd)), "go", run_id="r", store=MemoryStore())
    assert (result.status, result.output) == (RunStatus.COMPLETED, "done")
    assert outcomes(result)[0].kind == "UnknownTool"


async def test_an_answer_of_text_alone_ends_the_run() -> None:
    result = await run(agent_of(Moody(Answer(text="  hello  "))), "go", run_id="r", store=MemoryStore())
    assert (result.status, result.output, result.step) == (RunStatus.COMPLETED, "  hello  ", 0)


async def test_an_unknown_question_names_the_known_ones() -> None:
    store = MemoryStore()
    parked = await run(agent_of([call("hangs_once"), say("done")]), "go", run_id="r", store=store)
    with pytest.raises(Missing, match="run r has no question x") as missing:
        await decide("r", "x", "redo", store=store)
    assert parked.questions[0].id in missing.value.next
    with pytest.raises(Usage, match="'maybe' is not a verdict"):
        await decide("r", parked.questions[0].id, "maybe", store=store)
    with pytest.raises(Missing, match="there is no run other"):
        await decide("other", "x", "redo", store=store)
