"""Models behind an OpenAI-compatible chat completions endpoint, through the `openai` SDK.

The SDK is imported when a model is made: it costs a second that other runs need not pay. It never retries here.
"""

import asyncio
import importlib.util
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from savepoint._errors import Usage as UsageError

from ._answer import Answer, ModelError, ModelUnavailable
from ._model import Request
from ._openai_wire import Assembly, answer_of, body_of

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI

_RESERVED = frozenset({"model", "messages", "tools", "stream", "stream_options", "response_format", "n"})


class OpenAIModel:
    """`openai:NAME`. Key and address come from `OPENAI_API_KEY` and `OPENAI_BASE_URL` where they are not given.

    `settings` go into the request's body as they are (`temperature`, `max_tokens`, ...) and into the fingerprint.
    `timeout_s` bounds each wait for the network. A `http_client` of your own is used as it is, and closed by you.
    Raises `savepoint.Usage` where the extra or the key is missing.
    """

    def __init__(
        self,
        name: str,
        *,
        settings: Mapping[str, object] | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        http_client: "httpx2.AsyncClient | None" = None,
    ) -> None:
        if importlib.util.find_spec("openai") is None:
            raise UsageError(
                f"openai:{name} needs the openai package", next="pip install 'portable-savepoints[openai]'"
            )
        reserved = sorted(_RESERVED & (settings or {}).keys())
        if reserved:
            raise UsageError(f"openai:{name}: the setting {reserved[0]!r} is the loop's own", next="leave it out")
        self._name = name
        self._settings = dict(settings or {})
        self._timeout_s = timeout_s
        self._make = lambda: _client(name, base_url, api_key, timeout_s, http_client)
        self._owned = http_client is None
        # Kept connections belong to the event loop that opened them. The first client is made here to check the key.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncOpenAI] = WeakKeyDictionary()
        self._spare: AsyncOpenAI | None = self._make()

    @property
    def name(self) -> str:
        return f"openai:{self._name}"

    @property
    def settings(self) -> Mapping[str, object]:
        return self._settings

    async def reply(self, request: Request, *, on_text: Callable[[str], None] | None = None) -> Answer:
        """Streams where somebody watches the text, else asks for the answer in one piece."""
        client = self._here()
        body = body_of(request, self._name)
        async with _named_errors(self.name, client.api_key, self._timeout_s):
            if on_text is None:
                whole: object = await client.chat.completions.create(**body, stream=False, extra_body=self._settings)
                return answer_of(_json(whole))
            return await self._stream(client, body, on_text)

    async def aclose(self) -> None:
        """Closes the connections that this event loop keeps between replies; the next reply opens new ones."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None and self._owned:
            await client.close()

    def _here(self) -> "AsyncOpenAI":
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = self._spare or self._make()
            self._spare = None
        return self._clients[loop]

    async def _stream(self, client: "AsyncOpenAI", body: dict[str, Any], on_text: Callable[[str], None]) -> Answer:
        assembly = Assembly()
        stream = await client.chat.completions.create(
            **body, stream=True, stream_options={"include_usage": True}, extra_body=self._settings
        )
        async with stream:
            async for chunk in stream:
                text = assembly.add(_json(chunk))
                if text:
                    on_text(text)
        if not assembly.ended:
            raise ModelUnavailable(f"{self.name}: the stream was cut before its end", next="ask again")
        return assembly.answer()


def _client(
    name: str, base_url: str | None, api_key: str | None, timeout_s: float, http_client: "httpx2.AsyncClient | None"
) -> "AsyncOpenAI":
    from openai import AsyncOpenAI, OpenAIError

    try:
        return AsyncOpenAI(
            base_url=base_url, api_key=api_key, timeout=timeout_s, max_retries=0, http_client=http_client
        )
    except OpenAIError as error:
        raise UsageError(
            f"openai:{name}: {str(error).splitlines()[0]}",
            next="set OPENAI_API_KEY (any text will do for a local server named by OPENAI_BASE_URL)",
        ) from None


def _json(part: object) -> object:
    """What the SDK read, as plain JSON: its own classes promise types that they do not check."""
    from openai import BaseModel

    if not isinstance(part, BaseModel):
        raise ModelError("the endpoint does not speak chat completions", next="check OPENAI_BASE_URL")
    return part.to_dict(warnings=False)


@asynccontextmanager
async def _named_errors(name: str, api_key: str, timeout_s: float) -> AsyncGenerator[None]:
    """Raises what the SDK raises as `ModelError`s, without the key, which some servers echo."""
    import httpx2
    from openai import OpenAIError

    from ._openai_errors import model_error

    try:
        yield
    except (OpenAIError, httpx2.HTTPError, JSONDecodeError, UnicodeDecodeError) as error:
        raise model_error(name, error, timeout_s=timeout_s, secret=api_key) from None
