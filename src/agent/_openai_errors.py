"""What an error of the `openai` SDK means for a run: whether asking again can help, and what to do where it cannot."""

import math

import httpx2
from openai import APIConnectionError, APIResponseValidationError, APIStatusError, APITimeoutError

from ._answer import ModelError, ModelUnavailable

_NEXT = {
    400: "read the message: the request itself is refused",
    401: "check OPENAI_API_KEY",
    403: "check what OPENAI_API_KEY is allowed to use",
    404: "check the model's name and OPENAI_BASE_URL",
    413: "shorten the conversation",
}
_PASSING = frozenset({408, 409, 425, 429})
"""Statuses below 500 that say nothing about the request itself."""


def model_error(name: str, error: Exception, *, timeout_s: float, secret: str) -> ModelError:
    """`error` as a `ModelError` of the model `name`; `secret` does not appear in it."""
    if isinstance(error, APITimeoutError):
        return ModelUnavailable(f"{name}: nothing came for {timeout_s:g} s", next="ask again, or raise timeout_s")
    if isinstance(error, APIStatusError):
        return _of_status(name, error, secret)
    if isinstance(error, APIResponseValidationError):
        return ModelError(f"{name}: the endpoint does not speak chat completions", next="check OPENAI_BASE_URL")
    if isinstance(error, (APIConnectionError, httpx2.HTTPError)):
        cause = error.__cause__ or error
        text = f"{type(cause).__name__}: {_clean(str(cause), secret)}"
        return ModelUnavailable(f"{name}: the connection failed ({text})", next="check OPENAI_BASE_URL, then ask again")
    return ModelUnavailable(f"{name}: {_clean(str(error), secret)}", next="ask again")


def _of_status(name: str, error: APIStatusError, secret: str) -> ModelError:
    text = f"{name}: HTTP {error.status_code}: {_clean(error.message, secret)}"
    if error.code == "insufficient_quota":
        return ModelError(text, next="add credit to the provider's account")
    if error.code == "context_length_exceeded":
        return ModelError(text, next="shorten the conversation")
    if error.status_code in _PASSING or error.status_code >= 500:
        return ModelUnavailable(text, next="ask again later", retry_after_s=_retry_after_s(error.response))
    return ModelError(text, next=_NEXT.get(error.status_code, "read the message, change the request"))


def _retry_after_s(response: httpx2.Response) -> float | None:
    """Seconds that the server asks to wait (RFC 9110, 10.2.3; a date is not read, for it needs a clock)."""
    try:
        seconds = float(response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _clean(text: str, secret: str) -> str:
    """Without the key, which some servers echo, and bounded, for some answer with a whole page."""
    masked = text.replace(secret, "***") if secret else text
    return masked if len(masked) <= 500 else masked[:500] + " [cut]"
