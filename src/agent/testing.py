"""What tests of agents need: a model that plays fixed turns, the words to write them with, the contract of sessions."""

from typing import Any

from ._scripted import ScriptedModel, Turn, call, calls, say

__all__ = ["ScriptedModel", "Turn", "call", "calls", "say"]


def __getattr__(name: str) -> Any:
    """`SessionContract`, for implementations of `Session`; imported when asked for: it needs Hypothesis."""
    if name == "SessionContract":
        from ._contract_session import SessionContract  # noqa: PLC0415

        return SessionContract
    raise AttributeError(f"agent.testing has no {name!r}")
