"""What the owner tells the supervisor; for type checkers only, `typing` loads slowly."""

from typing import TypedDict


class Layout(TypedDict):
    """Absolute, link-free paths. A later line wins over an earlier one where they overlap."""

    private: list[str]
    """Covered by empty read-only directories."""
    shown: list[str]
    """Bound back, read-only, where the lines above covered them."""
    hidden: list[str]
    """Covered likewise."""
    workspace: str
    """The one writable part of the host."""
    place: str
    """Where a command finds it, inside a temporary directory."""
    home: str
    """Made inside a temporary directory."""


class Order(TypedDict):
    """What to run. `grace_s` lies between the polite and the final signal after `timeout_s`."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    timeout_s: float
    grace_s: float
    limit: int
    layout: Layout | None
