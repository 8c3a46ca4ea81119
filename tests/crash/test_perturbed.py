"""After a resume the program, or the model, asks for almost the same: no call gets another one's result, nothing is
done twice, nothing is forgotten, and whoever is not asked for again is asked about.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

import outside
import pytest
from perturbed_model import CLASSES, PERTURBATIONS, Turns, expected, laws, perturbed, plan
from rig import HERE

from savepoint.crash import ForkServer, Kill
from savepoint.crash._room import Room

EXHAUSTIVE = bool(os.environ.get("CRASH_EXHAUSTIVE"))
LIVES = 8
SHARE = 24
"""Of that many perturbations one is tried after a kill, another one after the next."""
Json = dict[str, Any]


@pytest.fixture(scope="module")
def forks() -> Iterator[list[ForkServer]]:
    with (
        ForkServer("perturbed_program:live", path=[HERE]) as one,
        ForkServer("perturbed_program:live", path=[HERE]) as other,
    ):
        yield [one, other]


class Story:
    """One program, killed once, whose rest is told in as many ways as there are perturbations."""

    def __init__(self, server: ForkServer, room: Room, turns: Turns) -> None:
        self.server = server
        self.room = room
        self.turns = turns

    def life(self, turns: Turns, version: int = 1, kill: Kill | None = None, **more: Any) -> Json:
        request = {"place": str(self.room.live), "turns": turns, "version": version, **more}
        return dict(self.server.attempt(request, kill).report)

    def kills(self) -> list[Kill]:
        """One of those that leave the same; all where everything is tried."""
        self.room.empty()
        reply = self.server.attempt({"place": str(self.room.live), "turns": self.turns, "lasting": str(self.room.live)})
        assert reply.report["status"] == "completed"
        if EXHAUSTIVE:
            return list(reply.arrivals)
        same = groupby(zip(reply.arrivals, reply.lasting, strict=True), key=lambda each: each[1])
        return [next(iter(group))[0] for _, group in same]

    def until(self, kill: Kill) -> None:
        self.room.empty(keep_from=1)
        self.life(self.turns, kill=kill)
        self.room.before(1)

    def rest(self, how: str) -> Iterator[str]:
        """From the kill on, the program is another one: what is wrong with that."""
        self.room.restore(1)
        turns, version = perturbed(self.turns, how)
        first = None
        for _ in range(LIVES):
            acts = self.acts()
            life = self.life(turns, version)
            first = life["before"]["step"] if first is None else first
            wanted = expected(life["before"], turns, version, frozenset(key for *_, key in acts))
            found = (
                life["status"],
                sorted((kind, call) for kind, _, call in life["questions"]),
                [call for _, call, _ in self.acts()[len(acts) :]],
            )
            if found != (wanted.status, list(wanted.questions), list(wanted.acts)):
                yield f"it should be {wanted}, and is {found}, after {life['before']}"
                return
            if life["status"] == "failed":
                return
            if life["status"] == "completed":
                yield from laws(self.acts(), {**life["after"], "from": first}, turns[first:])
                return
        yield f"stuck after {LIVES} processes"

    def acts(self) -> list[tuple[str, str, str]]:
        """Effect, call, idempotency key."""
        found = outside.ledger(self.room.live / "outside")
        return [(each.tag.split("(")[0], each.tag, each.key) for each in found]


def some(every: Sequence[str], number: int) -> Sequence[str]:
    """One of them, another one for each number; all where everything is tried."""
    return every if EXHAUSTIVE else every[number % SHARE :: SHARE]


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("nested", [False, True], ids=["program", "body"])
def test_a_program_that_asks_for_almost_the_same(nested: bool, forks: list[ForkServer], memory: Path) -> None:
    def told(server: ForkServer, names: Sequence[str]) -> tuple[int, list[str]]:
        wrong: list[str] = []
        count = 0
        for name in names:
            story = Story(server, Room(memory / name), plan(name, nested=nested))
            for number, kill in enumerate(story.kills()[:: 1 if EXHAUSTIVE else 2]):
                story.until(kill)
                for how in some(PERTURBATIONS, number + 7 * CLASSES.index(name)):
                    wrong += [f"{name}, 0@{kill}, then {how}: {each}" for each in story.rest(how)]
                    count += 1
        return count, wrong

    with ThreadPoolExecutor(len(forks)) as pool:
        parts = list(pool.map(told, forks, [CLASSES[::2], CLASSES[1::2]]))
    wrong = [each for _, some_wrong in parts for each in some_wrong]
    assert sum(count for count, _ in parts) > 50
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong[:20])
