"""The chat completions format: requests to it, whole and streamed answers from it. Pure; the network is `_openai.py`'s.

Answers are read as plain JSON and every field is checked: endpoints that call themselves compatible differ.
"""

import json
from collections.abc import Mapping
from typing import Any, assert_never, cast

from attrs import define, field

from ._answer import Answer, ModelError, ModelUnavailable, Usage, Wanted
from ._arguments import BadArguments, parse_object
from ._message import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from ._model import Request


def body_of(request: Request, model: str) -> dict[str, Any]:
    """The request's body, as keyword arguments of the SDK; optional parts are left out, not null."""
    system: list[Any] = [{"role": "system", "content": request.instructions}] if request.instructions else []
    body: dict[str, Any] = {"model": model, "messages": system + [_message(each) for each in request.messages]}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
            }
            for tool in request.tools
        ]
    if request.output is not None:
        shape = {"name": request.output.name, "schema": dict(request.output.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": shape}
    return body


def _message(message: Message) -> dict[str, Any]:
    match message:
        case UserMessage(content=content):
            return {"role": "user", "content": content}
        case AssistantMessage(text=text, calls=()):
            return {"role": "assistant", "content": text}
        case AssistantMessage(text=text, calls=calls):
            return {"role": "assistant", "content": text or None, "tool_calls": [_call(call) for call in calls]}
        case ToolMessage(call_id=call_id, text=text):
            return {"role": "tool", "tool_call_id": _wire_id(call_id), "content": text}
        case _:
            assert_never(message)


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.tool, "arguments": _sendable(call.arguments)}
    return {"id": _wire_id(call.id), "type": "function", "function": function}


def _wire_id(call_id: str) -> str:
    """Our `step.index` in the letters that every provider takes; theirs may repeat, so they are never sent back."""
    return "call_" + call_id.replace(".", "_")


def _sendable(arguments: str) -> str:
    """Some servers parse the arguments of past calls: malformed ones travel inside a well-formed object."""
    try:
        parse_object(arguments)
    except BadArguments:
        return json.dumps({"malformed_arguments": arguments}, ensure_ascii=False)
    return arguments.strip() or "{}"


def answer_of(data: object) -> Answer:
    """The answer in a whole completion, as JSON. Raises `ModelError` where there is none."""
    choice = _choice(data)
    if choice is None:
        raise ModelUnavailable(f"the endpoint answered without choices: {_error_text(data)}", next="ask again")
    message = _object(choice.get("message"))
    calls = [_PartialCall().grown(_object(each)) for each in _items(message.get("tool_calls"))]
    text = _content(message.get("content")) or _content(message.get("refusal"))
    return _finished(text, calls, data, _text(choice.get("finish_reason")))


@define
class _PartialCall:
    """A call whose parts are still coming."""

    id: str = ""
    tool: str = ""
    arguments: str = ""

    def grown(self, delta: Mapping[str, object]) -> "_PartialCall":
        function = _object(delta.get("function"))
        self.id = self.id or _text(delta.get("id"))
        self.tool += _text(function.get("name"))
        self.arguments += _text(function.get("arguments"))
        return self


@define
class Assembly:
    """A streamed answer while it comes in."""

    _text: list[str] = field(factory=list[str])
    _calls: list[_PartialCall] = field(factory=list[_PartialCall])
    _at: dict[int, _PartialCall] = field(factory=dict[int, _PartialCall])
    _head: dict[str, object] = field(factory=dict[str, object])
    _finish: str = ""

    @property
    def ended(self) -> bool:
        """Whether the model said why it stopped; a stream without that was cut."""
        return bool(self._finish)

    def add(self, data: object) -> str:
        """Takes one chunk, as JSON; returns the text that it adds."""
        self._head |= {key: value for key, value in _object(data).items() if key in _HEAD and value is not None}
        choice = _choice(data)
        if choice is None:  # the last chunk of all brings the usage only
            return ""
        self._finish = _text(choice.get("finish_reason")) or self._finish
        delta = _object(choice.get("delta"))
        for each in _items(delta.get("tool_calls")):
            self._slot(_object(each)).grown(_object(each))
        text = _content(delta.get("content")) or _content(delta.get("refusal"))
        self._text.append(text)
        return text

    def answer(self) -> Answer:
        """The whole answer. Raises `ModelError` where there is none."""
        return _finished("".join(self._text), self._calls, self._head, self._finish)

    def _slot(self, delta: Mapping[str, object]) -> _PartialCall:
        """The call that a delta continues: by its index; another id at the same index is another call."""
        index, call_id = delta.get("index"), _text(delta.get("id"))
        place = index if isinstance(index, int) else max(self._at, default=0)
        slot = self._at.get(place)
        if slot is None or (call_id and slot.id and call_id != slot.id):
            slot = self._at[place] = _PartialCall()
            self._calls.append(slot)
        return slot


_HEAD = ("id", "model", "system_fingerprint", "usage")


def _finished(text: str, calls: list[_PartialCall], head: object, finish: str) -> Answer:
    fields = _object(head)
    if not text.strip() and not calls and finish in _HOPELESS:
        raise ModelError(f"the model gave no answer: {_HOPELESS[finish][0]}", next=_HOPELESS[finish][1])
    provider: dict[str, object] = {name: _text(fields.get(name)) for name in _HEAD[:3] if fields.get(name)}
    return Answer(
        text=text,
        calls=tuple(Wanted(tool=call.tool, arguments=call.arguments, provider_id=call.id) for call in calls),
        usage=_usage(_object(fields.get("usage"))),
        provider=provider | {"finish_reason": finish},
    )


_HOPELESS = {
    "length": ("its limit of tokens was used up before any text", "raise max_tokens, or shorten the conversation"),
    "content_filter": ("the provider's content filter held it back", "change the input or the instructions"),
}


def _usage(data: Mapping[str, object]) -> Usage:
    return Usage(
        input_tokens=_count(data.get("prompt_tokens")),
        output_tokens=_count(data.get("completion_tokens")),
        cached_tokens=_count(_object(data.get("prompt_tokens_details")).get("cached_tokens")),
        reasoning_tokens=_count(_object(data.get("completion_tokens_details")).get("reasoning_tokens")),
    )


def _choice(data: object) -> Mapping[str, object] | None:
    choices = _items(_object(data).get("choices"))
    return _object(choices[0]) if choices else None


def _error_text(data: object) -> str:
    error = _object(data).get("error")
    return (_text(_object(error).get("message")) or _text(error) or "it named no error")[:500]


def _content(value: object) -> str:
    """A text, or the texts of a list of parts."""
    if isinstance(value, list):
        return "".join(_text(_object(part).get("text")) for part in cast("list[object]", value))
    return _text(value)


def _object(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _items(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
