"""The public surface, pinned: every name of every door, its parameters, and that records are frozen and keyword-only."""

import importlib
import inspect
from enum import Enum
from types import ModuleType
from typing import Any

import attrs
import pytest

DOORS = ("effects", "savepoint", "agent", "effects.testing", "savepoint.testing", "savepoint.crash", "agent.testing")


def public(door: str) -> list[str]:
    """The names that `door` offers: its `__all__`, or what it imports from its own private modules."""
    module = importlib.import_module(door)
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    return sorted(name for name, value in vars(module).items() if not name.startswith("_") and _ours(value))


def _ours(value: object) -> bool:
    home = getattr(value, "__module__", "") or type(value).__module__
    return not isinstance(value, ModuleType) and home.split(".")[0] in ("effects", "savepoint", "agent")


def shape(value: Any) -> str:
    """What a name is, and its parameters: `a, b=, *, c` has a required `a` and `c`, and an optional `b`."""
    match value:
        case type() if issubclass(value, BaseException):
            root = "Exception" if issubclass(value, Exception) else "BaseException"
            return f"{root}({_parameters(value)})"
        case type() if issubclass(value, Enum):
            return " | ".join(str(each.value) for each in value)
        case type():
            return f"class({_parameters(value)})"
        case _ if inspect.isfunction(value):
            asynchronous = inspect.iscoroutinefunction(value)
            return f"{'async ' if asynchronous else ''}def({_parameters(value)})"
        case _:
            return type(value).__name__


def _parameters(value: Any) -> str:
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:
        return "..."
    parts: list[str] = []
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        parts.append(f"{stars}{each.name}{'' if each.default is each.empty else '='}")
        if each.kind is each.POSITIONAL_ONLY:
            parts.append("/")
    return ", ".join(parts)


SURFACE: dict[str, str] = {
    "effects.BadCall": "Exception(effect, reason)",
    "effects.BadDeclaration": "Exception(message, *, next=)",
    "effects.Call": "class(*, effect, args=, kwargs=, recorded=)",
    "effects.CallFailed": "Exception(type_name, reason)",
    "effects.Compensated": "Exception(effect)",
    "effects.ConcurrentCalls": "Exception(effect, running)",
    "effects.CurrentCall": "class(*, call, keyed, attempt, tried)",
    "effects.Effect": "class(*, name, version, idempotency, writes_world, ambiguous, raises, window_s, "
    "settles_within_s, max_age_s, identity, body, signature)",
    "effects.EffectError": "Exception(message, *, next=)",
    "effects.Fault": "class(*, effect, error, nth=, answered=)",
    "effects.Forward": "_CallableGenericAlias",
    "effects.Handling": "class()",
    "effects.Idempotency": "pure | read | contained | composite | idempotent | keyed | once",
    "effects.Layer": "class(*args, **kwargs)",
    "effects.NoCall": "Exception()",
    "effects.NotPerformed": "class(*, final=)",
    "effects.OutOfScope": "Exception(message, *, next=)",
    "effects.Parked": "BaseException(questions)",
    "effects.Performed": "class(result)",
    "effects.Recorded": "class(*, name, version, arguments, result=, error=)",
    "effects.Refused": "Exception(effect, reason, *, next=)",
    "effects.Unknown": "class()",
    "effects.allow": "def(*which)",
    "effects.branch": "def(name)",
    "effects.current_call": "def()",
    "effects.deny": "def(*which, reason=)",
    "effects.effect": "def(name, *, version=, idempotency=, writes_world=, ambiguous=, raises=, window_s=, "
    "settles_within_s=, max_age_s=, identity=)",
    "effects.faults": "def(plan)",
    "effects.handler": "def(effect, fn)",
    "effects.intercept": "def(fn, *, only=)",
    "effects.monotonic": "Effect",
    "effects.now": "Effect",
    "effects.quota": "def(limits)",
    "effects.random_bytes": "Effect",
    "effects.record": "def(into)",
    "effects.replay": "def(recorded)",
    "effects.sleep": "Effect",
    "effects.stricter": "def(a, b)",
    "effects.uuid": "Effect",
    "savepoint.Abandon": "Exception(...)",
    "savepoint.Blob": "class(digest, size)",
    "savepoint.CURRENT_RUN": "CurrentRun",
    "savepoint.Cell": "class(name, type, *, default)",
    "savepoint.Conflict": "Exception(message, *, next=)",
    "savepoint.Corrupt": "Exception(message, *, next=)",
    "savepoint.End": "class(*, status, value=)",
    "savepoint.Foreign": "Exception(message, *, next=)",
    "savepoint.Held": "Exception(message, *, next=)",
    "savepoint.KeyValue": "class(initial=)",
    "savepoint.Log": "class(elements=)",
    "savepoint.MemoryStore": "class()",
    "savepoint.Missing": "Exception(message, *, next=)",
    "savepoint.Newer": "Exception(message, *, next=)",
    "savepoint.NotPortable": "Exception(path, what, *, next=)",
    "savepoint.NotWritable": "Exception(message, *, next=)",
    "savepoint.Point": "class(*, name, key, resume, state, world, default, end=, _consumed=)",
    "savepoint.Registry": "class(resumables=, *, effects=, types=, classes=)",
    "savepoint.Resumable": "class(*, name, version, function, migrations=)",
    "savepoint.Revived": "class(*, savepoint, world)",
    "savepoint.RunResult": "class(*, run_id, status, value=, error=, step=, questions=, replayed=, warnings=, may_repeat=)",
    "savepoint.RunStatus": "running | waiting | interrupted | completed | failed | cancelled",
    "savepoint.SavepointError": "Exception(message, *, next=)",
    "savepoint.Types": "class(classes=, *, migrations=)",
    "savepoint.Usage": "Exception(message, *, next=)",
    "savepoint.Workspace": "class(path, *, exclude=)",
    "savepoint.World": "class(systems=, *, cells=, read_only=)",
    "savepoint.at_savepoint": "def(handle, *, name=)",
    "savepoint.cancel_run": "async def(store, run_id)",
    "savepoint.digest": "def(value)",
    "savepoint.discard_run": "async def(store, run_id)",
    "savepoint.dumps": "def(value)",
    "savepoint.fork_program": "async def(run_id, *, store, registry, at=, fork_id=, world=, lease_s=, on_claim=, review=, "
    "enter=)",
    "savepoint.hydrate": "def(point, *, store, host=, registry)",
    "savepoint.list_runs": "async def(store)",
    "savepoint.loads": "def(data, *, types=)",
    "savepoint.merge_run": "async def(store, run_id, host)",
    "savepoint.open_store": "def(place, *, durability=, wal=, create=, read_only=, busy_s=)",
    "savepoint.portable": "def(name, *, version=, keeps=)",
    "savepoint.remove_run": "async def(store, run_id, *, abandon=)",
    "savepoint.resumable": "def(name, *, version=, migrations=)",
    "savepoint.resume_program": "async def(run_id, *, store, world=, registry, lease_s=, on_claim=, review=, poison_after=)",
    "savepoint.run_program": "async def(program, *, store, run_id=, world=, registry=, if_run_exists=, recovery=, lease_s=, "
    "meta=, state=, caused_by=, abandon=, on_claim=, review=, within=, also=, poison_after=)",
    "savepoint.same": "def(a, b)",
    "savepoint.savepoint": "async def(name, *, key=, resume=, state=, default=)",
    "savepoint.using_world": "def(world)",
    "agent.Agent": "class(*, name, instructions=, model=, tools=, max_turns=, systems=, effects=, resumables=, "
    "types=, description=, handoffs=)",
    "agent.Context": "class(*, world, deps, run_id, step, call_id)",
    "agent.Denied": "class(*, reason, unknown=)",
    "agent.Idempotency": "pure | read | contained | composite | idempotent | keyed | once",
    "agent.InMemorySession": "class(types=)",
    "agent.Lost": "class(*, note, unknown=)",
    "agent.Model": "class(*args, **kwargs)",
    "agent.ModelError": "Exception(message, *, next=)",
    "agent.NestedFailed": "Exception(message, *, next=)",
    "agent.Reply": "class(*, text=, calls=, unknown=)",
    "agent.Result": "class(*, run_id, status, output=, error=, step=, questions=, transcript=, replayed=, "
    "input_ignored=, warnings=, may_repeat=)",
    "agent.ResultStore": "class(*args, **kwargs)",
    "agent.Resumed": "class(*, run_id, result=, error=, tries=)",
    "agent.Rewindable": "class(*args, **kwargs)",
    "agent.RunStatus": "running | waiting | interrupted | completed | failed | cancelled",
    "agent.Secret": "class(name)",
    "agent.Segment": "class(*, run_id, entries, meta=)",
    "agent.Session": "class(*args, **kwargs)",
    "agent.StoredResults": "class(store, types=)",
    "agent.StoredSession": "class(store, types=)",
    "agent.Tool": "class(*, name, version, idempotency, writes_world, ambiguous, raises, window_s, "
    "settles_within_s, max_age_s, identity, body, signature, spec, approval, shapes, required, rich)",
    "agent.Trimmed": "class(*, text, length, ref)",
    "agent.User": "class(*, content, unknown=)",
    "agent.as_tool": "def(agent, *, name=, description=, approval=)",
    "agent.decide": "async def(run_id, question, verdict, *, store, value=, note=, by=, agent=)",
    "agent.drop_dangling_tool_calls": "def(entries)",
    "agent.fork": "async def(run_id, *, agent, store, at=, fork_id=, world=, deps=, model=, on_event=, lease_s=, "
    "enter=)",
    "agent.recall_tool_result": "def(results)",
    "agent.resume": "async def(run_id, *, agent, store, world=, deps=, model=, on_event=, session=, strict=, "
    "max_turns=, allowed_tools=, read_only=, classes=, lease_s=, poison_after=)",
    "agent.resume_all": "async def(*agents, store, world=, deps=, model=, on_event=, session=, lease_s=, tries=, "
    "backoff_s=, poison_after=)",
    "agent.run": "async def(agent, input, *, run_id=, store=, world=, deps=, model=, on_event=, session_id=, "
    "session=, if_run_exists=, resume_from=, delete_on_success=, recovery=, max_turns=, "
    "allowed_tools=, read_only=, classes=, lease_s=, abandon=, auto_resume=)",
    "agent.tool": "def(fn=, /, *, name=, description=, approval=, timeout_s=, **declaration)",
    "effects.testing.ManualClock": "class(start=)",
    "effects.testing.PlainLayer": "class()",
    "effects.testing.seeded": "def(seed)",
    "savepoint.testing.CrashPoint": "create.before | create.after | claim.before | claim.after | settle.before | settle.after | "
    "fork.before | fork.after | enter | reply.before | reply.after | intent.before | intent.after | "
    "body.before | body.after | landed | outcome.before | outcome.after | snapshot.before | "
    "snapshot.after | gap.before | gap.after | park.before | park.after | end.before | end.after | "
    "land.before | land.after",
    "savepoint.testing.arm": "def(hook)",
    "savepoint.testing.count_points": "def()",
    "savepoint.testing.kill_at": "def(point, nth=)",
    "savepoint.testing.kill_from_environment": "def()",
    "savepoint.testing.reach": "def(point)",
    "savepoint.crash.Act": "class(*, kind, tag, arguments, key, value, epoch=, digest=, at_s=)",
    "savepoint.crash.Asked": "class(*, kind, effect, key)",
    "savepoint.crash.Campaign": "class(*, workers, place, command, kills=, only=, budget_s=, first=)",
    "savepoint.crash.CommandTarget": "class(*, ledger, copies=, compares=, rules=, timeout_s=, here=, start, resume, environment=)",
    "savepoint.crash.Ended": "class(*, value, world, points=, ids=, inside=, receipts=, decided=, unpaired=)",
    "savepoint.crash.Explorer": "class(*, workers, place, setting=, lives_at_most=, distinct=, told=, processes=, killed=)",
    "savepoint.crash.ForkServer": "class(life, *, path=, env=)",
    "savepoint.crash.History": "class(*, lives, ledger, ended, requests=, host=)",
    "savepoint.crash.Kill": "class(at, nth, after=)",
    "savepoint.crash.Kills": "single | double | storm | only",
    "savepoint.crash.Life": "class(*, killed=, done=, arrivals=, lasting=, seen=)",
    "savepoint.crash.LifeFailed": "Exception(...)",
    "savepoint.crash.Lived": "class(*, killed, entered=, was=, unsettled=, undecided=, open_before=, status=, questions=)",
    "savepoint.crash.Outside": "class()",
    "savepoint.crash.OutsideClient": "class(*, socket, place, timeout_s=)",
    "savepoint.crash.OutsideFault": "dropped | lost | refused | slow | held | twice | dies before | dies appending | dies after | "
    "denies | affirms | unsure",
    "savepoint.crash.OutsidePlan": "class(*, listed=, seed=, rate=, delay_s=)",
    "savepoint.crash.OutsideRefused": "Exception(...)",
    "savepoint.crash.Promise": "class(*, perturbed=, strict=, no_questions=, lost_world=, fresh=, interrupted=, skips=)",
    "savepoint.crash.Reply": "class(*, killed, timed_out=, children=, report=, arrivals=, lasting=)",
    "savepoint.crash.Report": "class(*, target, command, kills, tried=, planned=, places=, places_tried=, processes=, "
    "killed=, seconds=, by_time=, interrupted=, rejected=)",
    "savepoint.crash.Rules": "class(*, parked_code=, allow_stdout=)",
    "savepoint.crash.Schedule": "class(kills=)",
    "savepoint.crash.Scratch": "class()",
    "savepoint.crash.Story": "class(*, schedule, setting=, lives, history, violations=)",
    "savepoint.crash.Target": "class(*args, **kwargs)",
    "savepoint.crash.Verdict": "pass | parked | duplicate | lost | diverged | corrupt | undetected corruption | leak | budget "
    "| hash drift | stuck | double owner | not deterministic | leaves children | never finishes | "
    "bad ledger | prints to standard output | fails unkilled",
    "savepoint.crash.Violation": "class(verdict, what)",
    "savepoint.crash.text": "def(report)",
    "savepoint.crash.violations": "def(history, references, promise)",
    "agent.testing.ScriptedModel": "class(turns, *, name=, usage=)",
    "agent.testing.Turn": "class(*, text=, calls=)",
    "agent.testing.call": "def(tool, /, *, _id=, _raw=, **arguments)",
    "agent.testing.calls": "def(*turns)",
    "agent.testing.say": "def(text)",
}

UNFROZEN = {
    *("effects.Effect", "agent.Tool", "savepoint.Point", "savepoint.Revived"),
    *(
        "savepoint.crash.Campaign",
        "savepoint.crash.CommandTarget",
        "savepoint.crash.Explorer",
        "savepoint.crash.Scratch",
    ),
}
"""A declaration that decorators complete (setting its fields is refused otherwise), and things that have a life."""
POSITIONAL = {
    *("effects.Performed", "savepoint.Blob", "savepoint.Cell", "agent.Secret"),
    *("savepoint.crash.Kill", "savepoint.crash.Schedule", "savepoint.crash.Violation"),
}
"""What is written by hand so often that a keyword would be noise."""


# -- tests


@pytest.mark.parametrize("door", DOORS)
def test_every_public_name_and_its_parameters(door: str) -> None:
    module = importlib.import_module(door)
    found = {f"{door}.{name}": shape(getattr(module, name)) for name in public(door)}
    pinned = {name: how for name, how in SURFACE.items() if name.rpartition(".")[0] == door}
    assert found == pinned, "change the pinned surface only together with a changelog fragment"


@pytest.mark.parametrize("door", DOORS)
def test_what_a_door_lists_is_sorted_and_there(door: str) -> None:
    module = importlib.import_module(door)
    names = public(door)
    assert names == sorted(names)
    assert [name for name in names if not hasattr(module, name)] == []


def _records() -> dict[str, type]:
    found: dict[str, type] = {}
    for name in SURFACE:
        door, _, short = name.rpartition(".")
        value = getattr(importlib.import_module(door), short)
        if isinstance(value, type) and "__attrs_attrs__" in vars(value):
            found[name] = value
    return found


def test_public_records_are_frozen() -> None:
    assert {name for name, cls in _records().items() if not attrs.inspect(cls).is_frozen} == UNFROZEN


def test_public_records_are_keyword_only() -> None:
    positional = {
        name for name, cls in _records().items() if any(field.init and not field.kw_only for field in attrs.fields(cls))
    }
    assert positional == POSITIONAL


def test_every_error_has_a_code_a_message_and_a_next_move() -> None:
    from effects import EffectError
    from savepoint import SavepointError

    codes: dict[str, type] = {}
    for door in DOORS:
        for name in public(door):
            value = getattr(importlib.import_module(door), name)
            if isinstance(value, type) and issubclass(value, EffectError | SavepointError):
                assert codes.setdefault(value.code, value) is value, f"two errors have the code {value.code}"
    assert len(codes) > 15


def test_what_programs_must_not_swallow_is_no_exception() -> None:
    from effects import Parked
    from savepoint._errors import Halted, Stopped, Superseded
    from savepoint._point import Abandoned

    assert not [cls for cls in (Parked, Halted, Stopped, Superseded, Abandoned) if issubclass(cls, Exception)]
