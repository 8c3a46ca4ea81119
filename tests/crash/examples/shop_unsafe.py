"""Charges and mails two customers. It means to survive a crash, and does not. Plain Python."""

import json
import os
from pathlib import Path

ORDERS = {"ann": 20, "bob": 35}
PROGRESS = Path("progress.json")


def outside(line):
    """Stands for the payment provider and the mail server; they write down what they were asked to do."""
    ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(ledger, f"{line}\n".encode())
    os.close(ledger)


def save(done):
    with PROGRESS.open("w") as file:
        json.dump(done, file)


def main():
    done = json.loads(PROGRESS.read_text()) if PROGRESS.exists() else []
    for name, amount in ORDERS.items():
        if f"charge {name}" not in done:
            outside(f"charge {name} {amount}")
            done.append(f"charge {name}")
            save(done)
        if f"mail {name}" not in done:
            done.append(f"mail {name}")
            save(done)  # first, so that nobody ever gets two mails
            outside(f"mail {name}")


main()
