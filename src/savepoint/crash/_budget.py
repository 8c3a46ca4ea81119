"""Times as people write them."""

import re

from savepoint._errors import Usage

_TIME = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>ms|s|m|h)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


def seconds(text: str, *, option: str) -> float:
    """`60s`, `2m`, `1.5h`, `500ms` or plain seconds. Raises `Usage`; nothing takes no time at all."""
    found = _TIME.fullmatch(text.strip())
    value = float(found["number"]) * _SECONDS[found["unit"]] if found else 0.0
    if value <= 0:
        raise Usage(f"{option} {text!r} is not a time", next=f"give it as in {option} 60s, 5m or 1h")
    return value
