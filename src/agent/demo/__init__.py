"""The main job in under a minute, offline: an agent killed inside a ONCE call, resumed, asked about, finished, proved."""

from ._demo import demo as demo

__all__ = ["demo"]
