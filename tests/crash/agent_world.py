"""The world of the agents that the crash suite kills: a directory, and a map that can refuse its snapshot."""

from pathlib import Path
from typing import Any

from agents import Setting

from savepoint import KeyValue, Missing, Workspace, World


class Moody(KeyValue):
    """A map that refuses its snapshot while it holds that it sulks."""

    async def snapshot(self, contents: Any) -> bytes:
        if Setting.refuse and self.get("sulks"):
            raise Missing("the map sulks", next="cheer it up")
        return await super().snapshot(contents)

    async def fork(self, contents: Any, *, at: bytes | None, place: Path) -> "Moody":
        child = await super().fork(contents, at=at, place=place)
        moody = Moody(dict(child.items()))
        moody._owned = True
        return moody


def host(place: Path) -> World:
    """The user's world."""
    place.mkdir(exist_ok=True)
    return World({"files": Workspace(place), "kv": Moody()})
