"""The chat completions adapter through the SDK, first over its own fake transport, then over a real socket."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from agent._answer import Answer, ModelError, ModelUnavailable, Usage, Wanted
from agent._message import AssistantMessage, ToolCall, ToolMessage, UserMessage
from agent._model import Output, Request, ToolSpec
from agent._openai import OpenAIModel

KEY = "sk-CANARY-3"
ASK = Request(instructions="Be brief.", messages=(UserMessage(content="hi"),))


def completion(message: dict[str, Any], finish: str = "stop", **more: object) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return {"id": "cmpl-1", "object": "chat.completion", "created": 1, "model": "m-2", "choices": [choice], **more}


def tool_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: object) -> str:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    data = {"id": "cmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m-2", "choices": choices, **more}
    return f"data: {json.dumps(data)}\n\n"


def model(answer: Callable[[httpx2.Request], httpx2.Response], **settings: object) -> OpenAIModel:
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    return OpenAIModel("m", api_key=KEY, base_url="http://test.invalid/v1", http_client=client, settings=settings)


def answering(data: object, status: int = 200, **headers: str) -> OpenAIModel:
    return model(lambda _: httpx2.Response(status, json=data, headers=headers))


def streaming(*parts: str) -> OpenAIModel:
    body = "".join(parts).encode()
    return model(lambda _: httpx2.Response(200, content=body, headers={"content-type": "text/event-stream"}))


async def test_the_request_names_every_part_and_our_own_call_ids() -> None:
    seen: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(json.loads(request.content))
        return httpx2.Response(200, json=completion({"content": "ok"}))

    history = (
        UserMessage(content="hi"),
        AssistantMessage(text="", calls=(ToolCall(id="3.0", tool="f", arguments='{"a":1}'),)),
        ToolMessage(call_id="3.0", text="one"),
    )
    spec = ToolSpec(name="f", description="Does.", parameters={"type": "object"})
    output = Output(name="answer", schema={"type": "object"})
    ask = Request(instructions="Be brief.", messages=history, tools=(spec,), output=output)
    await model(answer, temperature=0, top_k=3).reply(ask)
    function = {"name": "f", "arguments": '{"a":1}'}
    assert seen == [
        {
            "model": "m",
            "stream": False,
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "call_3_0", "type": "function", "function": function}],
                },
                {"role": "tool", "tool_call_id": "call_3_0", "content": "one"},
            ],
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "description": "Does.", "parameters": {"type": "object"}},
                }
            ],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": {"type": "object"}},
            },
            "temperature": 0,
            "top_k": 3,
        }
    ]


async def test_malformed_arguments_of_the_past_travel_as_well_formed_json() -> None:
    seen: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(json.loads(request.content))
        return httpx2.Response(200, json=completion({"content": "ok"}))

    calls = (ToolCall(id="0.0", tool="f", arguments='{"a": '), ToolCall(id="0.1", tool="f", arguments=""))
    await model(answer).reply(Request(messages=(AssistantMessage(text="x", calls=calls),)))
    sent = [json.loads(each["function"]["arguments"]) for each in seen[0]["messages"][0]["tool_calls"]]
    assert sent == [{"malformed_arguments": '{"a": '}, {}]


async def test_a_whole_answer_has_text_calls_usage_and_the_providers_own_facts() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    calls = [tool_call("x", "f", '{"a": 1}'), tool_call("x", "g", "{oops")]
    answer = await answering(completion({"content": "both", "tool_calls": calls}, "tool_calls", usage=usage)).reply(ASK)
    assert answer == Answer(
        text="both",
        calls=(
            Wanted(tool="f", arguments='{"a": 1}', provider_id="x"),
            Wanted(tool="g", arguments="{oops", provider_id="x"),
        ),
        usage=Usage(input_tokens=10, output_tokens=5, cached_tokens=4, reasoning_tokens=2),
        provider={"id": "cmpl-1", "model": "m-2", "finish_reason": "tool_calls"},
    )


async def test_streamed_pieces_become_the_same_answer_and_are_shown_as_they_come() -> None:
    seen: list[str] = []
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    first = {"index": 0, "id": "x", "type": "function", "function": {"name": "f", "arguments": '{"a'}}
    second = {"index": 1, "id": "x", "type": "function", "function": {"name": "g", "arguments": ""}}
    answer = await streaming(
        chunk({"role": "assistant", "content": "Hel"}),
        chunk({"content": "lo"}),
        chunk({"tool_calls": [first]}),
        chunk({"tool_calls": [second]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '": 1}'}}]}),
        chunk({}, "tool_calls"),
        chunk(usage=usage),
        "data: [DONE]\n\n",
    ).reply(ASK, on_text=seen.append)
    assert seen == ["Hel", "lo"]
    assert answer == Answer(
        text="Hello",
        calls=(
            Wanted(tool="f", arguments='{"a": 1}', provider_id="x"),
            Wanted(tool="g", arguments="", provider_id="x"),
        ),
        usage=Usage(input_tokens=3, output_tokens=2),
        provider={"id": "cmpl-1", "model": "m-2", "finish_reason": "tool_calls"},
    )


async def test_calls_that_all_claim_index_0_are_told_apart_by_their_ids() -> None:
    parts = [{"index": 0, "id": i, "function": {"name": i, "arguments": "{}"}} for i in ("a", "b")]
    answer = await streaming(chunk({"tool_calls": parts}), chunk({}, "tool_calls")).reply(ASK, on_text=print)
    assert [call.tool for call in answer.calls] == ["a", "b"]


async def test_half_characters_of_two_chunks_are_joined_and_a_lone_half_is_replaced() -> None:
    parts = (chunk({"content": "\ud83d"}), chunk({"content": "\ude00 \ud83d"}), chunk({}, "stop"))
    answer = await streaming(*parts).reply(ASK, on_text=lambda _: None)
    assert answer.text == "\U0001f600 \ufffd"


async def test_a_stream_without_an_end_is_cut_and_may_be_asked_again() -> None:
    with pytest.raises(ModelUnavailable, match="cut"):
        await streaming(chunk({"content": "Hel"})).reply(ASK, on_text=lambda _: None)


async def test_an_error_inside_a_stream_may_be_asked_again() -> None:
    parts = (chunk({"content": "Hel"}), 'data: {"error": {"message": "overloaded"}}\n\n')
    with pytest.raises(ModelUnavailable, match="overloaded"):
        await streaming(*parts).reply(ASK, on_text=lambda _: None)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_passing_trouble_is_named_retryable_with_the_wait_that_was_asked_for(status: int) -> None:
    sick = answering({"error": {"message": "busy"}}, status, **{"retry-after": "7"})
    with pytest.raises(ModelUnavailable, match=f"HTTP {status}") as caught:
        await sick.reply(ASK)
    assert (caught.value.retryable, caught.value.retry_after_s) == (True, 7)


@pytest.mark.parametrize(
    ("status", "code", "move"),
    [
        (400, None, "refused"),
        (400, "context_length_exceeded", "shorten"),
        (401, "invalid_api_key", "OPENAI_API_KEY"),
        (404, "model_not_found", "model's name"),
        (429, "insufficient_quota", "credit"),
    ],
)
async def test_a_refused_request_is_final_and_says_what_to_do(status: int, code: str | None, move: str) -> None:
    sick = answering({"error": {"message": f"no, {KEY} is bad", "code": code}}, status)
    with pytest.raises(ModelError) as caught:
        await sick.reply(ASK)
    assert not caught.value.retryable
    assert move in caught.value.next
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (httpx2.ConnectError("refused"), "connection failed"),
        (httpx2.ReadError("reset"), "connection failed"),
        (httpx2.ReadTimeout("late"), "nothing came"),
    ],
)
async def test_a_lost_connection_may_be_asked_again(error: Exception, words: str) -> None:
    def fail(_: httpx2.Request) -> httpx2.Response:
        raise error

    with pytest.raises(ModelUnavailable, match=words):
        await model(fail).reply(ASK)


@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_an_answer_that_can_never_come_is_final(finish: str) -> None:
    with pytest.raises(ModelError) as caught:
        await answering(completion({"content": ""}, finish)).reply(ASK)
    assert not caught.value.retryable


async def test_a_refusal_of_the_model_is_its_text() -> None:
    answer = await answering(completion({"content": None, "refusal": "I cannot."})).reply(ASK)
    assert answer.text == "I cannot."


@pytest.mark.parametrize(
    "data", [{}, {"choices": []}, {"choices": None}, {"error": {"message": "hm"}}, {"error": "hm"}], ids=str
)
async def test_no_choices_may_be_asked_again(data: object) -> None:
    with pytest.raises(ModelUnavailable, match="without choices"):
        await answering(data).reply(ASK)


@pytest.mark.parametrize(
    "message",
    [
        {"content": [{"type": "text", "text": "ok"}]},
        {"content": "ok", "tool_calls": {"not": "a list"}},
        {"content": "ok", "tool_calls": []},
    ],
    ids=str,
)
async def test_odd_but_readable_answers_are_read(message: dict[str, Any]) -> None:
    answer = await answering(completion(message, usage={"prompt_tokens": "many"})).reply(ASK)
    assert (answer.text, answer.calls, answer.usage) == ("ok", (), Usage())


async def test_a_page_instead_of_json_names_the_address_to_check() -> None:
    page = model(lambda _: httpx2.Response(200, text="<html>", headers={"content-type": "text/html"}))
    with pytest.raises(ModelError) as caught:
        await page.reply(ASK)
    assert "OPENAI_BASE_URL" in caught.value.next


async def test_a_cut_json_body_may_be_asked_again() -> None:
    cut = model(lambda _: httpx2.Response(200, text='{"id": "x', headers={"content-type": "application/json"}))
    with pytest.raises(ModelUnavailable):
        await cut.reply(ASK)


class Endpoint(BaseHTTPRequestHandler):
    """Plays the parts that the path's first word asks for."""

    protocol_version = "HTTP/1.1"
    played: dict[str, int]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        part = self.path.split("/")[1]
        self.played[part] = self.played.get(part, 0) + 1
        getattr(self, part)()

    def whole(self) -> None:
        calls = [tool_call("x", "f", '{"a": 1}'), tool_call("x", "f", "{oops")]
        self._send(200, "application/json", json.dumps(completion({"content": None, "tool_calls": calls})).encode())

    def broken(self) -> None:
        self._send(500, "application/json", b'{"error": {"message": "inside"}}')

    def nothing(self) -> None:
        self.close_connection = True

    def stream(self) -> None:
        parts = (chunk({"content": "Hel"}), chunk({"content": "lo"}), chunk({}, "stop"), "data: [DONE]\n\n")
        self._send(200, "text/event-stream", "".join(parts).encode())

    def cut(self) -> None:
        self._send(200, "text/event-stream", chunk({"content": "Hel"}).encode(), announced=10_000)
        self.close_connection = True

    def _send(self, status: int, kind: str, body: bytes, announced: int | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(announced or len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[tuple[str, dict[str, int]]]:
    played: dict[str, int] = {}
    kind = type("Bound", (Endpoint,), {"played": played})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", played
        server.shutdown()
        thread.join()


@contextlib.asynccontextmanager
async def at(address: str, part: str) -> AsyncGenerator[OpenAIModel]:
    live = OpenAIModel("m", api_key=KEY, base_url=f"{address}/{part}/v1", timeout_s=10)
    yield live
    await live.aclose()


async def test_over_a_socket_calls_come_as_the_provider_wrote_them(endpoint: tuple[str, dict[str, int]]) -> None:
    async with at(endpoint[0], "whole") as live:
        answer = await live.reply(ASK)
    assert [(call.arguments, call.provider_id) for call in answer.calls] == [('{"a": 1}', "x"), ("{oops", "x")]


async def test_over_a_socket_text_streams(endpoint: tuple[str, dict[str, int]]) -> None:
    seen: list[str] = []
    async with at(endpoint[0], "stream") as live:
        answer = await live.reply(ASK, on_text=seen.append)
    assert (answer.text, seen) == ("Hello", ["Hel", "lo"])


@pytest.mark.parametrize("part", ["broken", "nothing", "cut"])
async def test_over_a_socket_trouble_is_retryable_and_never_retried_here(
    endpoint: tuple[str, dict[str, int]], part: str
) -> None:
    async with at(endpoint[0], part) as live:
        with pytest.raises(ModelUnavailable):
            await live.reply(ASK, on_text=lambda _: None)
    assert endpoint[1] == {part: 1}


def test_one_model_serves_several_event_loops(endpoint: tuple[str, dict[str, int]]) -> None:
    live = OpenAIModel("m", api_key=KEY, base_url=f"{endpoint[0]}/stream/v1")

    async def once() -> str:
        return (await live.reply(ASK, on_text=lambda _: None)).text

    with asyncio.Runner() as one, asyncio.Runner() as other:
        texts = [runner.run(once()) for runner in (one, other, one, other)]
        one.run(live.aclose())
        texts += [runner.run(once()) for runner in (one, other)]
        one.run(live.aclose())
        other.run(live.aclose())
    assert texts == ["Hello"] * 6
