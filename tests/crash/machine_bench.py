"""Does one command after the other in real processes, and compares all that can be seen with the model after each."""

import sqlite3
import stat
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Self

import machine_life
import machine_model as model
import outside
from machine_check import check_life, check_outside, check_run, in_doubt, with_host
from machine_look import rows_of
from machine_text import Command, command_line
from rig import HERE, Json

from savepoint.crash import ForkServer, Kill, LifeFailed
from savepoint.crash._scratch import Scratch

_NAMED = {"Corrupt", "Missing"}
"""What damage is called."""


class Wrong(AssertionError):
    """The project and the model differ; says the schedule that shows it."""


def server() -> ForkServer:
    """Lives of the state machine."""
    return ForkServer("machine_life:live", path=[HERE])


class Bench:
    """One store with its runs. A context manager; `done` are the commands so far."""

    def __init__(self, server: ForkServer, *, sabotage: str = "", disk: bool = True) -> None:
        self.server = server
        self.sabotage = sabotage
        self.disk = disk
        """whether `full` can be done here"""
        self.done: list[Command] = []
        self._scratch = Scratch().__enter__()
        self.place = self._scratch.place
        machine_life.prepare(self.place)
        (self.place / "files" / "host.txt").write_text("the user's own")
        (self.place / "files" / "host.txt").chmod(0o640)
        self.host = self._host()
        self.clock_s = 0
        self.runs = [model.new_run("r0")]
        self.known: dict[str, Json] = {}
        self._write_script(self.runs[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._scratch.__exit__(None, None, None)

    # -- doing ----------------------------------------------------------------------------------------------------

    def do(self, command: Command) -> None:
        """Raises `Wrong` where what is seen differs from the model."""
        self.done.append(command)
        try:
            getattr(self, f"_{command.word}")(self.runs[command.run % len(self.runs)], command)
            if command.word not in _NOBODY_LIVES:
                self._look()
        except (AssertionError, LifeFailed) as error:
            raise Wrong(f"{error}\nseen again by: {command_line(self.done, self.sabotage)}") from error

    def all(self, commands: Sequence[Command]) -> Self:
        for each in commands:
            self.do(each)
        return self

    def _step(self, run: Json, command: Command) -> None:
        if run["script"][-1:] != ["end"]:
            run["script"] += command.rest.split()
            self._write_script(run)

    def _end(self, run: Json, _: Command) -> None:
        if run["script"][-1:] != ["end"]:
            run["script"].append("end")
            self._write_script(run)

    def _resume(self, run: Json, _: Command) -> None:
        self._lived(run)

    def _kill(self, run: Json, command: Command) -> None:
        self._lived(run, Kill.parse(command.rest))

    def _fork(self, parent: Json, command: Command) -> None:
        if not parent["points"]:
            return
        step = _chosen(sorted(parent["points"]), command.numbers[0])
        run = model.forked(parent, f"r{len(self.runs)}", step)
        self.runs.append(run)
        self._write_script(run)
        kill = command.rest.split()[1:]
        self._lived(run, Kill.parse(kill[0]) if kill else None)

    def _clock(self, _: Json, command: Command) -> None:
        self.clock_s += command.numbers[0]

    def _decide(self, run: Json, command: Command) -> None:
        open_now = model.waits_for(run)
        again = command.rest in ("again", "against")
        if not (run["told"] if again else open_now):
            return
        tags = {model.DOUBTFUL[tag[-1]]: tag for tag in open_now & run["asked"]}
        said = self._live(run, "decide", how=command.rest)
        if command.rest == "against":
            assert said.get("error") == "Conflict", f"a contradicting decision was taken: {said}"
        elif not again:
            assert "error" not in said, f"a decision was refused: {said}"
            self._told(run, said, tags)
        else:
            assert "error" not in said, f"a repeated decision was refused: {said}"

    def _told(self, run: Json, said: Json, tags: Json) -> None:
        kind, effect = said["about"]
        run["told"] = True
        if kind == "damaged":
            run["damaged"] = "redo"
        elif run["calls"].get(said["tag"]) == "performed":
            run["extra"].remove(next(each for each in run["extra"] if each.endswith(f" {effect}")))
        else:
            run["said"][tags[effect]] = said["said"]
            if said["said"] == "fail":
                run["failed"].add(tags[effect])

    def _hydrate(self, run: Json, command: Command) -> None:
        if not run["points"]:
            return
        step = _chosen(sorted(run["points"]), command.numbers[0])
        before = rows_of(self.place)
        request = self._request(run, "hydrate", mark=step - run["first"])
        found = dict(self.server.fresh(request).report)
        expected = with_host(model.state_at(run, step))
        assert found == expected, f"savepoint {step} of {run['name']} hydrated as {found}, not {expected}"
        assert rows_of(self.place) == before, "hydrating wrote to the store"

    def _twice(self, run: Json, _: Command) -> None:
        acts, before = self._acts(), self._trail_size()
        stands = run["status"] == "completed" or (run["status"] == "waiting" and model.waits_for(run))
        foreseen = model.foreseen(run, self.clock_s, acts)
        both = self._live(run, "twice")["both"]
        for each in both:
            assert "fault" not in each, each["fault"]
        trail = self._trail(before)
        if stands:
            for each in both:
                check_life(run, each, foreseen)
            assert not trail, f"nothing was to be done, and yet: {trail}"
            return
        held = [each for each in both if each.get("error") == "Held"]
        assert len(held) == 1, f"of two at once one must be told that the run is held: {both}"
        moved = [line for line in trail if line[0] == held[0]["pid"] and line[1] not in _TOUCHES_NOTHING]
        assert not moved, f"the process that was told `Held` did {moved}"
        winner = next(each for each in both if each is not held[0])
        self._come(run, [line for line in trail if line[0] == winner["pid"]])
        check_life(run, winner, foreseen)

    def _full(self, run: Json, command: Command) -> None:
        if not self.disk or not (self.place / "store" / "store.db").exists():
            return
        before = self._trail_size()
        said = self._live(run, "full", spare_kb=command.numbers[0])
        assert "fault" not in said, said["fault"]
        assert "died" not in said, "the process died of a full disk"
        self._come(run, self._trail(before))
        assert said.get("error") in (None, "NotWritable"), f"a full disk is called {said}"

    def _flip(self, run: Json, command: Command) -> None:
        """A byte is not what it was, for the life of one process."""
        if not (self.place / "store" / "store.db").exists() or run["damaged"]:
            return
        back = self._flipped(*command.numbers)
        try:
            before, foreseen = self._trail_size(), model.foreseen(run, self.clock_s, self._acts())
            said = self._live(run, "run")
            self._come(run, self._trail(before))
        finally:
            back()
        if "error" in said:
            assert said["error"] in _NAMED, f"damage is called {said}"
            assert said["next"], f"damage without a next move: {said}"
        elif ["damaged", ""] in said["questions"]:
            self._damaged(run, [effect for kind, effect in said["questions"] if kind == "in_doubt"])
        else:
            check_life(run, said, foreseen, warned=True)

    def _damaged(self, run: Json, about: list[str]) -> None:
        """The run waits since receipts could not be read: neither all doubts were seen, nor only doubts."""
        run["damaged"] = "open"
        run["asked"] = {tag for tag in run["asked"] if model.DOUBTFUL[tag[-1]] in about}
        for tag in run["asked"]:
            about.remove(model.DOUBTFUL[tag[-1]])
        run["extra"] = {f"{number} {effect}" for number, effect in enumerate(about)}

    def _flipped(self, row: int, at: int) -> Any:
        """Changes one byte through SQLite; the function puts it back where it is still so."""
        with closing(sqlite3.connect(self.place / "store" / "store.db")) as db, db:
            places = [("ledger", "place", key) for (key,) in db.execute("select place from ledger order by place")]
            names = [("object", "name", key) for (key,) in db.execute("select name from object order by name")]
            table, column, key = _chosen(places + names, row)
            [(was,)] = db.execute(f"select body from {table} where {column}=?", (key,)).fetchall()
            now = bytearray(was)
            now[at % len(now)] ^= 1 << at % 8
            db.execute(f"update {table} set body=? where {column}=?", (bytes(now), key))

        def back() -> None:
            with closing(sqlite3.connect(self.place / "store" / "store.db")) as db, db:
                db.execute(f"update {table} set body=? where {column}=? and body=?", (was, key, bytes(now)))

        return back

    # -- one process ----------------------------------------------------------------------------------------------

    def _lived(self, run: Json, kill: Kill | None = None) -> None:
        before, foreseen = self._trail_size(), model.foreseen(run, self.clock_s, self._acts())
        stood = run["status"] == "completed" or (run["status"] == "waiting" and bool(model.waits_for(run)))
        created, first = run["status"] is None, run["status"] != "completed" and model.asks_first(run, self.clock_s)
        reply = self.server.attempt(self._request(run, "run"), kill)
        assert not reply.timed_out, f"a process of {run['name']} did not end"
        trail = self._trail(before)
        self._come(run, trail)
        entered = [line for line in trail if line[1] in ("enter", "step")]
        assert not (first and entered), f"{run['name']} was entered before {sorted(first)} was answered"
        if reply.killed:
            self._catch_up(run, trail)
            return
        assert not (stood and trail), f"nothing was to be done, and yet: {trail}"
        check_life(run, dict(reply.report), foreseen)
        if created and run["parent"]:
            parent = next(each for each in self.runs if each["name"] == run["parent"])
            repeats = model.may_repeat(parent, run["first"])
            assert reply.report["may_repeat"] == repeats, f"it may repeat {repeats}: {reply.report}"

    def _catch_up(self, run: Json, trail: Sequence[Sequence[Any]]) -> None:
        """A commit that was under way in another thread when the process was killed may have been made: then the store
        shows it, and nothing else could.
        """
        begun = {(line[1].removesuffix(".before"), line[2]): line for line in trail if line[1] in _COMMITS}
        made = {(line[1].removesuffix(".after"), line[2]) for line in trail if line[1].endswith(".after")}
        for (word, tag), line in begun.items():
            if (word, tag) not in made and line is not trail[-1]:
                seen = self._live(run, "look", runs=[run["name"]], known=[*self.known], sabotage="")
                if len(in_doubt(seen["runs"][run["name"]]["receipts"])) != len(model.doubts(run)):
                    self._come(run, [[0, f"{word}.after", tag]])

    def _come(self, run: Json, trail: Sequence[Sequence[Any]]) -> None:
        model.lived(run, [line[1:] for line in trail], self.clock_s, self._acts())

    def _live(self, run: Json, do: str, **more: Any) -> Json:
        return dict(self.server.attempt(self._request(run, do, **more)).report)

    def _request(self, run: Json, do: str, **more: Any) -> Json:
        fork = [run["parent"], self._mark(run)] if run["parent"] else None
        common = {"place": str(self.place), "clock_s": self.clock_s, "sabotage": self.sabotage, "run": run["name"]}
        return {**common, "do": do, "fork": fork, **more}

    def _mark(self, run: Json) -> int:
        parent = next(each for each in self.runs if each["name"] == run["parent"])
        return run["first"] - parent["first"]

    # -- seeing ---------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        if not (self.place / "store").exists():
            return
        seen = self._live(
            self.runs[0], "look", runs=[each["name"] for each in self.runs], known=[*self.known], sabotage=""
        )
        assert "error" not in seen, f"the store cannot be read: {seen}"
        assert not seen["damage"], f"verify names {seen['damage']}"
        acts = outside.ledger(self.place / "outside")
        check_outside(self.runs, acts)
        for run in self.runs:
            check_run(run, seen["runs"][run["name"]], self.known, acts)
        assert self._host() == self.host, f"the host changed: {self._host()}"

    def _acts(self) -> dict[str, Any]:
        return {act.tag: act for act in outside.ledger(self.place / "outside")}

    def _trail_size(self) -> int:
        return len(outside._lines(self.place / "outside" / "trail"))

    def _trail(self, since: int) -> list[Any]:
        return outside._lines(self.place / "outside" / "trail")[since:]

    def _write_script(self, run: Json) -> None:
        (self.place / "scripts" / run["name"]).write_text(" ".join(run["script"]))

    def _host(self) -> list[tuple[str, str, int, int]]:
        found = [(path, path.lstat()) for path in sorted((self.place / "files").rglob("*"))]
        return [(path.name, path.read_text(), stat.S_IMODE(each.st_mode), each.st_mtime_ns) for path, each in found]


_TOUCHES_NOTHING = {"claim.before", "create.before"}
_COMMITS = {"intent.before", "outcome.before", "snapshot.before"}
_NOBODY_LIVES = {"step", "end", "clock"}


def _chosen(what: Sequence[Any], number: int) -> Any:
    return what[number % len(what)]
