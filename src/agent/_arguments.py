"""A tool's arguments as the model wrote them: strict JSON, refused with a message that the model can act on."""

import json
from typing import cast

from savepoint._errors import SavepointError


class BadArguments(SavepointError):
    """Arguments that do not fit a tool's schema; the message names the parameter and is meant for a model."""

    code = "bad_arguments"


def parse_object(text: str) -> dict[str, object]:
    """The JSON object in `text`; empty text is an empty object, as providers write it. Raises `BadArguments`.

    Duplicate keys, NaN, infinities and lone surrogates are refused: different readers take them for different things.
    """
    try:
        value: object = json.loads(
            text.strip() or "{}", object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_bounded
        )
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadArguments("the arguments hold half of a surrogate pair, which is no character") from None
    except RecursionError:
        raise BadArguments("the arguments are nested too deep") from None
    except ValueError as error:
        raise BadArguments(f"the arguments are not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadArguments(f"the arguments must be one JSON object, not {described(value)}")
    return cast("dict[str, object]", value)


_KINDS = ((bool, "the boolean"), (int, "the integer"), (float, "the number"), (str, "the text"))


def described(value: object) -> str:
    """A JSON value as an error shows it; long ones by their kind only."""
    if value is None:
        return "null"
    for kind, name in _KINDS:
        if isinstance(value, kind):
            text = "" if isinstance(value, int) and value.bit_length() > 256 else json.dumps(value, ensure_ascii=False)
            return f"{name} {text}" if 0 < len(text) <= 80 else f"a long {name[4:]}"
    return "a list" if isinstance(value, list) else "an object"


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name!r} is given twice")
        found[name] = value
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _bounded(digits: str) -> int:
    if len(digits) > 4000:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)
