"""The same shop, mended: the outside is asked first, and progress is never half-written."""

import json
import os
from pathlib import Path

ORDERS = {"ann": 20, "bob": 35}
PROGRESS = Path("progress.json")
LEDGER = Path("ledger")


def outside(line):
    """Stands for a provider that knows our key (here the line itself): the same request again does nothing."""
    if LEDGER.exists() and line in LEDGER.read_text().splitlines():
        return
    ledger = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(ledger, f"{line}\n".encode())
    os.close(ledger)


def save(done):
    """The old progress or the new one lies there, whatever happens; and what lies there lasts."""
    fresh = PROGRESS.with_suffix(".new")
    with fresh.open("w") as file:
        json.dump(done, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(PROGRESS)
    directory = os.open(PROGRESS.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def main():
    done = json.loads(PROGRESS.read_text()) if PROGRESS.exists() else []
    for name, amount in ORDERS.items():
        for act in (f"charge {name} {amount}", f"mail {name}"):
            if act not in done:
                outside(act)
                done.append(act)
                save(done)


main()
