"""The demo as a whole: one run that nobody disturbs, two that are killed inside their one post, and the comparison."""

import asyncio
import shutil
import sys
import tempfile
from json import dumps
from pathlib import Path

from agent.worker import available
from agent.worker._shell import run_shell

from ._actor import PACKAGE, STORE
from ._agent import demo_agent
from ._child import Staging, child, outside
from ._package import PYTEST, UNITTEST, unpack
from ._proof import RESULTS, Proof, prove
from ._screen import Screen
from ._story import PLANS, Stage, play

TIMEOUT_S = 120.0


async def demo(*, json: bool, keep: bool = False) -> int:
    """Kills an agent inside a ONCE call, twice, resumes and decides, and compares with an unkilled run. Offline.

    Returns 0 if all is equal and each run posted once, else 1. With `json` the standard output is one object, and the
    timeline goes to the standard error. Raises `SavepointError` where it cannot be played.
    Everything is in one temporary directory, which is removed unless `keep`; all its processes end with it.
    """
    screen = Screen(sys.stderr if json else sys.stdout)
    started = asyncio.get_running_loop().time()
    place = Path(tempfile.mkdtemp(prefix="savepoint-demo-"))
    try:
        async with asyncio.timeout(TIMEOUT_S):
            proof = await _played(place, screen)
    except TimeoutError:
        raise Staging(f"the demo took more than {TIMEOUT_S:g} s", next="try again on a less busy machine") from None
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)
    _conclude(screen, proof, asyncio.get_running_loop().time() - started, place if keep else None)
    if json:
        sys.stdout.write(dumps(proof.summary()) + "\n")
    return 0 if proof.holds else 1


async def _played(place: Path, screen: Screen) -> Proof:
    (place / PACKAGE).mkdir()
    unpack(place / PACKAGE)
    async with child(outside(), place) as witness:
        tests = await _tests(place / PACKAGE)
        _introduce(screen, tests)
        await witness.event("listening")
        stage = Stage(place=place, outside=witness, screen=screen, tests=tests)
        stories = {plan.run_id: await play(stage, plan) for plan in PLANS}
    return await prove(place, demo_agent(tests), stories)


async def _tests(package: Path) -> str:
    """The command that runs the package's tests: found out the way that the agent's shell will run it."""
    found = await run_shell(package, "python -m pytest --version", sandboxed=bool(available()))
    return UNITTEST if found.exit_code else PYTEST


def _introduce(screen: Screen, tests: str) -> None:
    screen.say(screen.style.bold("An agent mends a package and posts one report, which nobody can take back."))
    screen.say("It is killed inside that post, twice; each time the run resumes, asks, goes on.")
    if tests == UNITTEST:
        screen.say("This Python has no pytest: the package's tests run with unittest.")
    if not available():
        screen.say(f"No sandbox here ({available().reason}): shell commands count as ONCE.")


def _conclude(screen: Screen, proof: Proof, took_s: float, kept: Path | None) -> None:
    style = screen.style
    screen.table(proof.rows())
    screen.say()
    if proof.holds:
        screen.say(style.good(style.bold("Both killed runs ended like the one that was not; each posted once.")))
    else:
        screen.say(style.bad("NOT EQUAL: see the table; --keep leaves everything for a look."))
    if not proof.mended:
        screen.say(style.bad("The package's tests did not fail first and pass at last."))
    if not proof.host_untouched:
        screen.say(style.bad("The directory that the runs were started on was changed."))
    screen.say(style.dim(f"{took_s:.1f} s, offline, a directory of its own."))
    if kept is None:
        screen.say("Next: `savepoint demo --keep` leaves the store, the ledger and the results.")
    else:
        screen.say(f"Kept: {kept} ({STORE} is the store, {RESULTS} holds what each run made).")
        screen.say(f"Next: savepoint log {PLANS[-1].run_id} --store {kept / STORE}")
