"""The raw floor `cas2`: what the workload's durable records cost with nothing around them.

CBOR and BLAKE3, content-addressed objects, two commits a turn: the model's reply, then the tool's result with the
chained node and the head. WAL and FULL. A fork is a head that points at another run's node.
"""

import sqlite3

import cbor2
from blake3 import blake3

from harness import main
from trial import Trial
from workload import Turn, fork_salt, turn

SCHEMA = """
create table if not exists object(name blob primary key, body blob) without rowid;
create table if not exists node(id integer primary key, parent integer, turn integer, objects blob, chain blob);
create table if not exists head(run text primary key, node integer);
create table if not exists pending(run text, turn integer, reply blob);
"""
PATH = """
with recursive path(id, parent, turn, objects) as (
    select id, parent, turn, objects from node where id = ?
    union all
    select node.id, node.parent, node.turn, node.objects from node join path on node.id = path.parent
)
select reply.body, result.body from path
join object reply on reply.name = substr(path.objects, 1, 32)
join object result on result.name = substr(path.objects, 33)
order by path.turn
"""
Position = tuple[int | None, bytes]
"""A node's id and its chain."""


class Floor:
    def __init__(self, trial: Trial) -> None:
        self.db = sqlite3.connect(trial.path("floor.db"), isolation_level=None)
        self.db.execute("pragma journal_mode = wal")
        self.db.execute("pragma synchronous = full")
        self.db.executescript(SCHEMA)

    def put(self, value: object) -> bytes:
        body = cbor2.dumps(value)
        name = blake3(body).digest()
        self.db.execute("insert or ignore into object values (?, ?)", (name, body))
        return name

    def add(self, run: str, at: Position, number: int, content: Turn) -> Position:
        """One durable turn after the node `at`; returns the new node."""
        call = {"id": content.call_id, "name": "lookup", "args": {"q": content.question, "turn": number}}
        self.db.execute("begin immediate")
        reply = self.put({"role": "assistant", "content": content.text, "tool_calls": [call]})
        self.db.execute("insert into pending values (?, ?, ?)", (run, number, reply))
        self.db.execute("commit")
        self.db.execute("begin immediate")
        result = self.put({"role": "tool", "tool_call_id": content.call_id, "content": content.result})
        node = self._node(at, number, reply, result)
        self.db.execute("insert or replace into head values (?, ?)", (run, node[0]))
        self.db.execute("delete from pending where run = ?", (run,))
        self.db.execute("commit")
        return node

    def _node(self, at: Position, number: int, reply: bytes, result: bytes) -> Position:
        parent, chain = at
        chain = blake3(cbor2.dumps([chain, number, reply, result])).digest()
        cursor = self.db.execute(
            "insert into node(parent, turn, objects, chain) values (?, ?, ?, ?)",
            (parent, number, reply + result, chain),
        )
        return cursor.lastrowid, chain

    def pairs(self, node: int | None) -> list[tuple[str, str]]:
        rows = self.db.execute(PATH, (node,)).fetchall()
        return [(cbor2.loads(reply)["content"], cbor2.loads(result)["content"]) for reply, result in rows]


def run(trial: Trial) -> None:
    floor = Floor(trial)
    trial.begin()
    at: Position = (None, b"")
    for number in range(trial.turns):
        trial.mark()
        at = floor.add("run", at, number, turn(number))
    trial.stop_here()


def resume(trial: Trial) -> None:
    trial.begin()
    floor = Floor(trial)
    (node,) = floor.db.execute("select node from head where run = 'run'").fetchone()
    trial.resumed(floor.pairs(node))


def fork(trial: Trial) -> None:
    floor = Floor(trial)
    trial.begin()
    at = floor.db.execute("select id, chain from node where turn = ?", (trial.fork_at - 1,)).fetchone()
    many = [one_fork(floor, at, trial.fork_at, index) for index in range(trial.forks)]
    trial.forked(many)


def one_fork(floor: Floor, at: Position, number: int, index: int) -> list[tuple[str, str]]:
    """Reads the prefix, as a continuation must, and does its first turn."""
    content = turn(number, fork_salt(index))
    prefix = floor.pairs(at[0])
    floor.add(f"fork{index}", at, number, content)
    return [*prefix, content.pair]


if __name__ == "__main__":
    main("floor", ["cas2"], run, resume, fork, ["cbor2", "blake3"])
