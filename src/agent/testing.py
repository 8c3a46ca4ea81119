"""What tests of agents need: a model that plays fixed turns, and the words to write them with."""

from ._scripted import ScriptedModel, Turn, call, calls, say

__all__ = ["ScriptedModel", "Turn", "call", "calls", "say"]
