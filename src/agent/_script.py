"""Scripts as files, for the command line's `--model script:FILE`: refused with the turn's number if not as described."""

import json
from pathlib import Path
from typing import cast

from savepoint._errors import Missing
from savepoint._errors import Usage as UsageError

from ._answer import Usage, Wanted
from ._scripted import ScriptedModel, Turn, calls, say


def read_script(path: Path) -> ScriptedModel:
    """The model of a script file: a JSON list of turns, or an object with `turns` and, if wanted, `usage`.

    A turn is a text, or an object with any of `say`, `call` (with `arguments` or `raw`, and `id`) and `calls` (a list
    of such objects). Raises `Missing` (no such file) and `Usage`, naming the turn.
    """
    try:
        data: object = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Missing(f"there is no script {path}", next="write script:FILE with the path of a JSON file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"the script {path} is unreadable: {error}", next="write a JSON list of turns") from None
    if isinstance(data, list):
        data = {"turns": cast("object", data)}
    fields = _object(data, str(path), {"turns", "usage"})
    turns = _list(fields.get("turns"), f"{path}: turns")
    return ScriptedModel(
        [_turn_of(turn, f"{path}: turn {number}") for number, turn in enumerate(turns, 1)],
        usage=_usage_of(fields.get("usage", {}), f"{path}: usage"),
    )


def _turn_of(data: object, where: str) -> Turn:
    if isinstance(data, str):
        return say(data)
    fields = _object(data, where, {"say", "call", "arguments", "raw", "id", "calls"})
    parts = [say(_text(fields["say"], f"{where}: say"))] if "say" in fields else []
    if "call" in fields:
        parts.append(_call_of({key: fields[key] for key in fields.keys() - {"say", "calls"}}, where))
    elif fields.keys() & {"arguments", "raw", "id"}:
        raise UsageError(f"{where}: arguments, raw or id without call", next='add "call": "<name of the tool>"')
    parts += [_call_of(each, f"{where}: calls") for each in _list(fields.get("calls", []), f"{where}: calls")]
    if not parts:
        raise UsageError(f"{where} is empty", next='give it "say", "call" or "calls"')
    return calls(*parts)


def _call_of(data: object, where: str) -> Turn:
    fields = _object(data, where, {"call", "arguments", "raw", "id"})
    tool = _text(fields.get("call"), f"{where}: call")
    raw = _text(fields["raw"], f"{where}: raw") if "raw" in fields else None
    provider_id = _text(fields["id"], f"{where}: id") if "id" in fields else ""
    if raw is not None and "arguments" in fields:
        raise UsageError(f"{where}: both raw and arguments", next="give one of the two")
    arguments = fields.get("arguments", {})
    text = raw if raw is not None else json.dumps(_object(arguments, f"{where}: arguments"), ensure_ascii=False)
    return Turn(calls=(Wanted(tool=tool, arguments=text, provider_id=provider_id),))


def _usage_of(data: object, where: str) -> Usage:
    names = {"input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens"}
    fields = _object(data, where, names)
    for name, value in fields.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise UsageError(f"{where}: {name} must be a number of tokens", next="write an integer from 0")
    return Usage(**cast("dict[str, int]", fields))


def _object(data: object, where: str, allowed: set[str] | None = None) -> dict[str, object]:
    if not isinstance(data, dict):
        raise UsageError(f"{where} must be an object, not {json.dumps(data)[:60]}", next="see `read_script`")
    fields = cast("dict[str, object]", data)
    unknown = sorted(fields.keys() - allowed) if allowed is not None else []
    if unknown:
        raise UsageError(f"{where}: unknown {unknown[0]!r}", next=f"known: {', '.join(sorted(allowed or ()))}")
    return fields


def _list(data: object, where: str) -> list[object]:
    if not isinstance(data, list):
        raise UsageError(f"{where} must be a list", next="see `read_script`")
    return cast("list[object]", data)


def _text(data: object, where: str) -> str:
    if not isinstance(data, str):
        raise UsageError(f"{where} must be a text", next="see `read_script`")
    return data
