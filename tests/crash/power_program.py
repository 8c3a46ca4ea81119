"""A program whose power is cut: three turns, each with a `ONCE` call and a change of its workspace; then a merge.

A script. `run PLACE DURABILITY JOURNAL` lives once and says how far it got by files of the outside, which the cut
spares. `serve DURABILITY JOURNAL` reads places and resumes each in a process of its own until it is done, answering
questions with the truth; one line of JSON a place.
"""

import asyncio
import json
import os
import sys
import traceback
from hashlib import sha256
from pathlib import Path

from effects import Idempotency, current_call, effect
from effects._question import Choice, Decision
from savepoint import (
    Cell,
    Log,
    Registry,
    Workspace,
    World,
    merge_run,
    open_store,
    resumable,
    run_program,
    savepoint,
)
from savepoint._codec import dumps
from savepoint._digest import Domain, seal
from savepoint._point import current_world
from savepoint._questions import open_questions, record_decision
from savepoint._run import RunStatus
from savepoint._run_result import get_run
from savepoint._sqlite import SqliteStore
from savepoint._verify import verify_store

RUN, TURNS, LIVES = "r", 3, 8
OUTSIDE = "outside"
"""The directory that is on another disk."""
TRANSCRIPT = Cell("transcript", Log, default=Log())
_place = Path()


def say(name: str, line: str) -> None:
    """Appends to a file of the outside, durably."""
    fd = os.open(_place / OUTSIDE / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{line}\n".encode())
    os.fsync(fd)
    os.close(fd)


def said(name: str) -> list[str]:
    path = _place / OUTSIDE / name
    return path.read_text().splitlines() if path.exists() else []


@effect("power/post", idempotency=Idempotency.ONCE)
async def post(text: str) -> str:
    say("ledger", json.dumps([text, current_call().idempotency_key]))
    return f"posted {text}"


@effect("power/line", idempotency=Idempotency.CONTAINED)
async def line(text: str) -> int:
    """Not idempotent: it appends; the file of the turn before goes away."""
    root = current_world().system("files").path  # type: ignore[attr-defined]
    notes = root / "notes.txt"
    notes.write_text((notes.read_text() if notes.exists() else "") + f"{text}\n")
    (root / "deep").mkdir(exist_ok=True)
    (root / f"deep/{text}").write_text(text * 300)
    return len(notes.read_text().splitlines())


@resumable("power/program")
async def program(world: World, step: int) -> list[object]:
    while step < TURNS:
        posted = await post(f"news {step}")
        world[TRANSCRIPT] = world[TRANSCRIPT].append([posted, await line(f"turn {step}")])
        step += 1
        await savepoint("turn", key={"step": step}, resume=program.at(step), state=[TRANSCRIPT])
        say("acknowledged", str(step))
    return list(world[TRANSCRIPT])


REGISTRY = Registry([program], effects=[post, line])


def host() -> World:
    return World({"files": Workspace(_place / "host")})


async def attempt(store: SqliteStore) -> RunStatus:
    """One attempt; what it ended with is said outside once it is known here."""
    result = await run_program(program.at(0), store=store, run_id=RUN, world=host(), registry=REGISTRY)
    if result.status is RunStatus.COMPLETED:
        say("acknowledged", json.dumps(result.value))
        await merge_run(store, RUN, host())
        say("acknowledged", "merged")
    return result.status


async def answer(store: SqliteStore) -> int:
    """Answers all open questions with what the ledger says; how many there were."""
    record = await get_run(store, RUN)
    questions = await open_questions(store, record.lineage, REGISTRY.types)
    done = {key: text for text, key in map(json.loads, said("ledger"))}
    for question in questions:
        key = seal(Domain.IDEMPOTENCY, dumps([record.lineage, question.step, question.key])).hex()
        choice = Choice.PERFORMED if key in done else Choice.REDO
        value = f"posted {done[key]}" if key in done else None
        decision = Decision(question=question.id, choice=choice, value=value)
        await record_decision(store, record.lineage, question, decision, REGISTRY.types)
    return len(questions)


async def live(durability: str, wal: bool) -> None:
    async with open_store(_place / "store", durability=durability, wal=wal) as store:  # type: ignore[arg-type]
        await attempt(store)


async def recover(durability: str, wal: bool) -> dict[str, object]:
    """Resumes until it is done; what there is then."""
    report: dict[str, object] = {"before": said("ledger"), "acknowledged": said("acknowledged")}
    questions, status = 0, RunStatus.RUNNING
    for _ in range(LIVES):
        async with open_store(_place / "store", durability=durability, wal=wal) as store:  # type: ignore[arg-type]
            report.setdefault("damage at first", [str(each) for each in (await damage(store))])
            status = await attempt(store)
            if status is not RunStatus.WAITING:
                record = await get_run(store, RUN)
                report["error"] = None if record.error is None else str(record.error)
                break
            questions += await answer(store)
    async with open_store(_place / "store", durability=durability, wal=wal) as store:  # type: ignore[arg-type]
        report["damage"] = [str(each) for each in (await damage(store))]
    host_files = [path for path in sorted((_place / "host").rglob("*")) if path.is_file()]
    files = {path.name: sha256(path.read_bytes()).hexdigest()[:12] for path in host_files}
    return {
        **report,
        "status": status.value,
        "questions": questions,
        "ledger": [json.loads(each)[0] for each in said("ledger")],
        "result": said("acknowledged")[-2:],
        "files": files,
    }


async def damage(store: SqliteStore) -> list[object]:
    return list((await verify_store(store, REGISTRY.types)).damage)


def serve(durability: str, wal: bool) -> None:
    """One forked child a place: imports are done, there is no thread and no loop."""
    global _place  # noqa: PLW0603
    for request in sys.stdin:
        out, back = os.pipe()
        if not (pid := os.fork()):
            code = 1
            try:
                os.close(out)
                _place = Path(request.strip())
                with os.fdopen(back, "w") as pipe:
                    try:
                        pipe.write(json.dumps(asyncio.run(recover(durability, wal))))
                    except BaseException:
                        pipe.write(json.dumps({"status": "raised", "error": traceback.format_exc()}))
                code = 0
            finally:
                os._exit(code)
        os.close(back)
        with os.fdopen(out) as pipe:
            found = pipe.read()
        os.waitpid(pid, 0)
        sys.stdout.write(found + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], sys.argv[3] == "wal")
    else:
        _place = Path(sys.argv[2])
        asyncio.run(live(sys.argv[3], sys.argv[4] == "wal"))
